package natsbroker

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/brokertest"
)

// TestServerOutOfReachIsSeen: while an outside server is away, or hangs with its
// connections open, the driver says so, and Publish refuses soon that what it
// knows not to have been stored. What clients may see does not say where the
// server is. Afterwards the driver goes on by itself.
func TestServerOutOfReachIsSeen(t *testing.T) {
	server, process := startServer(t)
	p := newProxy(t, server)
	t.Cleanup(p.close)
	b := open(t, Config{URL: p.url(), Prefix: "REACH", awayAfter: 200 * time.Millisecond, pingEvery: 200 * time.Millisecond}, brokertest.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	if _, err := b.Ensure(ctx, []broker.StreamSpec{{Name: "s", Partitions: 1}}); err != nil {
		t.Fatal(err)
	}
	event := func(id string) []*headgate.Event {
		return []*headgate.Event{{ID: id, Source: "/s", Type: "a.b", Data: []byte("{}")}}
	}
	expect := func(id string, want broker.Outcome) {
		t.Helper()
		results, err := b.Publish(ctx, "s", event(id))
		if err != nil || results[0].Outcome != want {
			t.Fatalf("event %s: %v, %v, want %v", id, results, err, want)
		}
	}
	expect("before", broker.OutcomeStored)
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"first", "second"} {
		signal(syscall.SIGSTOP)
		t.Cleanup(func() { _ = process.Signal(syscall.SIGCONT) })
		until(t, ctx, func() bool { return b.Healthy() != nil })
		if err := b.Healthy(); headgate.CodeOf(err) != headgate.CodeUnavailable || b.Refuses() == nil {
			t.Errorf("healthy %v, refuses %v", err, b.Refuses())
		}
		expect(id, broker.OutcomeThrottled)
		_, err := b.Stat(ctx, "s")
		e := headgate.AsError(err)
		if e == nil || e.Code != headgate.CodeUnavailable || e.Err == nil || strings.Contains(e.Error(), "nats:") || strings.Contains(e.Error(), "127.0.0.1") {
			t.Errorf("a question is answered %v", err)
		}
		signal(syscall.SIGCONT)
		until(t, ctx, func() bool { return b.Healthy() == nil })
		expect(id, broker.OutcomeStored)
	}
}
