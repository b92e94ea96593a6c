package pgrelay_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/headgate/headgate/broker/membroker"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/jackc/pgx/v5/pgconn"
)

func (r *rig) quiet() bool {
	r.t.Helper()
	s, err := pgrelay.Inspect(context.Background(), r.db)
	return err == nil && s.Repair == "" && s.Active
}

// behind makes a rig whose database is reached through a wire, which can be led
// to another server.
func behind(t *testing.T, server *pgtest.Cluster) (*rig, *wire) {
	t.Helper()
	w, through := newWire(t, server.URL())
	r := newRigOn(t, through, membroker.New(membroker.Config{}))
	return r, w
}

// lead makes the wire end at another server from now on.
func (w *wire) lead(t *testing.T, to *pgtest.Cluster) {
	t.Helper()
	u, err := url.Parse(to.URL())
	must(t, err)
	w.cut()
	w.mu.Lock()
	w.to = u.Host
	w.mu.Unlock()
	w.mend()
}

// A standby is promoted while the relay is in the middle of its work. It has no
// slot, or none that counts: what it has committed is read from its table, once.
func TestTrap32Failover(t *testing.T) {
	t.Parallel() // it has servers of its own
	primary := pgtest.Start(t, "wal_level=logical", "max_wal_senders=10")
	r, w := behind(t, primary)
	x := r.run(nil)
	r.emit(1, 50)
	x.Wait(t, 50)
	x.Stop()
	primary.Stop()
	standby := primary.Clone(false)
	primary.Restart()
	u, err := url.Parse(primary.URL())
	must(t, err)
	standby.Set("primary_conninfo=host=127.0.0.1 port=" + u.Port() + " user=headgate")
	standby.Demote()
	standby.Restart()
	x = r.run(nil)
	r.emit(51, 80)
	x.Wait(t, 30)
	g := newGate(r.Door) // the last rows are read by a relay that submits nothing
	x.Stop()
	x = r.run(func(c *relay.Config) { c.Admit = g; c.Drain = 1 })
	r.emit(81, 100)
	<-g.entered
	r.until("the standby has everything", func() bool {
		return pgtest.Exec(t, standby.URL(), `SELECT count(*) FROM headgate.outbox`)[0][0] == "100"
	})
	primary.Crash()
	pgtest.Exec(t, standby.URL(), `SELECT pg_promote()`)
	w.lead(t, standby)
	g.lift()
	r.until("all are stored, and the stream is back", func() bool { return len(r.Stored()) >= 100 && r.quiet() })
	r.emit(101, 110)
	r.until("the stream goes on", func() bool { return len(r.Stored()) >= 110 })
	r.Verify(110)
	x.Stop()
}

// The files of an old backup are put back: transaction numbers and positions of
// the log come again for other rows, and none of them is taken for an old one.
func TestTrap33PositionsComeAgain(t *testing.T) {
	t.Parallel() // it has servers of its own
	server := pgtest.Start(t, "wal_level=logical")
	r, w := behind(t, server)
	x := r.run(nil)
	r.emit(1, 10)
	x.Wait(t, 10)
	x.Stop()
	server.Stop()
	backup := server.Clone(true)
	server.Restart()
	x = r.run(nil)
	end := func() string { return pgtest.Exec(t, r.db, `SELECT pg_current_wal_insert_lsn()`)[0][0] }
	r.emit(11, 40)
	x.Wait(t, 30)
	x.Stop()
	reached := end()
	server.Stop()
	backup.Restart()
	w.lead(t, backup)
	if end() >= reached {
		t.Fatalf("the restored server stands at %s, not before %s", end(), reached)
	}
	x = r.run(nil)
	r.emit(41, 70) // where 11 to 40 were
	r.until("all are stored, and the stream is back", func() bool { return len(r.Stored()) >= 70 && r.quiet() })
	r.Verify(70)
	x.Stop()
}

// A pooler hands out no replication connections: it is told from a server, by
// the relay and by the doctor.
func TestTrap39PoolerIsRefused(t *testing.T) {
	r := newRig(t, pgtest.URL(t))
	_, through := newWire(t, r.db)
	pooler := poolerBefore(t, through)
	src, err := pgrelay.New(pgrelay.Config{URL: pooler})
	must(t, err)
	_, err = src.Open(context.Background())
	wantPooled(t, err)
	found, err := pgrelay.Doctor(context.Background(), pooler)
	must(t, err)
	told := false
	for _, f := range found {
		told = told || f.Severity == "error" && f.Fix == "A pooler stands between. Give the address of the PostgreSQL server itself."
	}
	if !told {
		t.Errorf("the doctor finds %+v", found)
	}
	if _, err := pgconn.Connect(context.Background(), pooler); err != nil {
		t.Errorf("the pooler of this test lets nobody through: %v", err)
	}
}
