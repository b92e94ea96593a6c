package storetest

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// exit ends the goroutine as testing.T.FailNow does.
func exit() { runtime.Goexit() }

func lifecycle(t *testing.T, d Driver) {
	t.Run("AfterClose", func(t *testing.T) { afterClose(t, d) })
	t.Run("CloseDrains", func(t *testing.T) { closeDrains(t, d) })
	t.Run("Reopen", func(t *testing.T) {
		if d.Volatile {
			t.Skip("the driver keeps nothing")
		}
		reopen(t, d)
	})
	t.Run("Durability", func(t *testing.T) {
		if s := open(t, d, t.TempDir()); d.Volatile && s.Info().Durable {
			t.Error("a store that keeps nothing calls itself durable")
		}
	})
}

func afterClose(t *testing.T, d Driver) {
	s := d.Open(t, t.TempDir())
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	nothing := func(context.Context, *store.Tx) error { t.Error("a function ran after Close"); return nil }
	code(t, "Update", s.Update(t.Context(), nothing), headgate.CodeDraining)
	code(t, "View", s.View(t.Context(), nothing), headgate.CodeDraining)
	if s.Info().Driver == "" {
		t.Error("Info is empty after Close")
	}
}

// closeDrains closes while many calls are on their way: each either is
// refused and did nothing, or succeeded before Close returned.
func closeDrains(t *testing.T, d Driver) {
	dir := t.TempDir()
	s := d.Open(t, dir)
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := 0
	first := make(chan struct{})
	var once sync.Once
	for range 16 {
		wg.Go(func() {
			for {
				err := s.Update(t.Context(), increment)
				if err == nil {
					mu.Lock()
					done++
					mu.Unlock()
					once.Do(func() { close(first) })
					continue
				}
				code(t, "Update while closing", err, headgate.CodeDraining)
				return
			}
		})
	}
	<-first
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	wg.Wait()
	if d.Volatile {
		return
	}
	equal(t, "counter after Close", count(t, open(t, d, dir)), uint64(done))
}

func reopen(t *testing.T, d Driver) {
	dir := t.TempDir()
	for round := range uint64(3) {
		s := d.Open(t, dir)
		equal(t, "counter", count(t, s), round)
		rows := []store.OutboxRow{{Stream: "s", Event: []byte("e")}}
		update(t, s, increment)
		update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Outbox.Append(ctx, rows) })
		if want := int64(round); rows[0].Seq <= want {
			t.Errorf("round %d: sequence number %d was given before", round, rows[0].Seq)
		}
		update(t, s, func(ctx context.Context, tx *store.Tx) error { return tx.Outbox.Delete(ctx, []int64{rows[0].Seq}) })
		if err := s.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
}
