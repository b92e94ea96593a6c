package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

var transactionCases = map[string]func(*testing.T, store.Store){
	"ConcurrentIncrements":      concurrentIncrements,
	"FailureTakesItsOwnWrites":  failureTakesItsOwnWrites,
	"FailingNeighbours":         failingNeighbours,
	"Panic":                     panicking,
	"EndedGoroutine":            endedGoroutine,
	"ErrorComesBackAsIs":        errorComesBackAsIs,
	"ReadsItsOwnWrites":         readsItsOwnWrites,
	"CanceledBeforeItBegins":    canceledBeforeItBegins,
	"CanceledAfterItBegan":      canceledAfterItBegan,
	"ViewIsASnapshot":           viewIsASnapshot,
	"ViewSeesWhatWasAnswered":   viewSeesWhatWasAnswered,
	"ViewDoesNotWaitForWriters": viewDoesNotWaitForWriters,
	"ViewCannotWrite":           viewCannotWrite,
	"ViewPanic":                 viewPanic,
	"TxDiesWithItsFunction":     txDiesWithItsFunction,
	"EffectsOnlyThroughTx":      effectsOnlyThroughTx,
	"Info":                      info,
}

func number(ctx context.Context, tx *store.Tx, key string) (uint64, error) {
	b, err := tx.Settings.Get(ctx, key)
	if headgate.CodeOf(err) == headgate.CodeNotFound {
		return 0, nil
	}
	if err != nil || len(b) != 8 {
		return 0, errors.Join(err, fmt.Errorf("%s holds %d bytes", key, len(b)))
	}
	return binary.BigEndian.Uint64(b), nil
}

func putNumber(ctx context.Context, tx *store.Tx, key string, n uint64) error {
	return tx.Settings.Put(ctx, key, binary.BigEndian.AppendUint64(nil, n))
}

func increment(ctx context.Context, tx *store.Tx) error {
	n, err := number(ctx, tx, "n")
	if err != nil {
		return err
	}
	return putNumber(ctx, tx, "n", n+1)
}

func count(t testing.TB, s store.Store) uint64 {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx *store.Tx) (uint64, error) { return number(ctx, tx, "n") })
}

func concurrentIncrements(t *testing.T, s store.Store) {
	const workers, each = 16, 50
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				if err := s.Update(t.Context(), increment); err != nil {
					t.Errorf("Update: %v", err)
				}
			}
		})
	}
	wg.Wait()
	equal(t, "counter", count(t, s), uint64(workers*each))
}

var errWanted = errors.New("wanted")

func failureTakesItsOwnWrites(t *testing.T, s store.Store) {
	update(t, s, increment)
	err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		rows := []store.OutboxRow{{Stream: "s", Event: []byte("e")}}
		return errors.Join(increment(ctx, tx), tx.Outbox.Append(ctx, rows), errWanted)
	})
	if !errors.Is(err, errWanted) {
		t.Errorf("Update: %v", err)
	}
	equal(t, "counter", count(t, s), uint64(1))
	equal(t, "outbox", read(t, s, func(ctx context.Context, tx *store.Tx) (int, error) { return tx.Outbox.Count(ctx) }), 0)
}

// crowd runs n functions that are all ready while the writer is busy, so that
// a driver that groups puts them into one group.
func crowd(t *testing.T, s store.Store, n int, fn func(i int, ctx context.Context, tx *store.Tx) error) []error {
	t.Helper()
	busy, free := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		enter := sync.OnceFunc(func() { close(busy) })
		if err := s.Update(t.Context(), func(context.Context, *store.Tx) error { enter(); <-free; return nil }); err != nil {
			t.Errorf("blocking Update: %v", err)
		}
	})
	<-busy
	errs := make([]error, n)
	var started sync.WaitGroup
	for i := range n {
		started.Add(1)
		wg.Go(func() {
			started.Done()
			errs[i] = s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error { return fn(i, ctx, tx) })
		})
	}
	started.Wait()
	close(free)
	wg.Wait()
	return errs
}

func failingNeighbours(t *testing.T, s store.Store) {
	const n = 60
	errs := crowd(t, s, n, func(i int, ctx context.Context, tx *store.Tx) error {
		if err := errors.Join(increment(ctx, tx), putNumber(ctx, tx, fmt.Sprint("own", i), 1)); err != nil {
			return err
		}
		switch i % 3 {
		case 1:
			return errWanted
		case 2:
			panic(fmt.Sprint("wanted ", i))
		}
		return nil
	})
	view(t, s, func(ctx context.Context, tx *store.Tx) error {
		for i, err := range errs {
			own, gerr := number(ctx, tx, fmt.Sprint("own", i))
			if gerr != nil {
				return gerr
			}
			if (err == nil) != (i%3 == 0) || (own == 1) != (i%3 == 0) {
				t.Errorf("function %d: error %v, wrote %d", i, err, own)
			}
		}
		return nil
	})
	equal(t, "counter", count(t, s), uint64(n/3))
}

func panicking(t *testing.T, s store.Store) {
	err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		if err := increment(ctx, tx); err != nil {
			return err
		}
		panic("wanted")
	})
	code(t, "panic", err, headgate.CodeInternal)
	equal(t, "outcome", headgate.AsError(err).Info().Outcome, headgate.NotApplied)
	update(t, s, increment)
	equal(t, "counter", count(t, s), uint64(1))
}

// endedGoroutine: t.FailNow within a function ends the goroutine that runs it.
// No other call may hang because of that.
func endedGoroutine(t *testing.T, s store.Store) {
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			if err := increment(ctx, tx); err != nil {
				return err
			}
			exit()
			return nil
		})
	})
	wg.Wait()
	update(t, s, increment)
	equal(t, "counter", count(t, s), uint64(1))
}

func errorComesBackAsIs(t *testing.T, s store.Store) {
	mine := headgate.NewError(headgate.CodeLoop, "mine")
	if err := s.Update(t.Context(), func(context.Context, *store.Tx) error { return mine }); err != error(mine) {
		t.Errorf("Update: %v", err)
	}
	if err := s.View(t.Context(), func(context.Context, *store.Tx) error { return mine }); err != error(mine) {
		t.Errorf("View: %v", err)
	}
}

func readsItsOwnWrites(t *testing.T, s store.Store) {
	update(t, s, func(ctx context.Context, tx *store.Tx) error {
		for want := range uint64(5) {
			if got, err := number(ctx, tx, "n"); err != nil || got != want {
				t.Errorf("read %d, %v; want %d", got, err, want)
			}
			if err := increment(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
}

func canceledBeforeItBegins(t *testing.T, s store.Store) {
	busy, free := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	enter := sync.OnceFunc(func() { close(busy) })
	wg.Go(func() {
		if err := s.Update(t.Context(), func(context.Context, *store.Tx) error { enter(); <-free; return nil }); err != nil {
			t.Errorf("blocking Update: %v", err)
		}
	})
	<-busy
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	ran := false
	go func() {
		result <- s.Update(ctx, func(context.Context, *store.Tx) error { ran = true; return nil })
	}()
	cancel()
	err := <-result // while the writer is still busy
	code(t, "canceled", err, headgate.CodeCanceled)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v does not wrap context.Canceled", err)
	}
	equal(t, "outcome", headgate.AsError(err).Info().Outcome, headgate.NotApplied)
	close(free)
	wg.Wait()
	update(t, s, increment) // whatever was queued before has run by now
	if ran {
		t.Error("an abandoned function ran")
	}
	if err := s.Update(ctx, increment); headgate.CodeOf(err) != headgate.CodeCanceled {
		t.Errorf("Update with an ended context: %v", err)
	}
	if err := s.View(ctx, func(context.Context, *store.Tx) error { return nil }); headgate.CodeOf(err) != headgate.CodeCanceled {
		t.Errorf("View with an ended context: %v", err)
	}
	equal(t, "counter", count(t, s), uint64(1))
}

func canceledAfterItBegan(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	err := s.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		cancel()
		return increment(ctx, tx)
	})
	if err != nil {
		t.Errorf("Update: %v", err)
	}
	equal(t, "counter", count(t, s), uint64(1))
}

func viewIsASnapshot(t *testing.T, s store.Store) {
	update(t, s, increment)
	view(t, s, func(ctx context.Context, tx *store.Tx) error {
		before, err := number(ctx, tx, "n")
		if err != nil {
			return err
		}
		for range 3 { // on another connection, while this View reads
			if err := s.Update(context.WithoutCancel(ctx), increment); err != nil {
				return err
			}
		}
		after, err := number(ctx, tx, "n")
		equal(t, "counter within the View", after, before)
		return err
	})
	equal(t, "counter", count(t, s), uint64(4))
}

func viewSeesWhatWasAnswered(t *testing.T, s store.Store) {
	var wg sync.WaitGroup
	for w := range 8 {
		key := fmt.Sprint("k", w)
		wg.Go(func() {
			for i := range uint64(30) {
				if err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error { return putNumber(ctx, tx, key, i) }); err != nil {
					t.Errorf("Update: %v", err)
				}
				if err := s.View(t.Context(), func(ctx context.Context, tx *store.Tx) error {
					got, err := number(ctx, tx, key)
					if got != i {
						t.Errorf("View saw %d after %d was answered", got, i)
					}
					return err
				}); err != nil {
					t.Errorf("View: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func viewDoesNotWaitForWriters(t *testing.T, s store.Store) {
	update(t, s, increment)
	busy, free, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	enter := sync.OnceFunc(func() { close(busy) })
	go func() {
		done <- s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			if err := increment(ctx, tx); err != nil {
				return err
			}
			enter()
			<-free
			return nil
		})
	}()
	<-busy
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := s.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		n, err := number(ctx, tx, "n")
		equal(t, "counter beside an open Update", n, uint64(1))
		return err
	})
	close(free)
	if err != nil {
		t.Errorf("View: %v", err)
	}
	if err := <-done; err != nil {
		t.Errorf("Update: %v", err)
	}
}

func viewCannotWrite(t *testing.T, s store.Store) {
	err := s.View(t.Context(), increment)
	if err == nil {
		t.Error("a View wrote")
	}
	equal(t, "counter", count(t, s), uint64(0))
}

func viewPanic(t *testing.T, s store.Store) {
	for range 20 { // more often than a pool has connections
		err := s.View(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			if _, err := tx.Settings.List(ctx, ""); err != nil {
				return err
			}
			panic("wanted")
		})
		code(t, "panic", err, headgate.CodeInternal)
	}
	equal(t, "counter", count(t, s), uint64(0))
}

func txDiesWithItsFunction(t *testing.T, s store.Store) {
	var kept [2]*store.Tx
	update(t, s, func(_ context.Context, tx *store.Tx) error { kept[0] = tx; return nil })
	view(t, s, func(_ context.Context, tx *store.Tx) error { kept[1] = tx; return nil })
	for _, tx := range kept {
		if err := increment(t.Context(), tx); err == nil {
			t.Error("a Tx worked after its function had returned")
		}
	}
	equal(t, "counter", count(t, s), uint64(0))
}

// effectsOnlyThroughTx runs functions that count how often they ran. The port
// allows a driver to run them more than once; what is stored must say once.
func effectsOnlyThroughTx(t *testing.T, s store.Store) {
	var mu sync.Mutex
	runs := map[int]int{}
	errs := crowd(t, s, 40, func(i int, ctx context.Context, tx *store.Tx) error {
		mu.Lock()
		runs[i]++
		mu.Unlock()
		return increment(ctx, tx)
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("Update: %v", err)
	}
	for i := range 40 {
		if runs[i] == 0 {
			t.Errorf("function %d was answered without having run", i)
		}
	}
	equal(t, "counter", count(t, s), uint64(40))
}

func info(t *testing.T, s store.Store) {
	i := s.Info()
	if i.Driver == "" || i.Words == "" || i.Schema < 1 {
		t.Errorf("Info is incomplete: %+v", i)
	}
}
