package pgrelay_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/jackc/pgx/v5"
)

// standby is a server whose commits wait for a standby that is not there, where
// their session asks for it.
type standby struct {
	t   testing.TB
	url string
}

func stalling(t testing.TB, settings ...string) standby {
	t.Helper()
	return standby{t, pgtest.Start(t, append([]string{"wal_level=logical", "synchronous_commit=local", "max_prepared_transactions=5", "max_replication_slots=20", "max_wal_senders=20"}, settings...)...).URL()}
}

const waitsForStandby = `SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'`

// stall makes commits wait from now on.
func (s standby) stall() {
	s.t.Helper()
	pgtest.Exec(s.t, s.url, `ALTER SYSTEM SET synchronous_standby_names = 'nobody'`)
	pgtest.Exec(s.t, s.url, `SELECT pg_reload_conf()`)
	waits := func() bool { return len(pgtest.Exec(s.t, s.url, waitsForStandby)) > 0 }
	for deadline := time.Now().Add(30 * time.Second); !waits() && time.Now().Before(deadline); {
		c, err := pgx.Connect(context.Background(), s.url) // the first that waits stays
		must(s.t, err)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer c.Close(context.Background())
			_, _ = c.Exec(context.Background(), `SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'probe', 'x')`) // nothing of it is needed
		}()
		for !waits() {
			select {
			case <-ended:
			case <-time.After(10 * time.Millisecond):
				continue
			}
			break
		}
	}
	if !waits() {
		s.t.Fatal("no commit waits for the standby")
	}
}

// arrive ends the wait of all commits.
func (s standby) arrive() {
	s.t.Helper()
	pgtest.Exec(s.t, s.url, `ALTER SYSTEM RESET synchronous_standby_names`)
	pgtest.Exec(s.t, s.url, `SELECT pg_reload_conf()`)
}

// late begins to commit an event of key late, which is told and not seen.
func (r *rig) late(n int, commit string) (ended <-chan error) {
	r.t.Helper()
	c := r.connect()
	_, err := c.Exec(context.Background(), `SET synchronous_commit = on`)
	must(r.t, err)
	before := len(pgtest.Exec(r.t, r.db, waitsForStandby))
	done := make(chan error, 1)
	go func() {
		_, err := c.Exec(context.Background(), strings.ReplaceAll(commit, "EMIT", lateEvent(n)))
		done <- err
	}()
	r.until("the commit waits for its standby", func() bool {
		select {
		case err := <-done:
			r.t.Fatalf("the commit does not wait: %v", err)
		default:
		}
		return len(pgtest.Exec(r.t, r.db, waitsForStandby)) == before+1
	})
	return done
}

func lateEvent(n int) string {
	return fmt.Sprintf(`SELECT headgate.emit('order.placed', '{"n":%d}', 'late')`, n)
}

const gaveUp = `UPDATE headgate.relay_state SET repair = 'the slot held back more log than it may'` // as the relay notes

// relayed is a rig whose first ten events are proven, and no relay runs.
func (s standby) relayed(t *testing.T) *rig {
	t.Helper()
	r := newRigOn(t, database(t, s.url), membroker.New(membroker.Config{}))
	x := r.run(nil)
	r.emit(1, 10)
	x.Wait(t, 10)
	r.until("all of it is proven", r.allProven)
	x.Stop()
	return r
}

func (r *rig) allProven() bool {
	r.t.Helper()
	return pgtest.Exec(r.t, r.db, `SELECT NOT EXISTS (SELECT FROM headgate.outbox, headgate.relay_state WHERE NOT coalesce(pg_visible_in_snapshot(xid, proven_snapshot), false))`)[0][0] == "t"
}

func (r *rig) waitsForWriters() bool {
	r.t.Helper()
	return len(pgtest.Exec(r.t, r.db, `SELECT 1 FROM headgate.relay_state WHERE repair LIKE 'what these transactions wrote%'`)) == 1
}

func (r *rig) epoch() string {
	r.t.Helper()
	return pgtest.Exec(r.t, r.db, `SELECT epoch FROM headgate.relay_state`)[0][0]
}

// A commit is in the log, before where the slot is set to, and nobody sees it yet:
// it waits for a standby that comes while the repair waits for it, or much later.
func TestCommitToldAndNotSeen(t *testing.T) {
	t.Parallel() // it has a server of its own
	server := stalling(t)
	for name, commit := range map[string]string{
		"plain":            `EMIT`,
		"subtransaction":   `BEGIN; SAVEPOINT a; EMIT; RELEASE a; COMMIT`,
		"straight in":      `INSERT INTO headgate.outbox (id, role, type, key, data) VALUES ('late', session_user, 'order.placed', 'late', '{"n":11}')`,
		"prepared":         `COMMIT PREPARED 'late'`,
		"in the partition": `INSERT INTO headgate.outbox_rest (seq, id, role, type, key, data, created) OVERRIDING SYSTEM VALUE VALUES (1000, 'late', session_user, 'order.placed', 'late', '{"n":11}', '2020-01-01')`,
	} {
		t.Run(name+", seen soon", func(t *testing.T) {
			r := server.relayed(t)
			if name == "prepared" {
				r.exec(`BEGIN; ` + lateEvent(11) + `; PREPARE TRANSACTION 'late'`)
			}
			r.exec(gaveUp)
			server.stall()
			ended := r.late(11, commit)
			epoch := r.epoch()
			x := r.Run(r.sourceOf(pgrelay.Config{Beat: 20 * time.Second}), nil)
			r.until("the relay leads", func() bool { return r.epoch() != epoch })
			r.emit(12, 12)
			server.arrive()
			must(t, <-ended)
			r.until("all are stored, and the repair ends", func() bool { return len(r.Stored()) >= 12 && r.quiet() })
			r.Verify(12)
			x.Stop()
		})
	}
}

// The stream does not wait for a standby that stays away, nothing is proven of what
// it holds up, and its order is kept.
func TestStreamWhileACommitWaits(t *testing.T) {
	t.Parallel() // it has a server of its own
	server := stalling(t)
	r := server.relayed(t)
	r.exec(gaveUp)
	server.stall()
	ended := r.late(11, `EMIT`)
	x := r.run(nil)
	r.until("the relay waits for it no longer", r.waitsForWriters)
	r.emit(12, 20)
	x.Wait(t, 9)
	beat := pgtest.Exec(t, r.db, `SELECT proven_beat FROM headgate.relay_state`)[0][0]
	r.until("more is proven", func() bool {
		return pgtest.Exec(t, r.db, `SELECT proven_beat > `+beat+` FROM headgate.relay_state`)[0][0] == "t"
	})
	if f := r.finding(r.db, "ends when a transaction has ended"); f == nil || !strings.Contains(f.What, "the session ") || f.Fix == "" {
		t.Errorf("the doctor says %+v", f)
	}
	x.Stop() // another relay knows as well
	r.emit(21, 30)
	x = r.run(nil)
	r.until("the relay waits for it no longer", func() bool { return r.waitsForWriters() && len(r.Stored()) == 29 })
	server.arrive()
	must(t, <-ended)
	r.exec(lateEvent(31)) // behind it, and of its key
	r.emit(32, 40)
	r.until("all are stored, and the repair ends", func() bool { return len(r.Stored()) >= 40 && r.quiet() && r.allProven() })
	r.Verify(40)
	x.Stop()
}

// Who wrote before the repair and stays open keeps nothing up. What he commits
// comes from the log, what he does not leaves nothing behind: no further session
// is needed for either.
func TestWritersThatStayOpen(t *testing.T) {
	ctx := context.Background()
	for name, end := range map[string]func(*rig, *pgx.Conn) int{
		"committed": func(r *rig, c *pgx.Conn) int {
			_, err := c.Exec(ctx, lateEvent(21)+`; COMMIT`)
			must(r.t, err)
			return 21
		},
		"rolled back": func(r *rig, c *pgx.Conn) int {
			_, err := c.Exec(ctx, `ROLLBACK; `+lateEvent(21))
			must(r.t, err)
			return 21
		},
		"ended": func(r *rig, c *pgx.Conn) int {
			must(r.t, c.Close(ctx))
			return 20
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pgtest.URL(t))
			x := r.run(nil)
			r.emit(1, 10)
			x.Wait(t, 10)
			x.Stop()
			open := r.connect()
			_, err := open.Exec(ctx, `BEGIN; SELECT headgate.emit('order.placed', '{"n":20}', 'open')`)
			must(t, err)
			other := r.connect()
			_, err = other.Exec(ctx, `BEGIN; SELECT headgate.emit('order.placed', '{"n":0}', 'other')`)
			must(t, err)
			r.exec(gaveUp)
			x = r.run(nil)
			r.until("the relay waits for it no longer", r.waitsForWriters)
			epoch := r.epoch()
			r.emit(11, 19)
			x.Wait(t, 9)
			if name != "committed" {
				_, err = open.Exec(ctx, `ROLLBACK; BEGIN; `+strings.Replace(lateEvent(20), "late", "open", 1)+`; COMMIT; BEGIN`)
				must(t, err)
			}
			n := end(r, open)
			if !r.waitsForWriters() {
				t.Error("the other is still open")
			}
			must(t, other.Close(ctx))
			r.until("all are stored, and the repair ends", func() bool { return len(r.Stored()) >= n && r.quiet() && r.allProven() })
			if got := r.epoch(); got != epoch {
				t.Errorf("epoch %s became %s", epoch, got)
			}
			r.Verify(n)
			x.Stop()
		})
	}
}

// Many writers on few keys, whose transactions depend on each other, commit or roll
// back while the stream runs and its repair waits for those that were open.
func TestOpenWritersKeepTheOrder(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, pgtest.URL(t))
	r.exec(`CREATE TABLE public.counter (one int PRIMARY KEY, n int); INSERT INTO public.counter VALUES (1, 0)`)
	x := r.run(nil)
	const step = `WITH c AS (UPDATE public.counter SET n = n + 1 RETURNING n) SELECT headgate.emit('order.placed', jsonb_build_object('n', n), 'k') FROM c`
	r.exec(step)
	x.Wait(t, 1)
	x.Stop()
	const conns = 8
	var open [conns]*pgx.Conn
	for i := range open {
		open[i] = r.connect()
		_, err := open[i].Exec(ctx, `BEGIN; SELECT headgate.emit('order.placed', jsonb_build_object('n', `+fmt.Sprint(1000+i)+`), 'open'||`+fmt.Sprint(i)+`)`)
		must(t, err)
	}
	r.exec(gaveUp)
	x = r.run(nil)
	r.until("the relay waits for them no longer", r.waitsForWriters)
	for i := range open {
		_, err := open[i].Exec(ctx, step)
		must(t, err)
		_, err = open[i].Exec(ctx, `COMMIT`)
		must(t, err)
		for range 20 {
			_, err := open[i].Exec(ctx, step)
			must(t, err)
		}
	}
	const want = 1 + conns*22
	r.until("all are stored, and the repair ends", func() bool { return len(r.Stored()) >= want && r.quiet() })
	last := map[string]int{}
	for _, s := range r.Stored() {
		var n int
		_, err := fmt.Sscanf(string(s.Event.Data), `{"n": %d}`, &n)
		must(t, err)
		if n <= last[s.Event.Key] {
			t.Errorf("%d of %s after %d", n, s.Event.Key, last[s.Event.Key])
		}
		last[s.Event.Key] = n
	}
	if got := len(r.Stored()); got != want {
		t.Errorf("%d are stored, want %d", got, want)
	}
	x.Stop()
}
