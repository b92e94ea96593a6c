package hold_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/nodetest"
	"github.com/headgate/headgate/lease/hold"
	"github.com/headgate/headgate/topology"
)

// workerURL makes this binary a worker of a node.
const workerURL = "HEADGATE_HOLD_WORKER_URL"

func TestMain(m *testing.M) {
	if url := os.Getenv(workerURL); url != "" {
		if err := pausedWorker(url, os.Getenv("HEADGATE_HOLD_WORKER_TOKEN")); err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// pausedWorker holds a lease, stops in the middle of publishing under it, and
// tells what came of it.
func pausedWorker(url, token string) error {
	ctx := context.Background()
	c, err := client.New(client.Config{URL: url, Token: token})
	if err != nil {
		return err
	}
	held, l, err := hold.Acquire(ctx, c, "ticket/1", &hold.Opts{Want: hold.Want{TTL: time.Second}})
	if err != nil {
		return err
	}
	body, feed := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/events", body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", api.TypeEvent)
	sent := make(chan error, 1)
	go func() {
		resp, err := (&http.Client{Transport: l.Transport(nil)}).Do(req)
		if err == nil {
			b, _ := io.ReadAll(resp.Body)
			fmt.Println("published", resp.StatusCode, strings.TrimSpace(string(b)))
			err = resp.Body.Close()
		}
		sent <- err
	}()
	const event = `{"specversion":"1.0","id":"stale","source":"/t","type":"ticket.opened","data":{"ticket_id":"1"}}`
	if _, err := io.WriteString(feed, event[:40]); err != nil {
		return err
	}
	fmt.Println("holds", l.Epoch())
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil { // stopped and continued meanwhile
		return err
	}
	<-held.Done()
	fmt.Println("context", headgate.CodeOf(context.Cause(held)))
	if _, err := io.WriteString(feed, event[40:]); err != nil {
		return err
	}
	if err := feed.Close(); err != nil {
		return err
	}
	if err := <-sent; err != nil {
		return err
	}
	fmt.Println("released", headgate.CodeOf(l.Release(ctx)))
	return nil
}

// TestPausedWorker stops a worker's process beyond its TTL, in the middle of a
// request under its lease. Another takes the lease; the first one wakes, finds
// its context ended, and its request is refused.
func TestPausedWorker(t *testing.T) {
	n := nodetest.Start(t, &nodetest.Opts{Types: []topology.Type{{Pattern: "ticket.opened", Fence: "ticket/{data.ticket_id}"}}})
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), workerURL+"="+n.URL, "HEADGATE_HOLD_WORKER_TOKEN="+n.Tokens["admin"])
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	next := func(want string) string {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the worker ended where %q was expected", want)
		}
		rest, ok := strings.CutPrefix(lines.Text(), want+" ")
		if !ok {
			t.Fatalf("the worker said %q, want %q", lines.Text(), want)
		}
		return rest
	}
	var old int64
	if _, err := fmt.Sscan(next("holds"), &old); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	taken, err := n.Client(t, "triage").Acquire(ctx, "ticket/1", api.AcquireRequest{WaitMS: 30_000, TTLMS: 60_000})
	if err != nil || taken.Epoch <= old {
		t.Fatalf("%+v, %v", taken, err)
	}
	t.Logf("taken over %s after the pause", time.Since(began))
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "go on\n"); err != nil {
		t.Fatal(err)
	}
	if code := next("context"); code != string(headgate.CodeLeaseLost) && code != string(headgate.CodeLeaseExpired) {
		t.Errorf("the worker's context ended with %s", code)
	}
	if answer := next("published"); !strings.HasPrefix(answer, "412 ") || !strings.Contains(answer, `"code":"stale_fence"`) {
		t.Errorf("the worker's request: %s", answer)
	}
	if code := next("released"); code != string(headgate.CodeLeaseLost) {
		t.Errorf("the worker's release: %s", code)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	stats, err := n.Broker.Stat(ctx, topology.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range stats {
		if st.Next != 0 {
			t.Errorf("%d events are stored", st.Next)
		}
	}
}
