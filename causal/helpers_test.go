package causal

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// memStore keeps settings and gas in memory, with faults on demand. It holds to
// the port's contract: Update is serial, and atomic but for what a fault says.
type memStore struct {
	store.Store // anything else is not used and would panic

	mu       sync.Mutex
	settings map[string][]byte
	gas      map[string]store.GasAccount

	updates atomic.Int64
	// before refuses a transaction; after makes its answer an error although
	// it was committed.
	before, after func() error
	// gate, when set, is called in every Update with no lock held.
	gate func(ctx context.Context) error
}

func newMemStore() *memStore {
	return &memStore{settings: map[string][]byte{}, gas: map[string]store.GasAccount{}}
}

func (s *memStore) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	s.updates.Add(1)
	if s.gate != nil {
		if err := s.gate(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.before != nil {
		if err := s.before(); err != nil {
			return err
		}
	}
	settings, gas := maps.Clone(s.settings), maps.Clone(s.gas)
	if err := fn(ctx, &store.Tx{Settings: memSettings{s}, Gas: memGas{s}}); err != nil {
		s.settings, s.gas = settings, gas
		return err
	}
	if s.after != nil {
		return s.after()
	}
	return nil
}

func (s *memStore) View(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fn(ctx, &store.Tx{Settings: memSettings{s}, Gas: memGas{s}})
}

// sizes counts the settings and the accounts.
func (s *memStore) sizes() (settings, accounts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.settings), len(s.gas)
}

type memSettings struct{ s *memStore }

func (m memSettings) Get(_ context.Context, k string) ([]byte, error) {
	if v, ok := m.s.settings[k]; ok {
		return v, nil
	}
	return nil, headgate.NewError(headgate.CodeNotFound, "no setting")
}

func (m memSettings) Put(_ context.Context, k string, v []byte) error {
	m.s.settings[k] = v
	return nil
}

func (m memSettings) Delete(_ context.Context, k string) error {
	delete(m.s.settings, k)
	return nil
}

func (m memSettings) List(_ context.Context, prefix string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for k, v := range m.s.settings {
		if strings.HasPrefix(k, prefix) {
			out[k] = v
		}
	}
	return out, nil
}

type memGas struct{ s *memStore }

func (m memGas) Debit(_ context.Context, root string, total, granted, want int, now time.Time) (int, error) {
	a, ok := m.s.gas[root]
	if !ok {
		a = store.GasAccount{Root: root, Total: total, Debited: granted}
	}
	got := min(want, a.Total-a.Debited)
	a.Debited += got
	a.Updated = now
	m.s.gas[root] = a
	return got, nil
}

func (m memGas) Get(_ context.Context, root string) (store.GasAccount, error) {
	if a, ok := m.s.gas[root]; ok {
		return a, nil
	}
	return store.GasAccount{}, headgate.NewError(headgate.CodeNotFound, "no account")
}

func (m memGas) Raise(context.Context, string, int, int, int, time.Time) (store.GasAccount, error) {
	return store.GasAccount{}, errors.New("not used")
}

func (m memGas) Prune(_ context.Context, before time.Time, limit int) (int, error) {
	n := 0
	for k, a := range m.s.gas {
		if n < limit && a.Updated.Before(before) {
			delete(m.s.gas, k)
			n++
		}
	}
	return n, nil
}

// clock is a time that only the test moves.
type clock struct{ ns atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.ns.Store(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) now() time.Time          { return time.Unix(0, c.ns.Load()) }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

func open(t testing.TB, cfg Config) *Engine {
	t.Helper()
	e, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return e
}

var (
	alice = &headgate.Principal{Name: "alice", Kind: headgate.KindAgent}
	bob   = &headgate.Principal{Name: "bob", Kind: headgate.KindAgent}
	desk  = &headgate.Principal{Name: "desk", Kind: headgate.KindSystem, Roots: headgate.RootRight{Allowed: true, Rate: 1e6, Burst: 1e6}}
)

// admit reserves, commits and returns the event as it would be stored.
func admit(t testing.TB, e *Engine, r Request) *headgate.Event {
	t.Helper()
	ev, err := tryAdmit(e, r)
	if err != nil {
		t.Fatalf("Reserve %s: %v", r.EventID, err)
	}
	return ev
}

func tryAdmit(e *Engine, r Request) (*headgate.Event, error) {
	res, err := e.Reserve(context.Background(), r)
	if err != nil {
		return nil, err
	}
	res.Commit()
	return &headgate.Event{ID: r.EventID, Type: r.Type, Header: res.Header}, nil
}

var deliveryCount atomic.Uint64

// cause is a fresh delivery of the event to the principal.
func cause(e *Engine, ev *headgate.Event, to *headgate.Principal) *Cause {
	return e.CauseOf(delivered(ev, to))
}

func delivered(ev *headgate.Event, to *headgate.Principal) Delivered {
	return Delivered{
		Event: ev, Stream: "events", Position: headgate.Position{Partition: 1, Offset: deliveryCount.Add(1)},
		Subscription: "sub-" + to.Name, Principal: to.Name, Attempt: 1,
	}
}

func wantCode(t testing.TB, err error, want headgate.Code) {
	t.Helper()
	if got := headgate.CodeOf(err); got != want {
		t.Fatalf("code %q, want %q (%v)", got, want, err)
	}
}
