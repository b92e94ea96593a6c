package relaytest

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlitestore"
	"github.com/headgate/headgate/topology"
)

// Rig is a node's inside without HTTP: the real parts, over a broker.
type Rig struct {
	*parts
	T testing.TB
	// Who are the principals, by the role of the database; "" is that of a
	// database without roles.
	Who map[string]*headgate.Principal
	// Mints is how far off the clock of the causal engine is, in nanoseconds.
	Mints atomic.Int64
}

// New makes a rig over a broker, with a store in memory. The owner headgate and
// writers of databases without roles are the principal orders.
func New(t testing.TB, br broker.Broker) *Rig {
	t.Helper()
	r := &Rig{T: t, Who: map[string]*headgate.Principal{"headgate": orders(), "": orders()}}
	st, err := sqlitestore.Open(context.Background(), sqlitestore.Config{Memory: true})
	Must(t, err)
	t.Cleanup(func() { _ = st.Close() })
	r.parts, err = assemble(context.Background(), st, br, func() time.Time { return time.Now().Add(time.Duration(r.Mints.Load())) })
	Must(t, err)
	t.Cleanup(func() { _ = r.Quarantine.Close(context.Background()) })
	return r
}

// Must ends the test at an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Campaign reports whether the long forms run.
func Campaign() bool { return os.Getenv("HEADGATE_CAMPAIGN") == "1" }

// Until waits until a condition that nobody signals holds.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	within := time.Minute
	if Campaign() {
		within = 20 * time.Minute
	}
	pause := 2 * time.Millisecond // asking costs a connection to the server, often
	for deadline := time.Now().Add(within); !ok(); <-time.NewTimer(pause).C {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
		pause = min(pause*5/4, 40*time.Millisecond)
	}
}

// Principal is that of a role; any other is refused for good.
func (r *Rig) Principal(role string) (*headgate.Principal, error) {
	if p := r.Who[role]; p != nil {
		return p, nil
	}
	return nil, headgate.NewError(headgate.CodeForbidden, "database role %s maps to no principal", role)
}

// Log writes to the test's own.
func (r *Rig) Log() *slog.Logger {
	return slog.New(slog.NewTextHandler(Writer{r.T}, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// Writer writes lines to the log of a test.
type Writer struct{ testing.TB }

// Write implements [io.Writer].
func (w Writer) Write(b []byte) (int, error) {
	w.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// Running is a relay that runs.
type Running struct {
	*relay.Relay
	// Stop ends it in good order.
	Stop func()

	mu   sync.Mutex
	rows []relay.Done
	more chan struct{}
}

// Run starts a relay of the source.
func (r *Rig) Run(src relay.Source, change func(*relay.Config)) *Running {
	r.T.Helper()
	x := &Running{more: make(chan struct{}, 1)}
	cfg := relay.Config{
		Name: "orders", Source: src, Admit: r.Door, Keep: r.Quarantine, Principal: r.Principal, Log: r.Log(), Done: x.done,
		Broker: r.Broker, Streams: []string{topology.DefaultStream},
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	x.Relay, err = relay.New(cfg)
	Must(r.T, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := x.Run(ctx); err != nil {
			r.T.Errorf("the relay ended: %v", err)
		}
	}()
	x.Stop = sync.OnceFunc(func() { cancel(); <-ended })
	r.T.Cleanup(x.Stop)
	return x
}

func (x *Running) done(d relay.Done) {
	x.mu.Lock()
	x.rows = append(x.rows, d)
	x.mu.Unlock()
	select {
	case x.more <- struct{}{}:
	default:
	}
}

// Wait waits until n rows are done and returns all that are.
func (x *Running) Wait(t testing.TB, n int) []relay.Done {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		x.mu.Lock()
		rows := x.rows[:len(x.rows):len(x.rows)]
		x.mu.Unlock()
		if len(rows) >= n {
			return rows
		}
		select {
		case <-x.more:
		case <-timeout:
			t.Fatalf("%d of %d rows were relayed; status %+v", len(rows), n, x.Status())
		}
	}
}

// Stored returns all events of the stream, in the order of each partition.
func (r *Rig) Stored() []broker.Stored {
	r.T.Helper()
	all, err := events(context.Background(), r.Broker)
	Must(r.T, err)
	return all
}

// Verify fails unless exactly the events 1..n are stored, each once, those of
// each key in order.
func (r *Rig) Verify(n int) {
	r.T.Helper()
	last := map[string]int{}
	seen := map[int]bool{}
	for _, s := range r.Stored() {
		i := Number(r.T, s)
		if seen[i] {
			r.T.Errorf("event %d is stored twice, again at %s", i, s.Position)
		}
		seen[i] = true
		if i < last[s.Event.Key] {
			r.T.Errorf("event %d of key %s is stored after %d", i, s.Event.Key, last[s.Event.Key])
		}
		last[s.Event.Key] = i
	}
	for i := 1; i <= n; i++ {
		if !seen[i] {
			r.T.Errorf("event %d is missing", i)
		}
	}
	if len(seen) != n {
		r.T.Errorf("%d events are stored, want %d", len(seen), n)
	}
}

// Number is the member n of an event's data.
func Number(t testing.TB, s broker.Stored) int {
	t.Helper()
	var d struct{ N int }
	Must(t, json.Unmarshal(s.Event.Data, &d))
	return d.N
}

// Kept returns the quarantine's records with their bodies, newest first.
func (r *Rig) Kept() []store.QuarantineRecord {
	r.T.Helper()
	return records(r.T, r.Store)
}

func records(t testing.TB, st store.Store) (all []store.QuarantineRecord) {
	t.Helper()
	for more, after := true, ""; more; {
		Must(t, st.View(context.Background(), func(ctx context.Context, tx *store.Tx) error {
			some, err := tx.Quarantine.List(ctx, store.QuarantineFilter{After: after, Limit: 1000})
			for i := range some {
				if some[i], err = tx.Quarantine.Get(ctx, some[i].QID); err != nil {
					return err
				}
				after = some[i].QID
			}
			all, more = append(all, some...), len(some) > 0
			return err
		}))
	}
	return all
}

// Wrapped changes the sessions of a source.
type Wrapped struct {
	relay.Source
	Wrap func(relay.Session) relay.Session
}

// Open implements [relay.Source].
func (w Wrapped) Open(ctx context.Context) (relay.Session, error) {
	s, err := w.Source.Open(ctx)
	if err != nil {
		return nil, err
	}
	return w.Wrap(s), nil
}

// Mute is a source whose sessions never confirm, and end without handing over:
// as if the process died after the broker's acknowledgement.
func Mute(src relay.Source) relay.Source {
	return Wrapped{src, func(s relay.Session) relay.Session { return mute{hasty{s}} }}
}

// HastyEnd is a source whose sessions end without handing over: what the
// database knows is what it knows after a kill.
func HastyEnd(src relay.Source) relay.Source {
	return Wrapped{src, func(s relay.Session) relay.Session { return hasty{s} }}
}

// TooEarly is a source whose sessions confirm and prove what was only received.
func TooEarly(src relay.Source) relay.Source {
	return Wrapped{src, func(s relay.Session) relay.Session { return early{s} }}
}

type mute struct{ relay.Session }

func (mute) Confirm(relay.Position) {}

// hasty ends without handing over.
type hasty struct{ relay.Session }

func (h hasty) Close(context.Context) error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = h.Session.Close(ended) // the handover fails, which is the point
	return nil
}

// early confirms and proves what was received.
type early struct{ relay.Session }

func (e early) Receive(ctx context.Context) ([]relay.Change, error) {
	changes, err := e.Session.Receive(ctx)
	for _, c := range changes {
		if c.Position > 0 {
			e.Confirm(c.Position)
		}
		if c.Kind == relay.Beat || c.Kind == relay.Stage {
			if err := e.Session.Prove(ctx, c.Mark); err != nil {
				return nil, err
			}
		}
	}
	return changes, err
}

func (early) Prove(context.Context, relay.Mark) error { return nil }

// forgetful says that it keeps what is set aside.
type forgetful struct {
	relay.Session
	relay.Aside
}

func (forgetful) SaveAside(context.Context, []relay.AsidePage) error { return nil }
