package window

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
)

func stretch(partition uint32, from, n int) []broker.Stored {
	events := make([]broker.Stored, n)
	for i := range events {
		events[i] = broker.Stored{Position: headgate.Position{Partition: partition, Offset: uint64(from + i)}, Event: &headgate.Event{}}
	}
	return events
}

// A random history in virtual time: every offset is handed out in order the
// first time, never while it is open, never before its delay, never after it
// is gone, and never beyond the buffer.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			const parts, total = 3, 300
			buffer := 1 + rng.IntN(40)
			w := New(parts, buffer)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			for p := range uint32(parts) {
				sizes := rand.New(rand.NewPCG(seed, uint64(p)+10))
				go func() {
					for at := 0; at < total; {
						n := min(1+sizes.IntN(30), total-at)
						if w.Offer(ctx, stretch(p, at, n)) != nil {
							return
						}
						at += n
					}
				}()
			}
			type key = headgate.Position
			open, due, tries := map[key]bool{}, map[key]time.Time{}, map[key]int{}
			next, gone := [parts]uint64{}, 0
			for gone < parts*total {
				ds, err := w.Receive(ctx, 1+rng.IntN(20))
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range ds {
					k := d.Position
					if open[k] {
						t.Fatalf("%s is handed out while it is open", k)
					}
					if at, retried := due[k]; retried {
						if time.Now().Before(at) {
							t.Fatalf("%s came %v early", k, time.Until(at))
						}
						delete(due, k)
					} else if k.Offset != next[k.Partition] {
						t.Fatalf("%s came, want offset %d", k, next[k.Partition])
					} else {
						next[k.Partition]++
					}
					tries[k]++
					if d.Attempt != tries[k] {
						t.Fatalf("%s has attempt %d, want %d", k, d.Attempt, tries[k])
					}
					open[k] = true
				}
				held := [parts]int{}
				for k := range open {
					held[k.Partition]++
				}
				for k := range due {
					held[k.Partition]++
				}
				for p, n := range held {
					if n > buffer {
						t.Fatalf("partition %d holds %d with a buffer of %d", p, n, buffer)
					}
				}
				var ss []broker.Settlement
				for k := range open {
					if rng.IntN(4) == 0 && len(open) < buffer/2 {
						continue
					}
					s := broker.Settlement{Position: k, Act: broker.Ack}
					if rng.IntN(3) == 0 {
						s.Act, s.After = broker.Retry, time.Duration(rng.IntN(5000))*time.Millisecond
						due[k] = time.Now().Add(s.After)
					} else {
						gone++
					}
					ss = append(ss, s)
					delete(open, k)
				}
				if err := w.Settle(ss); err != nil {
					t.Fatal(err)
				}
				if err := w.Settle(ss); err != nil { // again: nothing may happen
					t.Fatal(err)
				}
				if len(ss) == 0 {
					// Whatever stays open would block the test for ever.
					for k := range open {
						ss = append(ss, broker.Settlement{Position: k, Act: broker.Drop})
						delete(open, k)
						gone++
					}
					if err := w.Settle(ss); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.Close(nil)
			synctest.Wait()
			for _, l := range w.lanes {
				if l.held != 0 || len(l.tries) != 0 {
					t.Errorf("%d held, %d attempts kept at the end", l.held, len(l.tries))
				}
			}
		})
	}
}

func TestReportsComeFirstAndOnce(t *testing.T) {
	w := New(1, 10)
	if err := w.Offer(context.Background(), stretch(0, 0, 1)); err != nil {
		t.Fatal(err)
	}
	fault := errors.New("gap")
	w.Report(fault)
	if _, err := w.Receive(context.Background(), 1); !errors.Is(err, fault) {
		t.Errorf("first receive: %v", err)
	}
	if ds, err := w.Receive(context.Background(), 1); err != nil || len(ds) != 1 {
		t.Errorf("second receive: %v, %v", ds, err)
	}
}

func TestCloseReleasesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(1, 2)
		errs := make(chan error, 2)
		go func() { errs <- w.Offer(context.Background(), stretch(0, 0, 5)) }()
		if _, err := w.Receive(context.Background(), 2); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := w.Receive(context.Background(), 1)
			errs <- err
		}()
		synctest.Wait()
		cause := errors.New("cause")
		w.Close(cause)
		w.Close(nil)
		for range 2 {
			if err := <-errs; !errors.Is(err, broker.ErrClosed) || !errors.Is(err, cause) {
				t.Errorf("error %v", err)
			}
		}
		if err := w.Settle(nil); !errors.Is(err, broker.ErrClosed) {
			t.Errorf("settle: %v", err)
		}
	})
}
