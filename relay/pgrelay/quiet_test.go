package pgrelay_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Nothing but heartbeats for long: they let go of the log that they make.
func TestTrap08HeartbeatsAloneHoldNoLog(t *testing.T) {
	t.Parallel() // it has a server of its own
	server := pgtest.Start(t, "wal_level=logical", "min_wal_size=32MB", "max_wal_size=32MB")
	r := newRig(t, server.URL())
	src := r.sourceOf(pgrelay.Config{Beat: 100 * time.Millisecond})
	r.run(func(c *relay.Config) { c.Source = src })
	beats := 60 // those of ten minutes
	if relaytest.Campaign() {
		beats = 6000
	}
	var worst int
	for next := 10; next <= beats; next += 10 {
		r.until("heartbeats go on", func() bool {
			return atoi(pgtest.Exec(t, r.db, `SELECT beat FROM headgate.relay_state`)[0][0]) >= next
		})
		pgtest.Exec(t, r.db, `CHECKPOINT`) // as the server does every few minutes
		_, held := r.slot()
		worst = max(worst, held)
	}
	if worst > 4<<20 {
		t.Errorf("the slot held %d KiB of log", worst>>10)
	}
	size := atoi(pgtest.Exec(t, r.db, `SELECT sum(size) FROM pg_ls_waldir()`)[0][0])
	t.Logf("%d heartbeats: the slot held at most %d KiB; pg_wal has %d MiB", beats, worst>>10, size>>20)
	if size > 64<<20 {
		t.Errorf("pg_wal has %d MiB", size>>20)
	}
}

// The application's only connection is held by a transaction that is stuck, with
// every lock that it can have, and programs take all connections that are left:
// the lead is renewed for longer than a standby waits, and nobody else takes it.
func TestTrap19StuckApplicationDoesNotCostTheLead(t *testing.T) {
	t.Parallel() // it has a server of its own
	server := pgtest.Start(t, "wal_level=logical", "max_connections=12", "superuser_reserved_connections=0")
	r := newRig(t, server.URL())
	ctx := t.Context()
	cfg, err := pgxpool.ParseConfig(r.db)
	must(t, err)
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(ctx, cfg) // of the program that the relay is part of
	must(t, err)
	defer pool.Close()
	tx, err := pool.Begin(ctx)
	must(t, err)
	_, err = tx.Exec(ctx, `LOCK TABLE headgate.outbox IN ACCESS EXCLUSIVE MODE`) // the upkeep of partitions has to wait
	must(t, err)
	src := r.sourceOf(pgrelay.Config{Beat: time.Second})
	x := r.run(func(c *relay.Config) { c.Source = src })
	r.until("it leads", func() bool { return x.Status().Leads })
	standby := r.run(func(c *relay.Config) { c.Source = r.sourceOf(pgrelay.Config{Beat: time.Second}) })
	looking := r.connect()
	asked := func(sql string) string {
		t.Helper()
		var value string
		must(t, looking.QueryRow(ctx, sql).Scan(&value))
		return value
	}
	r.until("the standby waits", func() bool {
		return asked(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`) == "1"
	})
	taken := 0
	for ; ; taken++ {
		c, err := pgx.Connect(ctx, r.db)
		if err != nil {
			break
		}
		defer c.Close(context.Background())
	}
	if taken == 0 {
		t.Fatal("there was no connection left to take")
	}
	starved := make(chan error, 1)
	waiting, cancel := context.WithCancel(ctx)
	go func() { _, err := pool.Acquire(waiting); starved <- err }()
	first := atoi(asked(`SELECT beat FROM headgate.relay_state`))
	r.until("heartbeats go on for longer than a standby waits", func() bool { return atoi(asked(`SELECT beat FROM headgate.relay_state`)) >= first+4 })
	cancel()
	if err := <-starved; err == nil {
		t.Error("the pool had another connection: the test starves nobody")
	}
	if e := asked(`SELECT epoch FROM headgate.relay_state`); e != "1" || !x.Status().Leads || standby.Status().Leads {
		t.Errorf("the lead was lost: epoch %s", e)
	}
	must(t, tx.Rollback(ctx))
	_, err = pool.Exec(ctx, `SELECT headgate.emit('order.placed', jsonb_build_object('n', i), 'k' || i % 7) FROM generate_series(1, 10) i`)
	must(t, err)
	x.Wait(t, 10)
	r.Verify(10)
}

// slow is a perimeter that takes its time, and notes how much is asked of it at
// once.
type slow struct {
	relay.Admitter
	mu        sync.Mutex
	now, most int
}

func (s *slow) Admit(ctx context.Context, sub perimeter.Submission) []perimeter.Result {
	s.mu.Lock()
	s.now += len(sub.Items)
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	wait := time.NewTimer(5 * time.Millisecond)
	<-wait.C
	results := s.Admitter.Admit(ctx, sub)
	s.mu.Lock()
	s.now -= len(sub.Items)
	s.mu.Unlock()
	return results
}

// A slow broker is asked for no more at once than may be in flight, and its
// slowness is no error.
func TestTrap30SlowBrokerIsNoError(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	s := &slow{Admitter: r.Door}
	x := r.run(func(c *relay.Config) { c.Admit = s; c.InFlight = 8 })
	r.emit(1, 400)
	x.Wait(t, 400)
	r.Verify(400)
	if s.most > 8 {
		t.Errorf("%d rows were in flight, want at most 8", s.most)
	}
	if st := x.Status(); st.Retried != 0 || st.Sessions != 1 {
		t.Errorf("slowness surfaced as an error: %+v", st)
	}
}
