package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/store"
)

// guess counts one unknown name as a refusal does.
func guess(g *contract.Guesses, subject, name string) {
	g.Add(&headgate.Verdict{
		Contract:   headgate.ContractRef{Subject: subject},
		Violations: []headgate.Violation{{Code: headgate.ViolationUnknownProperty, At: "/" + name}},
	})
}

// keepUntil counts while KeepGuesses runs, and returns when it ended.
func keepUntil(t *testing.T, r *Registry, g *contract.Guesses, counts func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.KeepGuesses(ctx, g, slog.New(slog.DiscardHandler)) }()
	counts()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Guessed names are in the store when a node ends, and there for the next; two
// nodes that keep to one store add up.
func TestGuessesAreKept(t *testing.T) {
	s := openStore(t)
	r := open(t, s)
	var first, second contract.Guesses
	keepUntil(t, r, &first, func() {
		guess(&first, "a.b", "x")
		guess(&first, "a.b", "x")
		guess(&first, "a.b", "y")
		guess(&first, "c.d", "z")
	})
	keepUntil(t, r, &second, func() { guess(&second, "a.b", "y") })
	var again contract.Guesses
	if err := r.LoadGuesses(t.Context(), &again); err != nil {
		t.Fatal(err)
	}
	want := []headgate.Guess{{Name: "x", Count: 2}, {Name: "y", Count: 2}}
	if got := again.Of("a.b"); !slices.Equal(got, want) || len(again.Of("c.d")) != 1 {
		t.Errorf("%+v, %+v", got, again.Of("c.d"))
	}
	// What was loaded is none of what is new.
	keepUntil(t, r, &again, func() { guess(&again, "a.b", "x") })
	var last contract.Guesses
	if err := r.LoadGuesses(t.Context(), &last); err != nil || last.Of("a.b")[0].Count != 3 {
		t.Errorf("%+v, %v", last.Of("a.b"), err)
	}
}

// However many names come, a row is bounded; one that cannot be read is begun
// anew.
func TestKeptGuessesAreBounded(t *testing.T) {
	s := openStore(t)
	r := open(t, s)
	for range 3 {
		var g contract.Guesses
		keepUntil(t, r, &g, func() {
			for i := range 200 {
				guess(&g, "a", fmt.Sprint(i, strings.Repeat("é", 200)))
				guess(&g, "a", "frequent")
			}
		})
	}
	err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		row, err := tx.Settings.Get(ctx, keyGuesses+"a")
		var list []headgate.Guess
		if err != nil || json.Unmarshal(row, &list) != nil || len(list) != 64 || len(row) > 32<<10 || list[0].Name != "frequent" || list[0].Count != 600 {
			t.Errorf("%d names in %d bytes, %v", len(list), len(row), err)
		}
		return tx.Settings.Put(ctx, keyGuesses+"a", []byte("{broken"))
	})
	if err != nil {
		t.Fatal(err)
	}
	var g contract.Guesses
	keepUntil(t, r, &g, func() { guess(&g, "a", "new") })
	var again contract.Guesses
	if err := r.LoadGuesses(t.Context(), &again); err != nil || !slices.Equal(again.Of("a"), []headgate.Guess{{Name: "new", Count: 1}}) {
		t.Errorf("%+v, %v", again.Of("a"), err)
	}
}

// countedStore counts its transactions, and fails them while it is broken.
type countedStore struct {
	store.Store
	mu      sync.Mutex
	rows    map[string][]byte
	updates int
	broken  bool
}

func (s *countedStore) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.updates++
	if s.broken {
		return errors.New("broken")
	}
	return fn(ctx, &store.Tx{Settings: countedSettings{s: s}})
}

type countedSettings struct {
	store.Settings
	s *countedStore
}

func (c countedSettings) Get(_ context.Context, key string) ([]byte, error) {
	if row, ok := c.s.rows[key]; ok {
		return row, nil
	}
	return nil, headgate.NewError(headgate.CodeNotFound, "no row")
}

func (c countedSettings) Put(_ context.Context, key string, row []byte) error {
	c.s.rows[key] = row
	return nil
}

// Counting writes nothing by itself: there is one transaction a minute at most,
// and none for a minute without guesses. What cannot be written is not lost.
func TestGuessesAreKeptRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &countedStore{rows: map[string][]byte{}}
		r := &Registry{store: s}
		var g contract.Guesses
		transactions := func() int {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.updates
		}
		keepUntil(t, r, &g, func() {
			for i := range 1000 {
				guess(&g, fmt.Sprint("s", i%100), "x")
			}
			if n := transactions(); n != 0 {
				t.Errorf("%d transactions while counting", n)
			}
			time.Sleep(10*time.Minute + time.Second) // of virtual time
			if n := transactions(); n != 1 {
				t.Errorf("%d transactions in ten minutes", n)
			}
			s.mu.Lock()
			s.broken = true
			s.mu.Unlock()
			guess(&g, "s0", "x")
			time.Sleep(2 * time.Minute)
			s.mu.Lock()
			s.broken = false
			s.mu.Unlock()
			if n := transactions(); n != 3 {
				t.Errorf("%d transactions with two that failed", n)
			}
		})
		var list []headgate.Guess
		if err := json.Unmarshal(s.rows[keyGuesses+"s0"], &list); err != nil || len(s.rows) != 100 || list[0].Count != 11 {
			t.Errorf("%d rows, %+v, %v", len(s.rows), list, err)
		}
	})
}
