package natsbroker

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/brokertest"
)

// childURL holds, in a child process, the outside server to publish to.
const childURL = "HEADGATE_NATSBROKER_CHILD_URL"

func TestMain(m *testing.M) {
	if dir := os.Getenv(brokertest.ChildEnv); dir != "" {
		if err := child(dir, os.Getenv(childURL)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if dir := os.Getenv(serveEnv); dir != "" {
		if err := serve(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func child(dir, url string) error {
	cfg := Config{Dir: dir, Durability: broker.Durability(os.Getenv(childDurability))}
	if url != "" {
		cfg = Config{URL: url, Prefix: prefixOf(dir)}
	}
	b, err := Open(context.Background(), cfg)
	if err != nil {
		return err
	}
	return brokertest.ChildMain(b, os.Stdout)
}

func TestConformance(t *testing.T) {
	brokertest.Run(t, brokertest.Harness{
		Open: func(t testing.TB, dir string, o brokertest.Options) broker.Broker {
			return open(t, Config{Dir: dir}, o)
		},
		Child: selfAsChild,
	})
}

func open(t testing.TB, cfg Config, o brokertest.Options) *Broker {
	t.Helper()
	cfg.MaxEventBytes, cfg.DedupeWindow, cfg.DedupeIDs, cfg.Now = o.MaxEventBytes, o.DedupeWindow, o.DedupeIDs, o.Now
	b, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func selfAsChild(t testing.TB, _ string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command(exe, "-test.run=^$")
}

// prefixOf makes a prefix for the broker streams of one test.
func prefixOf(dir string) string {
	sum := digestOf("prefix", dir)
	return fmt.Sprintf("T%X", sum[:8])
}
