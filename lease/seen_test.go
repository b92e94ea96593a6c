package lease

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// known counts what is remembered.
func (s *seen) known() (n int64) {
	s.epochs.Range(func(any, any) bool { n++; return true })
	return n
}

// What is remembered of a resource only rises.
func TestSeenOnlyRises(t *testing.T) {
	s := seen{limit: 8}
	if _, ok := s.get("r"); ok {
		t.Error("known before it was seen")
	}
	for _, epoch := range []int64{5, 3, 5, 4} {
		s.raise("r", epoch)
		if have, ok := s.get("r"); !ok || have != 5 {
			t.Errorf("after %d: %d, %v", epoch, have, ok)
		}
	}
	s.raise("r", 6)
	if have, _ := s.get("r"); have != 6 {
		t.Errorf("after 6: %d", have)
	}
}

// What one raised is never lost to another that raises at the same time.
func TestSeenRisesUnderContention(t *testing.T) {
	const rounds = 500_000
	s := seen{limit: 8}
	var all sync.WaitGroup
	var lost atomic.Int64
	for i := range int64(2) {
		all.Go(func() {
			for r := range int64(rounds) {
				epoch := 2*r + i
				s.raise("r", epoch)
				if have, _ := s.get("r"); have < epoch {
					lost.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := lost.Load(); n > 0 {
		t.Errorf("%d of %d epochs were lost", n, 2*rounds)
	}
}

// The memory is bounded, and gives up what it knows only to make room: not for
// a resource that it knows, and not again for the next one.
func TestSeenIsBounded(t *testing.T) {
	const limit = 4
	s := seen{limit: limit}
	know := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if _, ok := s.get(name); !ok {
				t.Errorf("%s was forgotten although there was room", name)
			}
		}
	}
	for _, name := range []string{"a", "b", "c", "d", "a", "b", "a", "c", "d"} {
		s.raise(name, 1)
	}
	know("a", "b", "c", "d")
	s.raise("e", 1)
	know("e")
	s.raise("f", 1)
	s.raise("g", 1)
	know("e", "f", "g")
	for i := range 1000 {
		s.raise(fmt.Sprint(i), int64(i)+1)
		if n := s.known(); n > limit {
			t.Fatalf("%d resources are remembered, the limit is %d", n, limit)
		}
		if have, ok := s.get(fmt.Sprint(i)); !ok || have != int64(i)+1 {
			t.Fatalf("what was seen last: %d, %v", have, ok)
		}
	}
}

// A node that forgot what it saw still refuses what was superseded, by asking
// the store.
func TestForgettingRefusesNothingLess(t *testing.T) {
	st := memory(t)
	s, err := Open(t.Context(), Config{Store: st, Superseded: 2})
	if err != nil {
		t.Fatal(err)
	}
	stale := map[string]string{}
	for i := range 8 {
		resource := fmt.Sprint("r/", i)
		g, err := s.Acquire(t.Context(), worker("a"), Request{Resources: []string{resource}})
		if err != nil {
			t.Fatal(err)
		}
		stale[resource] = g[0].Token
		if err := s.Release(t.Context(), worker("a"), resource, g[0].Token); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.seen.known(); n > 2 {
		t.Errorf("%d resources are remembered", n)
	}
	for resource, token := range stale {
		want(t, resource, write(t.Context(), s, st, token), "stale_fence")
		_, _, err := s.Verify(t.Context(), token, "")
		want(t, "verify "+resource, err, "stale_fence")
		_, err = s.Renew(t.Context(), worker("a"), resource, token, 0)
		want(t, "renew "+resource, err, "lease_lost")
	}
}
