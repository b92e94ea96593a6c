package pgrelay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
)

// rates gives the role slow a rate that can be raised.
type rates struct {
	r    *rig
	slow atomic.Pointer[headgate.Principal]
}

func (r *rig) rates() *rates {
	c := &rates{r: r}
	c.set(20, 10)
	return c
}

func (c *rates) set(rate float64, burst int) {
	c.slow.Store(&headgate.Principal{Name: "slow", Kind: headgate.KindSystem, Emit: []string{"order.*"}, Roots: headgate.RootRight{Allowed: true, Rate: rate, Burst: burst}})
}

func (c *rates) principal(role string) (*headgate.Principal, error) {
	if role == "slow" {
		return c.slow.Load(), nil
	}
	return c.r.Principal(role)
}

// flood writes events of the role slow, numbered from one on, over 100 keys.
func (r *rig) flood(from, to int) {
	r.t.Helper()
	r.exec(fmt.Sprintf(`INSERT INTO headgate.outbox (id, role, type, key, data)
		SELECT 's' || i, 'slow', 'order.placed', 'slow' || i %% 100, convert_to('{"n":' || i || '}', 'UTF8') FROM generate_series(%d, %d) i`, from, to))
}

// mortal makes sessions that die when told: as of then nothing that they are
// asked to do happens.
type mortal struct {
	relay.Session
	relay.Aside
	dead   *atomic.Bool
	forget bool // it says that it keeps what is set aside, and does not
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

func (m mortal) Prove(ctx context.Context, mark relay.Mark) error {
	if m.dead.Load() {
		return errDied
	}
	return m.Session.Prove(ctx, mark)
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

func (m mortal) Close(ctx context.Context) error {
	ended, cancel := context.WithCancel(ctx)
	if m.dead.Load() {
		cancel()
	}
	defer cancel()
	return m.Session.Close(ended)
}

// killer runs a relay whose sessions can be killed.
type killer struct {
	*relaytest.Running
	mu   sync.Mutex
	dead *atomic.Bool
}

func (r *rig) killable(forget bool, change func(*relay.Config)) *killer {
	k := &killer{}
	k.Running = r.run(func(c *relay.Config) {
		c.Source = relaytest.Wrapped{Source: r.sourceOf(pgrelay.Config{Beat: 3 * time.Second}), Wrap: func(s relay.Session) relay.Session {
			dead := new(atomic.Bool)
			k.mu.Lock()
			k.dead = dead
			k.mu.Unlock()
			return mortal{s, s.(relay.Aside), dead, forget}
		}}
		change(c)
	})
	return k
}

func (k *killer) kill(t *testing.T) {
	t.Helper()
	k.mu.Lock()
	k.dead.Store(true)
	k.mu.Unlock()
	before := k.Status().Sessions
	relaytest.Until(t, "another session runs", func() bool { s := k.Status(); return s.Sessions > before && s.Leads })
}

func aside(s relay.Status, role string) int {
	for _, a := range s.Aside {
		if a.Role == role {
			return a.Rows
		}
	}
	return 0
}

// confirmed waits until the log is confirmed up to its present end.
func (r *rig) confirmed() {
	r.t.Helper()
	end := pgtest.Exec(r.t, r.db, `SELECT pg_current_wal_insert_lsn()`)[0][0]
	r.until("the log is confirmed", func() bool {
		return pgtest.Exec(r.t, r.db, `SELECT confirmed_flush_lsn >= '`+end+`' FROM pg_replication_slots WHERE database = current_database()`)[0][0] == "t"
	})
}

// stores reports whether the event of a number is stored.
func (r *rig) stores(n int) bool {
	return slices.ContainsFunc(r.Stored(), func(s broker.Stored) bool { return relaytest.Number(r.t, s) == n })
}

// A principal far beyond its rate of roots delays nobody else, keeps no log from
// being confirmed, and loses nothing when the session dies; in the end its own
// events are there, those of each key in order.
func TestRoleBeyondItsRateStopsNoOther(t *testing.T) {
	const flood, others = 20_000, 2_000
	r := newRig(t, pgtest.URL(t))
	rate := r.rates()
	var mine atomic.Int64
	x := r.killable(false, func(c *relay.Config) {
		c.Principal = rate.principal
		c.Done = func(d relay.Done) {
			if d.Row.Role != "slow" {
				mine.Add(1)
			}
		}
	})
	r.flood(1, flood)
	for i := range 10 {
		n := flood + i*others/20
		r.emit(n+1, n+others/20)
	}
	r.until("the others' events are stored", func() bool { return mine.Load() == others/2 })
	r.confirmed()
	s := x.Status()
	if n := aside(s, "slow"); n < flood/2 || s.InFlight > 4096+512 || s.AsideFull {
		t.Errorf("%d rows are set aside: %+v", n, s)
	}
	if got, err := pgrelay.Inspect(t.Context(), r.db); err != nil || got.Aside < flood/2 {
		t.Errorf("inspected: %d rows are set aside, %v", got.Aside, err)
	}
	for i := range 3 {
		x.kill(t)
		n := flood + others/2 + i*100
		r.emit(n+1, n+100)
	}
	r.until("what came after is stored", func() bool { return mine.Load() >= others/2+300 })
	r.emit(flood+others/2+301, flood+others)
	r.until("and the rest", func() bool { return mine.Load() >= others })
	if n := aside(x.Status(), "slow"); n < flood/2 {
		t.Errorf("%d rows are set aside", n)
	}
	rate.set(1e6, 1e6)
	r.until("all are stored", func() bool { return len(r.Stored()) >= flood+others })
	r.until("nothing is set aside", func() bool {
		return len(x.Status().Aside) == 0 && pgtest.Exec(t, r.db, `SELECT count(*) FROM headgate.outbox_aside`)[0][0] == "0"
	})
	x.Stop()
	r.Verify(flood + others)
}

// The test of before would see rows that are lost.
func TestRowsSetAsideAreMissedWhenForgotten(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	rate := r.rates()
	x := r.killable(true, func(c *relay.Config) { c.Principal, c.InFlight = rate.principal, 64 })
	r.flood(1, 1000)
	r.until("rows are set aside", func() bool { return aside(x.Status(), "slow") > 500 })
	r.confirmed()
	x.kill(t)
	rate.set(1e6, 1e6)
	r.confirmed()
	x.Stop()
	if n := len(r.Stored()); n >= 1000 {
		t.Errorf("%d events are stored: forgetting is not seen", n)
	}
}

// Rows of others behind rows of the same key that are set aside wait with them,
// also when another session set those aside. Retention leaves the table alone
// until they are done, and the doctor and Inspect tell of them.
func TestKeysSetAsideStayInOrder(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	rate := r.rates()
	rate.set(0.5, 1)
	x := r.killable(false, func(c *relay.Config) { c.Principal, c.InFlight = rate.principal, 64 })
	r.flood(1, 1000)
	r.until("rows are set aside", func() bool { return aside(x.Status(), "slow") > 500 })
	x.kill(t)
	r.exec(`SELECT headgate.emit('order.placed', '{"n":1001}', 'slow7')`)
	r.exec(`SELECT headgate.emit('order.placed', '{"n":1002}', 'free')`)
	r.until("the other key is not held", func() bool { return r.stores(1002) })
	r.confirmed()
	r.until("all of it is proven", func() bool {
		return pgtest.Exec(t, r.db, `SELECT NOT EXISTS (SELECT FROM headgate.outbox, headgate.relay_state WHERE NOT coalesce(pg_visible_in_snapshot(xid, proven_snapshot), false))`)[0][0] == "t"
	})
	r.exec(`SELECT headgate.maintain('-3 days')`)
	if got := pgtest.Exec(t, r.db, `SELECT count(*) FROM headgate.outbox`)[0][0]; got != "1002" {
		t.Errorf("%s rows are left", got)
	}
	if r.stores(1001) {
		t.Error("what stands behind rows of its key went before them")
	}
	if found := r.finding(r.db, "set aside"); found == nil || !strings.Contains(found.What, "slow") {
		t.Errorf("the doctor says %+v", found)
	}
	rate.set(1e6, 1e6)
	r.until("all are stored", func() bool { return len(r.Stored()) == 1002 })
	x.Stop()
	r.Verify(1002)
	if got := pgtest.Exec(t, r.db, `SELECT cardinality(headgate.maintain('-3 days'))`)[0][0]; got == "0" {
		t.Error("nothing is dropped when all is done")
	}
}

// Rows that the table's owner deletes while they are set aside are recorded.
func TestRowsDeletedWhileSetAsideAreRecorded(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	rate := r.rates()
	rate.set(0.5, 1)
	x := r.killable(false, func(c *relay.Config) { c.Principal, c.InFlight = rate.principal, 64 })
	r.flood(1, 1000)
	r.until("rows are set aside", func() bool { return aside(x.Status(), "slow") > 500 })
	r.exec(`DELETE FROM headgate.outbox WHERE seq > 990`)
	rate.set(1e6, 1e6)
	r.until("the rest is stored", func() bool { return len(r.Stored()) == 990 })
	r.until("the others are recorded", func() bool { return len(r.Kept()) == 10 })
	x.Stop()
	r.Verify(990)
	for _, k := range r.Kept() {
		if !strings.Contains(string(k.Detail), "is gone from the table") {
			t.Errorf("%+v", k)
		}
	}
}
