package node

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// answering is a store that is asked for its identity alone.
type answering struct {
	store.Store
	id    atomic.Value // string
	err   atomic.Pointer[headgate.Error]
	hangs atomic.Bool
	asked atomic.Int32
}

func (a *answering) View(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	a.asked.Add(1)
	time.Sleep(time.Millisecond) // of the virtual clock
	if a.hangs.Load() {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if err := a.err.Load(); err != nil {
		return err
	}
	return fn(ctx, &store.Tx{Settings: oneSetting(a.id.Load().(string))})
}

// oneSetting are settings that all have one value.
type oneSetting string

func (o oneSetting) Get(context.Context, string) ([]byte, error) { return []byte(o), nil }

func (o oneSetting) Put(context.Context, string, []byte) error { return errors.ErrUnsupported }

func (o oneSetting) Delete(context.Context, string) error { return errors.ErrUnsupported }

func (o oneSetting) List(context.Context, string) (map[string][]byte, error) {
	return nil, errors.ErrUnsupported
}

// TestReadinessLooksAtTheStore: a store that is away, hangs or is another one
// makes the node unready, at the price of one question a second while somebody
// asks, and of none while nobody does.
func TestReadinessLooksAtTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := strings.Repeat("a", 32)
		a := &answering{}
		a.id.Store(id)
		var look storeLook
		defer look.wait()
		probe := func() (unready int) { // a hundred at once
			var all sync.WaitGroup
			var bad atomic.Int32
			for range 100 {
				all.Go(func() {
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					err := look.check(ctx, a, id)
					if time.Since(began) > time.Second {
						t.Errorf("a probe took %v", time.Since(began))
					}
					if e := headgate.AsError(err); err != nil && (e == nil || e.Info().Status != 503) {
						t.Errorf("a probe is answered %v", err)
					}
					if err != nil {
						bad.Add(1)
					}
				})
			}
			all.Wait()
			return int(bad.Load())
		}
		expect := func(what string, unready, asked int) {
			t.Helper()
			before := a.asked.Load()
			if got := probe(); got != unready {
				t.Errorf("%s: %d of 100 probes say unready, want %d", what, got, unready)
			}
			if got := int(a.asked.Load() - before); got != asked {
				t.Errorf("%s: the store was asked %d times, want %d", what, got, asked)
			}
		}
		expect("at first", 0, 1)
		expect("at once again", 0, 0)
		a.err.Store(&headgate.Error{Code: headgate.CodeInternal, Detail: "damaged"})
		expect("before the answer is old", 0, 0)
		time.Sleep(lookLasts)
		expect("with a damaged store", 100, 1)
		a.err.Store(nil)
		time.Sleep(lookLasts)
		a.hangs.Store(true)
		expect("with a store that hangs", 100, 1)
		a.hangs.Store(false)
		time.Sleep(lookLasts)
		a.id.Store(strings.Repeat("b", 32))
		expect("with another store", 100, 1)
		a.id.Store(id)
		before := a.asked.Load()
		time.Sleep(time.Hour)
		if a.asked.Load() != before {
			t.Error("the store is asked although nobody probes")
		}
		expect("again with the store", 0, 1)
	})
}

// TestProbeThatLeavesSpoilsNothing: what one probe began is there for the next.
func TestProbeThatLeavesSpoilsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := strings.Repeat("a", 32)
		a := &answering{}
		a.id.Store(id)
		var look storeLook
		defer look.wait()
		gone, leave := context.WithCancel(t.Context())
		leave()
		if err := look.check(gone, a, id); err == nil {
			t.Error("a probe that left is told that all is well")
		}
		if err := look.check(t.Context(), a, id); err != nil || a.asked.Load() != 1 {
			t.Errorf("the next probe: %v, after %d questions", err, a.asked.Load())
		}
	})
}
