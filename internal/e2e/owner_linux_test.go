package e2e

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/servertest"
)

const ownerConfig = `
version: 1
data: %s
listen: %s
%s
principals:
  - { name: operator, kind: human, roles: [admin], token: env:TOKEN_OPERATOR }
  - { name: shop, kind: system, emit: ["order.placed"], roots: 1000/s, lease: ["order/*"], token: env:TOKEN_SHOP }
`

// ownerNode is a node with a store of its own.
type ownerNode struct {
	t                  *testing.T
	config, data, addr string
}

func newOwnerNode(t *testing.T, broker string) *ownerNode {
	t.Helper()
	dir := t.TempDir()
	n := &ownerNode{t: t, config: filepath.Join(dir, "headgate.yaml"), data: filepath.Join(dir, "data"), addr: freeAddr(t)}
	if err := os.WriteFile(n.config, fmt.Appendf(nil, ownerConfig, n.data, n.addr, broker), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *ownerNode) start() *servertest.Server {
	n.t.Helper()
	return servertest.Start(n.t, binary, n.addr, "serve", "--config", n.config)
}

// refused runs the node, which must end by itself and say whose the streams are.
func (n *ownerNode) refused(owner string) {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), binary, "serve", "--config", n.config)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	wantForeign(n.t, err, out.String(), owner)
	if strings.Contains(out.String(), "headgate is ready") {
		n.t.Errorf("the node said that it is ready:\n%s", out.String())
	}
}

func wantForeign(t *testing.T, err error, out, owner string) {
	t.Helper()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("the node ended with %v, want exit code 3", err)
	}
	for _, want := range []string{"streams_foreign", owner} {
		if !strings.Contains(out, want) {
			t.Errorf("the node does not say %q:\n%s", want, out)
		}
	}
}

// ownership is what headgate broker prints.
type ownership struct {
	Owner, Store  string
	Ours, Adopted bool
}

func (n *ownerNode) broker(command string) (o ownership) {
	n.t.Helper()
	servertest.RunJSON(n.t, binary, &o, "broker", command, "--config", n.config)
	return o
}

func (n *ownerNode) order(c *client.Client, id string) error {
	_, err := c.Publish(n.t.Context(), &headgate.Event{ID: id, Source: "/shop", Type: "order.placed", Data: []byte(`{"note":"x"}`)})
	return err
}

// TestOutsideTwoStoresOneBroker: of two nodes with stores of their own on one
// NATS server the second does not start; once its store adopts the streams, the
// first one ends, takes nothing meanwhile, and does not start again.
func TestOutsideTwoStoresOneBroker(t *testing.T) {
	url := os.Getenv("HEADGATE_TEST_NATS")
	if url == "" {
		if os.Getenv("HEADGATE_REQUIRE_SERVICES") == "1" {
			t.Fatal("HEADGATE_TEST_NATS names no server")
		}
		t.Skip("HEADGATE_TEST_NATS names no server; scripts/services run CMD starts one")
	}
	t.Setenv("TOKEN_OPERATOR", "a-token-for-tests-of-the-operator-01234567")
	t.Setenv("TOKEN_SHOP", "a-token-for-tests-of-the-shop-0123456789")
	broker := fmt.Sprintf("broker: { url: %q, prefix: E2E_%s }", url, rand.Text())
	first, second := newOwnerNode(t, broker), newOwnerNode(t, broker)

	srv := first.start()
	if _, _, err := srv.Client(os.Getenv("TOKEN_OPERATOR")).PutContract(t.Context(), "order.placed", []byte(`{"type":"object"}`)); err != nil {
		t.Fatal(err)
	}
	shop := srv.Client(os.Getenv("TOKEN_SHOP"))
	if err := first.order(shop, "1"); err != nil {
		t.Fatal(err)
	}
	was := second.broker("owner")
	if was.Owner == "" || strings.HasPrefix(was.Owner, was.Store) || was.Ours {
		t.Fatalf("the streams of a running node are said to be %+v", was)
	}
	second.refused(was.Owner)
	out, err := exec.CommandContext(t.Context(), binary, "check", second.config).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "belong to the store "+was.Owner) {
		t.Errorf("check says %s, %v", out, err)
	}
	if err := first.order(shop, "2"); err != nil {
		t.Errorf("beside the one that was refused: %v", err)
	}

	if got := second.broker("adopt"); !got.Adopted || !got.Ours || got.Owner != was.Owner || got.Store != was.Store {
		t.Fatalf("adopt says %+v", got)
	}
	select {
	case <-srv.Ended():
	case <-time.After(20 * time.Second):
		t.Fatal("the node whose streams were adopted goes on")
	}
	wantForeign(t, srv.ExitError(), srv.Output(), was.Store)
	first.refused(was.Store)

	srv = second.start()
	if _, _, err := srv.Client(os.Getenv("TOKEN_OPERATOR")).PutContract(t.Context(), "order.placed", []byte(`{"type":"object"}`)); err != nil {
		t.Fatal(err)
	}
	if err := second.order(srv.Client(os.Getenv("TOKEN_SHOP")), "3"); err != nil {
		t.Error(err)
	}
	if now := first.broker("owner"); !strings.HasPrefix(now.Owner, was.Store) || now.Ours {
		t.Errorf("the streams are %+v", now)
	}

	// A copy of a store has its identity: the node that starts on it is the one
	// that goes on.
	srv.Stop()
	replica := newOwnerNode(t, broker)
	replaceStore(t, replica, filepath.Join(second.data, "store"))
	srv.Restart()
	other := replica.start()
	select {
	case <-srv.Ended():
	case <-time.After(20 * time.Second):
		t.Fatal("two nodes run on copies of one store")
	}
	wantForeign(t, srv.ExitError(), srv.Output(), "or of a copy of it")
	if err := replica.order(other.Client(os.Getenv("TOKEN_SHOP")), "4"); err != nil {
		t.Error(err)
	}
}

// TestSwappedStoreIsNoticed: also the streams of a data folder belong to its
// store. One that was lost is noticed, an older backup of it passes.
func TestSwappedStoreIsNoticed(t *testing.T) {
	t.Setenv("TOKEN_OPERATOR", "a-token-for-tests-of-the-operator-01234567")
	t.Setenv("TOKEN_SHOP", "a-token-for-tests-of-the-shop-0123456789")
	n := newOwnerNode(t, "")
	srv := n.start()
	srv.Stop()
	first := n.broker("owner")
	if first.Owner == "" || !first.Ours {
		t.Fatalf("%+v", first)
	}
	backup := filepath.Join(t.TempDir(), "store")
	if err := os.CopyFS(backup, os.DirFS(filepath.Join(n.data, "store"))); err != nil {
		t.Fatal(err)
	}

	srv.Restart()
	if _, _, err := srv.Client(os.Getenv("TOKEN_OPERATOR")).PutContract(t.Context(), "order.placed", []byte(`{"type":"object"}`)); err != nil {
		t.Fatal(err)
	}
	srv.Stop()
	replaceStore(t, n, backup) // older than the contract
	srv.Restart()
	srv.Stop()

	if err := os.RemoveAll(filepath.Join(n.data, "store")); err != nil {
		t.Fatal(err)
	}
	n.refused(first.Store)
	if got := n.broker("adopt"); !got.Adopted || got.Store == first.Store {
		t.Errorf("adopt says %+v", got)
	}
	if got := n.broker("adopt"); got.Adopted || !got.Ours {
		t.Errorf("adopted twice: %+v", got)
	}
	srv.Restart()
	srv.Stop()
	replaceStore(t, n, backup)
	n.refused(first.Store)
}

func replaceStore(t *testing.T, n *ownerNode, backup string) {
	t.Helper()
	dir := filepath.Join(n.data, "store")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(n.data, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
}
