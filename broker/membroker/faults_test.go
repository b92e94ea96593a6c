package membroker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/broker/brokertest"
	"github.com/headgate/headgate/broker/membroker"
)

func events(prefix string, n int) []*headgate.Event {
	es := make([]*headgate.Event, n)
	for i := range es {
		es[i] = &headgate.Event{ID: fmt.Sprintf("%s-%d", prefix, i), Source: "/s", Type: "t", Key: fmt.Sprint(i % 7)}
	}
	return es
}

func newFaulty(t *testing.T, f membroker.Faults) *membroker.Broker {
	t.Helper()
	b := membroker.New(membroker.Config{Faults: &f})
	if _, err := b.Ensure(context.Background(), []broker.StreamSpec{{Name: "s"}}); err != nil {
		t.Fatal(err)
	}
	return b
}

func kept(t *testing.T, b *membroker.Broker) map[string]int {
	t.Helper()
	got := map[string]int{}
	for p := range uint32(broker.DefaultPartitions) {
		all, err := b.Browse(context.Background(), "s", headgate.Position{Partition: p}, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			got[s.Event.ID]++
		}
	}
	return got
}

// Every fault stays within what the outcomes promise, and whoever repeats what
// is open ends with each event stored once.
func TestFaultsKeepThePromisesOfOutcomes(t *testing.T) {
	for seed := range uint64(20) {
		b := newFaulty(t, membroker.Faults{Seed: seed, Throttle: 0.2, UnknownStored: 0.2, UnknownLost: 0.2})
		open := events("x", 100)
		seen := map[broker.Outcome]int{}
		for round := 0; len(open) > 0; round++ {
			results, err := b.Publish(context.Background(), "s", open)
			if err != nil {
				t.Fatal(err)
			}
			now := kept(t, b)
			var again []*headgate.Event
			for i, r := range results {
				id := open[i].ID
				seen[r.Outcome]++
				switch r.Outcome {
				case broker.OutcomeStored, broker.OutcomeDuplicate:
					if now[id] != 1 {
						t.Fatalf("seed %d: %s is %s and there %d times", seed, id, r.Outcome, now[id])
					}
				case broker.OutcomeThrottled:
					if now[id] != 0 {
						t.Fatalf("seed %d: %s is throttled and there", seed, id)
					}
					again = append(again, open[i])
				default:
					again = append(again, open[i])
				}
			}
			open = again
		}
		for _, o := range []broker.Outcome{broker.OutcomeStored, broker.OutcomeDuplicate, broker.OutcomeThrottled, broker.OutcomeUnknown} {
			if seen[o] == 0 {
				t.Errorf("seed %d: no event was ever %s", seed, o)
			}
		}
	}
}

func TestSameSeedSameFaults(t *testing.T) {
	run := func() (outcomes []broker.Outcome) {
		b := newFaulty(t, membroker.Faults{Seed: 7, Throttle: 0.3, UnknownLost: 0.3})
		results, err := b.Publish(context.Background(), "s", events("x", 200))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			outcomes = append(outcomes, r.Outcome)
		}
		return outcomes
	}
	if a, b := fmt.Sprint(run()), fmt.Sprint(run()); a != b {
		t.Error("one seed gave two plans")
	}
}

// In virtual time: a crash ends what waits, a delayed publish answers Unknown,
// and what was stored is there for the next subscription.
func TestCrashEndsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFaulty(t, membroker.Faults{Delay: 1, MaxDelay: time.Hour})
		sub, err := b.Subscribe(context.Background(), broker.SubscribeSpec{Stream: "s"})
		if err != nil {
			t.Fatal(err)
		}
		published, received := make(chan []broker.Result, 1), make(chan error, 1)
		go func() {
			r, _ := b.Publish(context.Background(), "s", events("x", 2))
			published <- r
		}()
		go func() {
			_, err := sub.Receive(context.Background(), 1)
			received <- err
		}()
		synctest.Wait()
		b.Crash()
		if r := <-published; r[0].Outcome != broker.OutcomeUnknown {
			t.Errorf("publish: %s", r[0].Outcome)
		}
		if err := <-received; !errors.Is(err, broker.ErrClosed) {
			t.Errorf("receive: %v", err)
		}
		if r, err := b.Publish(context.Background(), "s", events("x", 2)); err != nil || r[0].Outcome != broker.OutcomeStored {
			t.Errorf("publish after the crash: %v, %v", r, err)
		}
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestLostSettlementsAreAnError(t *testing.T) {
	b := newFaulty(t, membroker.Faults{LoseSettle: 1})
	defer func() { _ = b.Close(context.Background()) }()
	if _, err := b.Publish(context.Background(), "s", events("x", 1)); err != nil {
		t.Fatal(err)
	}
	sub, err := b.Subscribe(context.Background(), broker.SubscribeSpec{Stream: "s"})
	if err != nil {
		t.Fatal(err)
	}
	ds, err := sub.Receive(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	err = sub.Settle(context.Background(), []broker.Settlement{{Position: ds[0].Position, Act: broker.Ack}})
	if headgate.CodeOf(err) != headgate.CodeUnavailable {
		t.Errorf("settle: %v", err)
	}
}

// Close waits for publishes in flight, and gives up on them when told to.
func TestCloseDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFaulty(t, membroker.Faults{Delay: 1, MaxDelay: time.Hour})
		published := make(chan []broker.Result, 1)
		go func() {
			r, _ := b.Publish(context.Background(), "s", events("x", 1))
			published <- r
		}()
		synctest.Wait()
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if r := <-published; r[0].Outcome != broker.OutcomeStored {
			t.Errorf("a publish in flight is %s after a patient close", r[0].Outcome)
		}

		b = newFaulty(t, membroker.Faults{Seed: 1, Delay: 1, MaxDelay: time.Hour})
		go func() {
			r, _ := b.Publish(context.Background(), "s", events("x", 1))
			published <- r
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		if err := b.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("impatient close: %v", err)
		}
		if r := <-published; r[0].Outcome != broker.OutcomeUnknown {
			t.Errorf("a publish in flight is %s after an impatient close", r[0].Outcome)
		}
	})
}

// TestFaultsKeepKeysInOrder: whatever is not stored, or may not be, holds back
// what is behind it of its key.
func TestFaultsKeepKeysInOrder(t *testing.T) {
	for seed := range uint64(20) {
		b := membroker.New(membroker.Config{Faults: &membroker.Faults{Seed: seed, Throttle: 0.05, UnknownStored: 0.05, UnknownLost: 0.05}})
		if _, err := b.Ensure(context.Background(), []broker.StreamSpec{{Name: "s", Partitions: 2, MaxBytes: 1 << 20}}); err != nil {
			t.Fatal(err)
		}
		brokertest.Order(t, b, "s", 2, 200, seed)
	}
}
