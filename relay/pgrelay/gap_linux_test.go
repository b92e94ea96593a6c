package pgrelay_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/relaytest"
)

// A commit can be seen before it lets go of its locks: heartbeats that see it
// prove nothing of it before it was found. The prepared transaction dropped tables,
// whose files its commit leaves to the checkpointer in between, which stands still
// and takes so many at most.
func TestCommitSeenBeforeItsLocksAreGone(t *testing.T) {
	t.Parallel() // it has a server of its own
	server := stalling(t, "shared_buffers=1MB")
	r := server.relayed(t)
	const tables = `DO $$ BEGIN FOR i IN 1..200 LOOP EXECUTE 'VERB TABLE public.old_' || i || 'REST'; END LOOP; END $$; `
	r.exec(strings.NewReplacer("VERB", "CREATE", "REST", " (x int)").Replace(tables))
	r.exec(`BEGIN; ` + lateEvent(11) + `; ` + strings.NewReplacer("VERB", "DROP", "REST", "").Replace(tables) + `PREPARE TRANSACTION 'late'`)
	r.exec(gaveUp)
	server.stall()
	ended := r.late(11, `COMMIT PREPARED 'late'`)
	x := r.run(nil)
	r.until("the relay waits for it no longer", r.waitsForWriters)
	r.emit(12, 20)
	x.Wait(t, 9)

	checkpointer := pgtest.Exec(t, r.db, `SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'`)[0][0]
	signal(t, checkpointer, syscall.SIGSTOP)
	goOn := func() {
		_ = syscall.Kill(atoi(checkpointer), syscall.SIGCONT) // it may have ended
		server.arrive()
	}
	t.Cleanup(goOn)
	r.exec(`SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COMMIT PREPARED%' AND datname = current_database()`)
	r.until("it can be seen", func() bool {
		return pgtest.Exec(t, r.db, `SELECT count(*) FROM headgate.outbox WHERE key = 'late'`)[0][0] == "1"
	})
	if n := pgtest.Exec(t, r.db, `SELECT count(*) FROM pg_locks WHERE relation = 'headgate.outbox'::regclass AND mode = 'RowExclusiveLock' AND pid IS NULL`)[0][0]; n != "1" {
		t.Fatalf("%s locks are held by what was prepared", n)
	}
	r.until("it counts as proven", r.allProven)
	found := false
	for _, s := range r.Stored() {
		found = found || relaytest.Number(t, s) == 11
	}
	if !found {
		t.Error("what is proven to be published is not stored")
	}
	goOn()
	must(t, <-ended)
	r.until("the repair ends", func() bool { return len(r.Stored()) >= 20 && r.quiet() })
	r.Verify(20)
	x.Stop()
}
