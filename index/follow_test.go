package index

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/broker/natsbroker"
	"github.com/headgate/headgate/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plain is an event of a root of its own.
func plain(id string) *headgate.Event {
	return &headgate.Event{ID: id, Type: "t", Subject: "s", Header: headgate.Header{RootID: id, TTL: 16, Principal: "p"}}
}

// agree compares the index with the streams, event by event.
func agree(t *testing.T, b *bench) {
	t.Helper()
	ctx := context.Background()
	indexed := 0
	for _, s := range streamsOfBench {
		for p := range uint32(s.Partitions) {
			stored, err := b.broker.Browse(ctx, s.Name, headgate.Position{Partition: p}, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range stored {
				found, err := b.Event(ctx, ev.Event.ID)
				if s.NoIndex {
					wantCode(t, err, headgate.CodeNotFound)
					continue
				}
				if err != nil {
					t.Fatalf("%s %s: %v", s.Name, ev.Position, err)
				}
				indexed++
				if len(found) != 1 || found[0].Stream != s.Name || found[0].Position != ev.Position || found[0].Event == nil || found[0].Event.ID != ev.Event.ID ||
					!found[0].Recorded.Equal(ev.Event.Header.RecordedTime) || found[0].Subject != ev.Event.Subject {
					t.Fatalf("%s %s: found %+v", s.Name, ev.Position, found)
				}
			}
		}
	}
	if lag, err := b.Lag(ctx); err != nil || lag != 0 {
		t.Errorf("lag %d, %v", lag, err)
	}
	if n, err := b.Prune(ctx); err != nil || n != 0 {
		t.Errorf("pruned %d rows of kept events, %v", n, err)
	}
	if indexed == 0 {
		t.Error("nothing was compared")
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	stop := b.run(t)
	defer stop()
	for i := range 700 {
		b.publish(t, []string{"alpha", "beta", "bulk"}[i%3], plain(fmt.Sprint("e", i)))
	}
	b.wait(t)
	agree(t, b)
	b.publish(t, "beta", plain("late")) // Event itself catches up
	if _, err := b.Event(context.Background(), "late"); err != nil {
		t.Error(err)
	}
	wantCode(t, b.Run(context.Background()), headgate.CodeInvalidArgument)
}

// TestFollowOnNATS follows the embedded driver, over a restart of the broker.
func TestFollowOnNATS(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := t.TempDir()
	openBroker := func() broker.Broker {
		nats, err := natsbroker.Open(ctx, natsbroker.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		declare(t, nats)
		return nats
	}
	b := benchOn(t, openBroker())
	stop := b.run(t)
	publish := func(round int) {
		for stream, n := range map[string]int{"alpha": 300, "beta": 30, "bulk": 3} {
			events := make([]*headgate.Event, n)
			for i := range events {
				events[i] = plain(fmt.Sprint(stream, round, "-", i))
				events[i].Source, events[i].Header.RecordedTime = "/test", b.clock
			}
			if _, err := b.broker.Publish(ctx, stream, events); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish(1)
	b.wait(t)
	agree(t, b)
	stop()
	if err := b.broker.Close(ctx); err != nil {
		t.Fatal(err)
	}
	b.broker = openBroker()
	b.Index = New(b.config())
	publish(2)
	stop = b.run(t)
	b.wait(t)
	agree(t, b)
	stop()
}

// flaky fails some updates, before or after they are committed.
type flaky struct {
	store.Store
	calls atomic.Int64
	off   atomic.Bool
}

func (f *flaky) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	n := f.calls.Add(1)
	if f.off.Load() {
		return f.Store.Update(ctx, fn)
	}
	if n%3 == 1 {
		return errors.New("store: gone")
	}
	err := f.Store.Update(ctx, fn)
	if err == nil && n%3 == 2 {
		return headgate.NewError(headgate.CodeUnknownOutcome, "the answer was lost")
	}
	return err
}

// TestExactAfterFaults: the node stops and starts, the broker crashes and
// forgets settlements, the store fails before and after commits. No row is
// missing and none is there twice.
func TestExactAfterFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		b := newBench(t, &membroker.Faults{Seed: seed, UnknownStored: 0.05, UnknownLost: 0.05, LoseSettle: 0.1, Crash: 0.1, Reorder: 0.1})
		f := &flaky{Store: b.store}
		for round := range 4 {
			cfg := b.config()
			cfg.Store = f
			b.Index = New(cfg)
			stop := b.run(t)
			for i := range 100 {
				b.publish(t, []string{"alpha", "beta"}[rnd.IntN(2)], plain(fmt.Sprint(seed, "-", round, "-", i)))
			}
			<-b.signal() // something was written, then the node dies
			stop()
		}
		f.off.Store(true)
		stop := b.run(t)
		b.wait(t)
		agree(t, b)
		stop()
	}
}

func TestRebuild(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := newBench(t, nil)
	for i := range 300 {
		b.publish(t, "alpha", plain(fmt.Sprint("e", i)))
	}
	// A row of an event that no stream holds any more.
	ghost := store.IndexRow{ID: "ghost", Stream: "alpha", Position: headgate.Position{Partition: 0, Offset: 1 << 30}, Root: "ghost", Recorded: time.Now()}
	err := b.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error { return tx.Index.Put(ctx, []store.IndexRow{ghost}) })
	if err != nil {
		t.Fatal(err)
	}
	stop := b.run(t)
	defer stop()
	b.wait(t)
	for range 5 { // while it follows
		if err := b.Rebuild(ctx); err != nil {
			t.Fatal(err)
		}
		b.publish(t, "beta", plain(fmt.Sprint("more", b.clock.UnixNano())))
	}
	b.wait(t)
	agree(t, b)
	_, err = b.Event(ctx, "ghost")
	wantCode(t, err, headgate.CodeNotFound)
}

func TestRebuildWhileStopped(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.publish(t, "beta", plain("e"))
	stop := b.run(t)
	b.wait(t)
	stop()
	if err := b.Rebuild(context.Background()); err != nil {
		t.Fatal(err)
	}
	if lag, err := b.Lag(context.Background()); err != nil || lag != 1 {
		t.Fatalf("lag %d, %v; want 1", lag, err)
	}
	defer b.run(t)()
	b.wait(t)
	agree(t, b)
}

// TestRetention: what was trimmed is pruned, does not hold Wait up, and answers
// without its event as long as its row is there.
func TestRetention(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := newBench(t, nil)
	for i := range 20 {
		b.publish(t, "beta", plain(fmt.Sprint("e", i)))
	}
	stop := b.run(t)
	b.wait(t)
	if err := b.broker.Trim(ctx, "beta", 0, 15); err != nil {
		t.Fatal(err)
	}
	found, err := b.Event(ctx, "e3")
	if err != nil || len(found) != 1 || found[0].Event != nil || found[0].Type != "t" {
		t.Errorf("trimmed event: %+v, %v", found, err)
	}
	ex, err := b.Explain(ctx, "e3", nil)
	if err != nil || !ex.Admitted || len(ex.Subscriptions) != 0 {
		t.Errorf("explanation of a trimmed event: %+v, %v", ex, err)
	}
	if n, err := b.Prune(ctx); err != nil || n != 15 {
		t.Errorf("pruned %d, %v; want 15", n, err)
	}
	_, err = b.Event(ctx, "e3")
	wantCode(t, err, headgate.CodeNotFound)
	if _, err := b.Event(ctx, "e15"); err != nil {
		t.Error(err)
	}
	stop()

	// Trimmed before it was ever indexed.
	for i := range 10 {
		b.publish(t, "beta", plain(fmt.Sprint("f", i)))
	}
	if err := b.broker.Trim(ctx, "beta", 0, 30); err != nil {
		t.Fatal(err)
	}
	b.wait(t)
}

// Events that cannot be read are missing from the index; it does not stop, and
// it is up to date without them.
func TestDamagedEventsAreSteppedOver(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := newBench(t, nil)
	for i := range 6 {
		b.publish(t, "beta", plain(fmt.Sprint("e", i)))
	}
	for _, off := range []uint64{2, 3, 5} { // in the middle, and the last one
		if err := b.broker.(*membroker.Broker).Damage(ctx, "beta", headgate.Position{Offset: off}); err != nil {
			t.Fatal(err)
		}
	}
	defer b.run(t)()
	b.wait(t)
	for i, found := range []bool{true, true, false, false, true, false} {
		if _, err := b.Event(ctx, fmt.Sprint("e", i)); (err == nil) != found {
			t.Errorf("e%d: %v, want found=%v", i, err, found)
		}
	}
}

// A stream that lost its end is told of, and what is stored at its offsets
// anew is indexed.
func TestCutStreamIsTold(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := newBench(t, nil)
	for i := range 3 {
		b.publish(t, "beta", plain(fmt.Sprint("e", i)))
	}
	err := b.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		return tx.Index.SetCursor(ctx, "beta", 0, 5) // two more events were stored once
	})
	if err != nil {
		t.Fatal(err)
	}
	told := b.signal()
	defer b.run(t)()
	<-told
	for i := 3; i < 8; i++ { // beyond the old end, so that waiting means something
		b.publish(t, "beta", plain(fmt.Sprint("e", i)))
	}
	b.wait(t)
	if _, err := b.Event(ctx, "e3"); err != nil {
		t.Error(err)
	}
	lost := b.Lost()
	if len(lost) != 1 || lost[0].From != 3 || lost[0].To != 5 {
		t.Errorf("lost: %v, want offsets 3 and 4", lost)
	}
}

func TestWaitSaysHowFarBehind(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for i := range 7 {
		b.publish(t, "beta", plain(fmt.Sprint("e", i)))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err := b.Wait(ctx)
	wantCode(t, err, headgate.CodeUnavailable)
	if !strings.Contains(err.Error(), "7 events behind") {
		t.Error(err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	cancel()
	_, err = b.Event(ctx, "e1")
	if err == nil {
		t.Error("found without an index")
	}
}

// TestStreamComesLater: a stream that does not exist yet is tried again.
func TestStreamComesLater(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	cfg := b.config()
	cfg.Topology = append(declared{{Name: "later"}}, streamsOfBench...)
	b.Index = New(cfg)
	defer b.run(t)()
	b.publish(t, "beta", plain("e"))
	moved := b.signal()
	if _, err := b.broker.Ensure(context.Background(), []broker.StreamSpec{{Name: "later", Partitions: 1}}); err != nil {
		t.Fatal(err)
	}
	b.publish(t, "later", plain("l"))
	<-moved
	b.wait(t)
	if _, err := b.Event(context.Background(), "l"); err != nil {
		t.Error(err)
	}
}

func BenchmarkFollow(b *testing.B) {
	const n = 20_000
	for b.Loop() {
		b.StopTimer()
		bb := newBench(b, nil)
		batch := make([]*headgate.Event, n)
		for i := range batch {
			batch[i] = plain(fmt.Sprintf("019ae4d7-1b1e-7c70-8f0c-%012d", i))
			batch[i].Source, batch[i].Header.RecordedTime = "/b", bb.clock
		}
		if _, err := bb.broker.Publish(context.Background(), "alpha", batch); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		stop := bb.run(b)
		bb.wait(b)
		stop()
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "rows/s")
}
