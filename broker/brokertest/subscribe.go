package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

func testSubscribe(t *testing.T, h Harness) {
	cases(t, h, map[string]func(*testing.T, *bench){
		"all in order":                        receiveAll,
		"limit must be positive":              receiveLimit,
		"waits for what comes":                receiveWaits,
		"context ends the wait":               receiveContext,
		"starts where told":                   receiveFrom,
		"follows the end":                     receiveLive,
		"two subscriptions see everything":    receiveTwice,
		"ack and drop are final":              settleFinal,
		"retry comes back later":              settleRetry,
		"unknown positions are ignored":       settleUnknown,
		"a new subscription starts over":      settleNothing,
		"the buffer bounds what is held":      bufferBound,
		"a thousand retries block nobody":     retriesFlow,
		"close ends receive":                  subscriptionClose,
		"closing the driver ends all":         driverClose,
		"receive and settle at the same time": receiveConcurrently,
	})
}

func receiveAll(t *testing.T, b *bench) {
	b.open(3)
	const n = 3000
	b.store(eventsOf(n/2, "a", "")...)
	for i := range n / 2 {
		b.store(event(fmt.Sprintf("b-%d", i), fmt.Sprint(i%20)))
		if i == 100 { // the rest as one batch keeps the test short on slow disks
			b.store(eventsOf(n/2-101, "c", "k")...)
			break
		}
	}
	r := b.subscribe(broker.SubscribeSpec{})
	next := map[uint32]uint64{}
	for got := 0; got < n; {
		ds := r.receive(min(64, n-got))
		for _, d := range ds {
			if d.Position.Offset != next[d.Position.Partition] {
				t.Fatalf("got %s, want offset %d", d.Position, next[d.Position.Partition])
			}
			if d.Attempt > 1 || d.Time.IsZero() || d.Event == nil {
				t.Fatalf("delivery %+v", d)
			}
			next[d.Position.Partition]++
		}
		r.settle(broker.Ack, 0, ds...)
		got += len(ds)
	}
	r.silent()
}

func receiveLimit(t *testing.T, b *bench) {
	b.open(1)
	b.store(event("x", ""))
	r := b.subscribe(broker.SubscribeSpec{})
	for _, limit := range []int{0, -1} {
		_, err := r.sub.Receive(b.ctx(), limit)
		wantCode(t, "receive", err, headgate.CodeInvalidArgument)
	}
}

func receiveWaits(t *testing.T, b *bench) {
	b.open(2)
	r := b.subscribe(broker.SubscribeSpec{})
	got := make(chan broker.Delivery, 1)
	go func() {
		ds, err := r.sub.Receive(b.ctx(), 10)
		if err != nil || len(ds) != 1 {
			t.Errorf("receive: %d deliveries, %v", len(ds), err)
			close(got)
			return
		}
		got <- ds[0]
	}()
	at := b.store(event("late", "k"))
	if d, ok := <-got; ok && (d.Event.ID != "late" || d.Position != at[0]) {
		t.Errorf("got %s at %s", d.Event.ID, d.Position)
	}
}

func receiveContext(t *testing.T, b *bench) {
	b.open(1)
	r := b.subscribe(broker.SubscribeSpec{})
	ctx, cancel := context.WithTimeout(context.Background(), quiet)
	defer cancel()
	if _, err := r.sub.Receive(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("receive: %v", err)
	}
	b.store(event("x", ""))
	r.receive(1)
}

func receiveFrom(t *testing.T, b *bench) {
	b.open(2)
	key := keyFor(0, 2)
	b.store(eventsOf(700, "a", key)...)
	for i := range 20 {
		b.store(event(fmt.Sprintf("b-%d", i), key))
	}
	b.store(event("other", keyFor(1, 2)))
	for _, from := range []uint64{1, 699, 700, 711, 719} {
		r := b.subscribe(broker.SubscribeSpec{From: map[uint32]uint64{0: from, 1: 1}})
		ds := r.receive(int(720 - from))
		if ds[0].Position.Offset != from || ds[0].Position.Partition != 0 {
			t.Errorf("from %d: first delivery at %s", from, ds[0].Position)
		}
		r.silent()
		_ = r.sub.Close()
	}
	r := b.subscribe(broker.SubscribeSpec{From: map[uint32]uint64{0: 720, 1: 1}})
	r.silent()
	at := b.store(event("next", key))
	if d := r.receive(1)[0]; d.Position != at[0] {
		t.Errorf("first delivery at %s, want %s", d.Position, at[0])
	}
	// An offset that is not written yet waits for it.
	r = b.subscribe(broker.SubscribeSpec{From: map[uint32]uint64{0: 725, 1: 1}})
	b.store(eventsOf(6, "future", key)...)
	if d := r.receive(1)[0]; d.Position.Offset != 725 {
		t.Errorf("first delivery at %s, want offset 725", d.Position)
	}
}

func receiveLive(t *testing.T, b *bench) {
	b.open(2)
	r := b.subscribe(broker.SubscribeSpec{})
	for i := range 200 {
		at := b.store(event(fmt.Sprint(i), fmt.Sprint(i%7)))
		d := r.receive(1)[0]
		if d.Position != at[0] || d.Event.ID != fmt.Sprint(i) {
			t.Fatalf("stored at %s, received %s at %s", at[0], d.Event.ID, d.Position)
		}
		r.settle(broker.Ack, 0, d)
	}
}

func receiveTwice(t *testing.T, b *bench) {
	b.open(2)
	b.store(eventsOf(100, "x", "")...)
	one, two := b.subscribe(broker.SubscribeSpec{}), b.subscribe(broker.SubscribeSpec{})
	one.settle(broker.Ack, 0, one.receive(100)...)
	two.settle(broker.Ack, 0, two.receive(100)...)
	one.silent()
	two.silent()
}

func settleFinal(t *testing.T, b *bench) {
	b.open(1)
	b.store(eventsOf(4, "x", "k")...)
	r := b.subscribe(broker.SubscribeSpec{})
	ds := r.receive(4)
	r.settle(broker.Ack, 0, ds[2], ds[0])
	r.settle(broker.Drop, 0, ds[1], ds[3])
	r.settle(broker.Retry, 0, ds...) // settled already: nothing happens
	r.silent()
}

func settleRetry(t *testing.T, b *bench) {
	b.open(1)
	b.store(eventsOf(3, "x", "k")...)
	r := b.subscribe(broker.SubscribeSpec{})
	ds := r.receive(3)
	const delay = 150 * time.Millisecond
	start := time.Now()
	r.settle(broker.Retry, delay, ds[1])
	r.settle(broker.Ack, 0, ds[0], ds[2])
	again := r.receive(1)[0]
	if waited := time.Since(start); waited < delay {
		t.Errorf("handed out again after %v, want at least %v", waited, delay)
	}
	if again.Position != ds[1].Position || again.Event.ID != ds[1].Event.ID {
		t.Errorf("%s at %s came back, want %s", again.Event.ID, again.Position, ds[1].Position)
	}
	if again.Attempt != 0 && again.Attempt != 2 {
		t.Errorf("attempt %d, want 2", again.Attempt)
	}
	r.settle(broker.Retry, 0, again)
	third := r.receive(1)[0]
	if third.Attempt != 0 && third.Attempt != 3 {
		t.Errorf("attempt %d, want 3", third.Attempt)
	}
	r.settle(broker.Ack, 0, third)
	r.silent()
}

func settleUnknown(t *testing.T, b *bench) {
	b.open(1)
	b.store(event("x", ""))
	r := b.subscribe(broker.SubscribeSpec{})
	var odd []broker.Settlement
	for _, at := range []headgate.Position{{Offset: 0}, {Offset: 99}, {Partition: 7}, {Partition: 1<<32 - 1, Offset: 1<<64 - 1}} {
		odd = append(odd, broker.Settlement{Position: at, Act: broker.Ack})
	}
	// Offset 0 was not handed out yet, so this must not settle it either.
	if err := r.sub.Settle(b.ctx(), odd); err != nil {
		t.Fatal(err)
	}
	r.receive(1)
}

func settleNothing(t *testing.T, b *bench) {
	b.open(1)
	b.store(eventsOf(10, "x", "k")...)
	r := b.subscribe(broker.SubscribeSpec{})
	r.settle(broker.Ack, 0, r.receive(10)[:5]...)
	_ = r.sub.Close()
	// Progress is the router's: a new reader names where to start.
	r = b.subscribe(broker.SubscribeSpec{From: map[uint32]uint64{0: 5}})
	for i, d := range r.receive(5) {
		if d.Position.Offset != uint64(5+i) {
			t.Errorf("delivery %d at %s", i, d.Position)
		}
	}
}

func bufferBound(t *testing.T, b *bench) {
	b.open(1)
	b.store(eventsOf(200, "x", "k")...)
	r := b.subscribe(broker.SubscribeSpec{Buffer: 16})
	held := r.receive(16)
	r.silent()
	r.settle(broker.Ack, 0, held[3], held[4])
	held = append(held, r.receive(2)...)
	r.silent()
	r.settle(broker.Ack, 0, held...)
	for got := 18; got < 200; {
		ds := r.receive(min(16, 200-got))
		got += len(ds)
		r.settle(broker.Ack, 0, ds...)
	}
	r.silent()
}

func retriesFlow(t *testing.T, b *bench) {
	b.open(1)
	b.store(eventsOf(1001, "x", "k")...)
	r := b.subscribe(broker.SubscribeSpec{})
	r.settle(broker.Retry, time.Hour, r.receive(1000)...)
	if d := r.receive(1)[0]; d.Position.Offset != 1000 {
		t.Errorf("got %s, want offset 1000", d.Position)
	}
}

func subscriptionClose(t *testing.T, b *bench) {
	b.open(1)
	r := b.subscribe(broker.SubscribeSpec{})
	waiting := make(chan error, 1)
	go func() {
		_, err := r.sub.Receive(b.ctx(), 1)
		waiting <- err
	}()
	if err := r.sub.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := <-waiting; !errors.Is(err, broker.ErrClosed) {
		t.Errorf("receive during close: %v", err)
	}
	if _, err := r.sub.Receive(b.ctx(), 1); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("receive after close: %v", err)
	}
	if err := r.sub.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func driverClose(t *testing.T, b *bench) {
	b.open(2)
	b.store(eventsOf(5, "x", "")...)
	r := b.subscribe(broker.SubscribeSpec{})
	r.receive(5)
	waiting := make(chan error, 1)
	go func() {
		_, err := r.sub.Receive(b.ctx(), 1)
		waiting <- err
	}()
	b.close()
	if err := <-waiting; !errors.Is(err, broker.ErrClosed) {
		t.Errorf("receive during close: %v", err)
	}
}

func receiveConcurrently(t *testing.T, b *bench) {
	b.open(3)
	const n = 2000
	r := b.subscribe(broker.SubscribeSpec{Buffer: 100})
	var (
		mu   sync.Mutex
		seen = map[string]int{}
		wg   sync.WaitGroup
	)
	ctx, cancel := context.WithCancel(b.ctx())
	defer cancel()
	for w := range 4 {
		wg.Go(func() {
			for {
				ds, err := r.sub.Receive(ctx, 1+w*10)
				if err != nil {
					return
				}
				var ss []broker.Settlement
				mu.Lock()
				for _, d := range ds {
					seen[d.Event.ID]++
					act := broker.Ack
					if seen[d.Event.ID] == 1 && d.Position.Offset%10 == 0 {
						act = broker.Retry
					}
					ss = append(ss, broker.Settlement{Position: d.Position, Act: act, After: time.Millisecond})
				}
				done := len(seen) == n
				mu.Unlock()
				if err := r.sub.Settle(ctx, ss); err != nil {
					return
				}
				if done {
					cancel()
				}
			}
		})
	}
	for i := range 20 {
		b.store(eventsOf(n/20, fmt.Sprint(i), "")...)
	}
	wg.Wait()
	if len(seen) != n {
		t.Errorf("%d of %d events received", len(seen), n)
	}
	for id, times := range seen {
		if times > 2 {
			t.Errorf("%s was handed out %d times", id, times)
		}
	}
}

// keyFor returns a key of the partition.
func keyFor(partition uint32, partitions int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprintf("key-%d", i); broker.PartitionOf(key, partitions) == partition {
			return key
		}
	}
}
