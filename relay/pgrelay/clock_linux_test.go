package pgrelay_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/inbox/inboxpgx"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/headgate/headgate/unit"
	"github.com/headgate/headgate/unit/unitpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const fakeTime = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"

// skewed starts a server whose clock is off.
func skewed(t *testing.T, offset string) *pgtest.Cluster {
	t.Helper()
	if _, err := os.Stat(fakeTime); err != nil {
		t.Fatalf("the package faketime is needed: %v", err)
	}
	c := pgtest.Start(t, "wal_level=logical")
	for name, value := range map[string]string{"LD_PRELOAD": fakeTime, "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1"} {
		c.Setenv(name + "=" + value)
	}
	c.Stop()
	c.Restart()
	return c
}

// Clocks are off by an hour: the database's, by which consumers judge claims and
// what they remember, the nodes', those of two nodes against each other, those of
// programs that write. Order, lead, the lifetime of causal tokens, the hops that
// are left, what a consumer has handled and the figures stay as they are. The
// tokens of a node are judged by a node with its clock: they are the one thing
// that nodes must agree on.
func TestTrap20ClockSkew(t *testing.T) {
	t.Parallel() // it waits for heartbeats
	for name, c := range map[string]struct {
		database    string
		nodes, next time.Duration // next is how far the standby's clock is from the leader's
	}{
		"database ahead":               {"+1h", 0, 0},
		"database behind":              {"-1h", 0, 0},
		"nodes behind, database ahead": {"+1h", -time.Hour, 0},
		"nodes ahead, database behind": {"-1h", time.Hour, 0},
		"standby two hours ahead":      {"", -time.Hour, 2 * time.Hour},
		"standby two hours behind":     {"", time.Hour, -2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.URL(t)
			if c.database != "" {
				server = skewed(t, c.database).URL()
			}
			r := newRig(t, server)
			if off := r.ahead(); (off.Abs() > 50*time.Minute) != (c.database != "") {
				t.Fatalf("the database's clock is ahead by %v", off)
			}
			clockSkew(t, r, c.nodes, c.next)
		})
	}
}

// Nothing that runs in programs which write or consume reads their clock: what
// they need of time is their database's, or the node's.
func TestTrap20NothingReadsTheProgramsClock(t *testing.T) {
	looked := 0
	for _, root := range []string{"outbox", "inbox", "unit"} {
		must(t, filepath.WalkDir(filepath.Join("..", "..", root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			looked++
			for _, call := range []string{"time.Now", "time.Since", "time.Until"} {
				if strings.Contains(string(text), call) {
					t.Errorf("%s calls %s", path, call)
				}
			}
			return err
		}))
	}
	if looked < 15 {
		t.Errorf("only %d files were looked at", looked)
	}
}

// ahead is how far the database's clock is before this machine's.
func (r *rig) ahead() time.Duration {
	r.t.Helper()
	var there time.Time
	must(r.t, r.connect().QueryRow(r.t.Context(), `SELECT clock_timestamp()`).Scan(&there))
	return time.Until(there)
}

func clockSkew(t *testing.T, r *rig, nodes, next time.Duration) {
	t.Helper()
	orders := *r.Who["headgate"]
	orders.Roots = headgate.RootRight{} // nothing but reactions
	r.Who["headgate"] = &orders
	r.Mints.Store(int64(nodes))
	fresh := r.token(nodes)
	old := r.token(nodes - 90*time.Minute) // it expired half an hour ago
	start := func(name string, off time.Duration) *relaytest.Running {
		now := func() time.Time { return time.Now().Add(off) }
		return r.Run(r.sourceOf(pgrelay.Config{Beat: time.Second, Now: now}), func(c *relay.Config) { c.Name, c.Now = name, now })
	}
	first := start("first", nodes)
	r.until("the first leads", func() bool { return first.Status().Leads })
	second := start("second", nodes+next)
	c := r.connect()
	write := func(token, sql string, args ...any) {
		t.Helper()
		tx, err := c.Begin(t.Context())
		must(t, err)
		_, err = tx.Exec(t.Context(), `SELECT headgate.set_cause($1)`, token)
		must(t, err)
		_, err = tx.Exec(t.Context(), sql, args...)
		must(t, err)
		must(t, tx.Commit(t.Context()))
	}
	write(fresh, `SELECT headgate.emit('order.placed', '{"n":1}', 'k1')`)
	write(old, `SELECT headgate.emit('order.placed', '{"n":99}', 'k1')`)
	rows := first.Wait(t, 2)
	if rows[0].QID != "" || rows[1].QID == "" {
		t.Errorf("with a living and with an expired token the rows ended as %+v and %+v", rows[0].Result.Err, rows[1].Result.Err)
	}
	// Programs with clocks of their own name times and ids made of times.
	for i, off := range []time.Duration{time.Hour, -time.Hour, 0} {
		at := time.Now().Add(off).UTC()
		write(fresh, `SELECT headgate.emit_event($1, 'order.placed', '/app', NULL, 'k1', jsonb_build_object('time', $2::text), convert_to(jsonb_build_object('n', $3::int)::text, 'UTF8'))`,
			fmt.Sprintf("%012x", at.UnixMilli()), at.Format(time.RFC3339), i+2)
	}
	for _, d := range first.Wait(t, 5) {
		if lag := d.At.Sub(d.Row.Committed); lag < -time.Second || lag > time.Minute {
			t.Errorf("from commit to acknowledgement: %v", lag)
		}
	}
	state := func() (epoch, beat int) {
		row := pgtest.Exec(t, r.db, `SELECT epoch, beat FROM headgate.relay_state`)[0]
		return atoi(row[0]), atoi(row[1])
	}
	_, beat := state()
	r.until("heartbeats go on for longer than a standby waits", func() bool { _, now := state(); return now > beat+3 })
	if epoch, _ := state(); epoch != 1 || second.Status().Leads {
		t.Errorf("the lead changed: epoch %d", epoch)
	}
	first.Stop()
	// A token lives by the clock of the node that made it: the second makes one.
	r.Mints.Store(int64(nodes + next))
	write(r.token(nodes+next), `SELECT headgate.emit('order.placed', '{"n":5}', 'k1')`)
	for _, d := range second.Wait(t, 1) {
		if lag := d.At.Sub(d.Row.Committed); lag < -time.Second || lag > time.Minute {
			t.Errorf("from commit to acknowledgement by the second: %v", lag)
		}
	}
	r.consume(5)
	r.Verify(10)
}

// consume handles the events 1 to n, each of which arrives twice, by a consumer
// that emits the next n as their children. What it knows of time its database
// says.
func (r *rig) consume(n int) {
	r.t.Helper()
	t, ctx := r.t, r.t.Context()
	must(t, inboxpgx.Install(ctx, r.connect(), inboxpgx.InstallOptions{}))
	pool, err := pgxpool.New(ctx, r.db)
	must(t, err)
	defer pool.Close()
	db := unitpgx.New(pool)
	have := r.Stored()
	for _, s := range have {
		token := r.Causal.Mint(causal.Delivered{Event: s.Event, Stream: "events", Subscription: "s", Principal: "orders", Attempt: 1})
		d, err := unit.Of("consumer", s.Event, token, "")
		must(t, err)
		number := relaytest.Number(t, s)
		for again := range 2 {
			res, err := unit.Do(ctx, db, d, func(ctx context.Context, _ pgx.Tx, out outbox.Tx) error {
				return outbox.Emit(ctx, out, &headgate.Event{Type: "order.placed", Key: "k1", Data: fmt.Appendf(nil, `{"n":%d}`, n+number)})
			})
			if must(t, err); res.Duplicate != (again > 0) {
				t.Errorf("event %d, delivery %d: %+v", number, again+1, res)
			}
		}
		// A claim lasts, and no longer than was asked for.
		d.Consumer = "claims"
		_, err = unit.Once(ctx, db, d, unit.Effect[pgx.Tx]{TTL: time.Minute, Do: func(ctx context.Context, _ string) ([]byte, error) {
			_, err := unit.Once(ctx, db, d, unit.Effect[pgx.Tx]{TTL: time.Minute, Do: func(context.Context, string) ([]byte, error) {
				t.Error("a second worker has the claim")
				return nil, nil
			}})
			if e := headgate.AsError(err); headgate.CodeOf(err) != headgate.CodeInProgress || e.RetryAfter > time.Minute {
				t.Errorf("the second worker is told %v", err)
			}
			return nil, nil
		}})
		must(t, err)
	}
	children := map[string]*headgate.Event{}
	r.until("the children are stored", func() bool { return len(r.Stored()) == 2*n })
	for _, s := range r.Stored() {
		children[fmt.Sprint(relaytest.Number(t, s))] = s.Event
	}
	for _, s := range have {
		child := children[fmt.Sprint(n+relaytest.Number(t, s))]
		if h, was := child.Header, s.Event.Header; h.TTL != was.TTL-1 || h.Hop != was.Hop+1 || h.RootID != was.RootID {
			t.Errorf("the child of %+v has %+v", was, h)
		}
	}
}

// token returns the causal token of a delivery to the principal orders, minted
// by a node whose clock is off by so much.
func (r *rig) token(off time.Duration) string {
	r.t.Helper()
	defer r.Mints.Store(r.Mints.Swap(int64(off)))
	parent := &headgate.Event{ID: fmt.Sprint("parent", off, time.Now().UnixNano()), Source: "/s", Type: "order.placed"}
	res, err := r.Causal.Reserve(context.Background(), causal.Request{
		Principal: &headgate.Principal{Name: "root", Kind: headgate.KindHuman, Roots: headgate.RootRight{Allowed: true}}, Type: parent.Type, EventID: parent.ID,
	})
	must(r.t, err)
	res.Commit()
	parent.Header = res.Header
	return r.Causal.Mint(causal.Delivered{Event: parent, Stream: "events", Subscription: "s", Principal: "orders", Attempt: 1})
}
