package sqliterelay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/relay"
)

// rated is a rig whose principal has a rate of roots that can be raised.
type rated struct {
	*rig
	who  atomic.Pointer[headgate.Principal]
	dead atomic.Pointer[atomic.Bool]
}

func newRated(t *testing.T) *rated {
	r := &rated{rig: newRig(t)}
	r.set(0.5, 1)
	return r
}

func (r *rated) set(rate float64, burst int) {
	r.who.Store(&headgate.Principal{Name: "orders", Kind: headgate.KindSystem, Emit: []string{"order.*"}, Roots: headgate.RootRight{Allowed: true, Rate: rate, Burst: burst}})
}

// relay runs a relay whose sessions die when told. With forget they say that
// they keep what is set aside, and do not.
func (r *rated) relay(forget bool, change func(*relay.Config)) *relaytest.Running {
	return r.run(func(c *relay.Config, from *Config) {
		src, err := New(*from)
		must(r.t, err)
		c.Source = relaytest.Wrapped{Source: src, Wrap: func(s relay.Session) relay.Session {
			dead := new(atomic.Bool)
			r.dead.Store(dead)
			return mortal{s, s.(relay.Aside), dead, forget}
		}}
		c.Principal = func(string) (*headgate.Principal, error) { return r.who.Load(), nil }
		if change != nil {
			change(c)
		}
	})
}

func (r *rated) kill(x *relaytest.Running) {
	r.t.Helper()
	before := x.Status().Sessions
	r.dead.Load().Store(true)
	until(r.t, "another session runs", func() bool { s := x.Status(); return s.Sessions > before && s.Leads })
}

// mortal dies when told: as of then nothing that it is asked to do happens.
type mortal struct {
	relay.Session
	relay.Aside
	dead   *atomic.Bool
	forget bool
}

var errDied = errors.New("the session died")

func (m mortal) Receive(ctx context.Context) ([]relay.Change, error) {
	got, err := m.Session.Receive(ctx)
	if m.dead.Load() {
		return nil, errDied
	}
	return got, err
}

func (m mortal) Lead() error {
	if m.dead.Load() {
		return errDied
	}
	return m.Session.Lead()
}

func (m mortal) Confirm(p relay.Position) {
	if !m.dead.Load() {
		m.Session.Confirm(p)
	}
}

func (m mortal) SaveAside(ctx context.Context, pages []relay.AsidePage) error {
	switch {
	case m.dead.Load():
		return errDied
	case m.forget:
		return nil
	}
	return m.Aside.SaveAside(ctx, pages)
}

// token is the causal token of a delivery to the principal.
func (r *rated) token() string {
	r.t.Helper()
	parent := &headgate.Event{ID: "parent", Source: "/s", Type: "order.placed"}
	res, err := r.Causal.Reserve(context.Background(), causal.Request{
		Principal: &headgate.Principal{Name: "root", Kind: headgate.KindHuman, Roots: headgate.RootRight{Allowed: true}}, Type: parent.Type, EventID: parent.ID,
	})
	must(r.t, err)
	res.Commit()
	parent.Header = res.Header
	return r.Causal.Mint(causal.Delivered{Event: parent, Stream: "events", Subscription: "s", Principal: "orders", Attempt: 1})
}

// flood writes roots numbered from one on over 100 keys.
func flood(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	run(t, db, `INSERT INTO headgate_outbox (id, type, key, data)
		WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < ?) SELECT 's' || n, 'order.placed', 'slow' || n % 100, '{"n":' || n || '}' FROM i`, n)
}

func waiting(s relay.Status) (n int) {
	for _, a := range s.Aside {
		n += a.Rows
	}
	return n
}

// Roots far beyond the principal's rate delay no other events, keep the cursor
// from nothing, and are not lost when the session dies; in the end they are
// there, those of each key in order.
func TestRootsBeyondTheirRateStopNoOther(t *testing.T) {
	const roots, children = 20_000, 800 // a root pays for no more than 1000
	r := newRated(t)
	var went atomic.Int64
	x := r.relay(false, func(c *relay.Config) {
		c.Done = func(d relay.Done) {
			if d.Row.Cause != "" && d.Result.Err == nil {
				went.Add(1)
			}
		}
	})
	flood(t, r.db, roots)
	token := r.token()
	child := func(from, n int, key string) {
		t.Helper()
		tx, err := r.db.BeginTx(t.Context(), nil)
		must(t, err)
		for i := range n {
			run(t, tx, `INSERT INTO headgate_outbox (type, key, cause, data) VALUES ('order.placed', ?, ?, ?)`, key, token, fmt.Sprintf(`{"n":%d}`, from+i))
		}
		must(t, tx.Commit())
	}
	for i := range 10 {
		child(roots+1+i*children/20, children/20, fmt.Sprint("free", i%3))
	}
	until(t, "the children are stored", func() bool { return went.Load() == children/2 })
	last := func() int64 { return value[int64](t, r.db, `SELECT max(seq) FROM headgate_outbox_rows`) }
	until(t, "the cursor is at the end", func() bool {
		return value[int64](t, r.db, `SELECT confirmed FROM headgate_outbox_state`) == last()
	})
	s := x.Status()
	if n := waiting(s); n < roots/2 || s.InFlight > 4096+512 || s.AsideFull {
		t.Errorf("%d rows are set aside: %+v", n, s)
	}
	child(roots+children/2+1, 1, "slow7") // behind roots of its key
	for i := range 3 {
		r.kill(x)
		child(roots+children/2+2+i*100, 100, "free0")
	}
	child(roots+children/2+302, children/2-301, "free1")
	until(t, "the other children are stored", func() bool { return went.Load() >= children-1 })
	if got, err := Inspect(t.Context(), r.db); err != nil || got.Aside < roots/2 {
		t.Errorf("%+v, %v", got, err)
	}
	found, err := Doctor(t.Context(), r.db, time.Now())
	must(t, err)
	if !strings.Contains(fmt.Sprint(found), "set aside") {
		t.Errorf("the doctor says %+v", found)
	}
	r.set(1e6, 1e6)
	until(t, "all are stored", func() bool { return len(r.Stored()) >= roots+children })
	until(t, "nothing is set aside", func() bool {
		return len(x.Status().Aside) == 0 && value[int](t, r.db, `SELECT count(*) FROM headgate_outbox_aside`) == 0
	})
	x.Stop()
	r.Verify(roots + children)
}

// The test of before would see rows that are lost.
func TestRowsSetAsideAreMissedWhenForgotten(t *testing.T) {
	r := newRated(t)
	x := r.relay(true, func(c *relay.Config) { c.InFlight = 64 })
	flood(t, r.db, 1000)
	atEnd := func() bool { return value[int64](t, r.db, `SELECT confirmed FROM headgate_outbox_state`) == 1000 }
	until(t, "the cursor is at the end", atEnd)
	r.kill(x)
	r.set(1e6, 1e6)
	x.Stop()
	if n := len(r.Stored()); n >= 1000 {
		t.Errorf("%d events are stored: forgetting is not seen", n)
	}
}

// Cleaning spares what is set aside, and nobody else may delete it.
func TestRowsSetAsideStay(t *testing.T) {
	r := newRated(t)
	x := r.run(func(c *relay.Config, from *Config) {
		from.Retain = time.Millisecond
		c.Principal = func(string) (*headgate.Principal, error) { return r.who.Load(), nil }
		c.InFlight = 64
	})
	flood(t, r.db, 1000)
	until(t, "the cursor is at the end", func() bool { return value[int64](t, r.db, `SELECT confirmed FROM headgate_outbox_state`) == 1000 })
	if _, err := r.db.Exec(`DELETE FROM headgate_outbox_rows WHERE seq = 500`); err == nil || !strings.Contains(err.Error(), "HG109") {
		t.Errorf("somebody may delete a row that waits: %v", err)
	}
	<-time.NewTimer(1500 * time.Millisecond).C // cleaning would have come
	if n := value[int](t, r.db, `SELECT count(*) FROM headgate_outbox_rows`); n != 1000 {
		t.Errorf("%d rows are left", n)
	}
	r.set(1e6, 1e6)
	until(t, "all are stored", func() bool { return len(r.Stored()) == 1000 })
	until(t, "they are deleted", func() bool { return value[int](t, r.db, `SELECT count(*) FROM headgate_outbox_rows`) == 1 })
	x.Stop()
	r.Verify(1000)
}
