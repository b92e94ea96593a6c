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

// Sessions of the application that are stuck, with every lock that they can
// have, do not keep the relay from renewing its lead: it has connections of its
// own.
func TestTrap19StuckApplicationDoesNotCostTheLead(t *testing.T) {
	t.Parallel() // it has a server of its own
	server := pgtest.Start(t, "wal_level=logical", "max_connections=12", "superuser_reserved_connections=0")
	r := newRig(t, server.URL())
	src := r.sourceOf(pgrelay.Config{Beat: 1500 * time.Millisecond})
	c := r.connect()
	ctx := context.Background()
	tx, err := c.Begin(ctx)
	must(t, err)
	_, err = tx.Exec(ctx, `LOCK TABLE headgate.outbox IN ACCESS EXCLUSIVE MODE`) // the upkeep of partitions has to wait
	must(t, err)
	x := r.run(func(c *relay.Config) { c.Source = src })
	beat := func() int { return atoi(pgtest.Exec(t, r.db, `SELECT beat FROM headgate.relay_state`)[0][0]) }
	r.until("the first heartbeat", func() bool { return beat() > 0 })
	r.until("heartbeats go on", func() bool { return beat() >= 4 })
	if e := pgtest.Exec(t, r.db, `SELECT epoch FROM headgate.relay_state`)[0][0]; e != "1" || !x.Status().Leads {
		t.Errorf("the lead was lost: epoch %s", e)
	}
	must(t, tx.Rollback(ctx))
	r.emit(1, 10)
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
