package fencepg_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
)

// smallDisk is a file system of its own.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "headgate-disk-")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size+",mode=1777"); err != nil {
		_ = os.Remove(dir) // empty
		absent(t, "file systems cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(syscall.Unmount(dir, syscall.MNT_DETACH), os.Remove(dir)); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// The disk under the database fills up, until nothing is stored any more, and
// then it has room again. What was acknowledged is there, what failed is not,
// no grant was given that is not stored, and a superseded holder is refused
// before, meanwhile and after.
//
// A disk without room for the server's log ends the server; one without room
// for a table ends the transaction.
func TestFullDisk(t *testing.T) {
	t.Run("log", func(t *testing.T) {
		disk := smallDisk(t, "128m")
		t.Setenv("TMPDIR", disk) // the server's folder lies there
		fillDisk(t, disk, 16<<20)
	})
	t.Run("table", func(t *testing.T) {
		disk := smallDisk(t, "8m")
		fillDisk(t, disk, 1<<20, "COPY (SELECT) TO PROGRAM 'cat >/dev/null; mkdir "+disk+"/t'", "CREATE TABLESPACE small LOCATION '"+disk+"/t'")
	})
}

func fillDisk(t *testing.T, disk string, spare int, before ...string) {
	ctx := t.Context()
	c := pgtest.Start(t, "max_connections=30", "wal_level=minimal", "max_wal_senders=0", "min_wal_size=32MB", "max_wal_size=32MB", "autovacuum=off")
	for _, sql := range before {
		pgtest.Exec(t, c.URL(), sql)
	}
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, spare), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, c.URL(), byRows)
	pgtest.Exec(t, c.URL(), "CREATE TABLE big (id int PRIMARY KEY, body bytea)"+map[bool]string{true: " TABLESPACE small"}[len(before) > 0]+"; ALTER TABLE big ALTER body SET STORAGE EXTERNAL")
	old := r.acquire(ctx, 1, 1, time.Minute)
	if old == nil {
		t.Fatal("the lease was not granted")
	}
	pgtest.Exec(t, c.URL(), "UPDATE headgate.leases SET expires = 0") // somebody else may have it
	now := r.acquire(ctx, 2, 1, time.Hour)
	if now == nil {
		t.Fatal("the lease was not granted")
	}
	body := make([]byte, 200<<10)
	if _, err := rand.Read(body); err != nil {
		t.Fatal(err)
	}
	write := func(f fence.Fence, id int) error {
		return new(fencepg.DB).Tx(ctx, r.pool, f, pgx.TxOptions{}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO rows (id, resource, epoch) VALUES ($1, $2, $3)", id, f.Resource, f.Epoch); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "INSERT INTO big VALUES ($1, $2)", id, body)
			return err
		})
	}
	want(t, "stale, before", write(*old, 1_000_000), headgate.CodeStaleFence)
	acked, failed, granted := map[int]bool{}, map[int]bool{}, map[string]int64{}
	unknown := 0
	for id := 1; len(failed)+unknown < 20 && id < 2000; id++ {
		err := write(*now, id)
		e := headgate.AsError(err)
		switch {
		case err == nil:
			acked[id] = true
		case e != nil && e.Outcome == headgate.Unknown:
			unknown++
		default:
			failed[id] = true
			want(t, "stale, on a full disk", refusedOrDown(write(*old, 1_000_000)), headgate.CodeStaleFence)
			name := resource(id)
			g, err := r.service.Acquire(ctx, agent("agent"), lease.Request{Resources: []string{name}, TTL: time.Hour})
			if err == nil {
				granted[name] = g[0].Epoch
			}
		}
	}
	if len(failed) == 0 {
		t.Fatalf("the disk did not fill up in %d writes", len(acked))
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	c.Crash() // it may have ended itself when its log found no room
	c.Restart()
	r.pool.Reset()
	there := map[int]bool{}
	rows, err := r.pool.Query(ctx, "SELECT r.id FROM rows r JOIN big b ON b.id = r.id AND length(b.body) = $1", len(body))
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		there[id] = true
	}
	for id := range acked {
		if !there[id] {
			t.Errorf("write %d was acknowledged and is gone", id)
		}
	}
	for id := range failed {
		if there[id] {
			t.Errorf("write %d failed and is there", id)
		}
	}
	for name, epoch := range granted {
		if n := count(t, r.pool, "SELECT count(*) FROM headgate.leases WHERE resource = '"+name+"' AND epoch >= "+strconv.FormatInt(epoch, 10)); n != 1 {
			t.Errorf("the grant %d of %s is gone", epoch, name)
		}
	}
	want(t, "stale, after", write(*old, 1_000_000), headgate.CodeStaleFence)
	want(t, "the holder goes on", write(*now, 1_000_001), "")
	t.Logf("%d acknowledged, %d failed, %d unknown, %d leases granted meanwhile", len(acked), len(failed), unknown, len(granted))
}

// refusedOrDown takes a server that cannot answer for a refusal: nothing was
// written either way.
func refusedOrDown(err error) error {
	if err != nil && headgate.AsError(err) == nil {
		return headgate.NewError(headgate.CodeStaleFence, "the server was down")
	}
	return err
}

// A server that takes reads only, as one that recovers or was set so, lets
// nobody write, holder or not, and grants nothing.
func TestReadOnlyServer(t *testing.T) {
	ctx := t.Context()
	url := newDatabase(t)
	r := newRig(t, url, byRows)
	f := r.acquire(ctx, 1, 1, time.Hour)
	if f == nil {
		t.Fatal("the lease was not granted")
	}
	pgtest.Exec(t, url, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$")
	r.pool.Reset()
	err := new(fencepg.DB).Tx(ctx, r.pool, *f, pgx.TxOptions{}, func(tx pgx.Tx) error {
		t.Error("the function ran")
		_, err := tx.Exec(context.WithoutCancel(ctx), "INSERT INTO rows (id, resource, epoch) VALUES (1, $1, $2)", f.Resource, f.Epoch)
		return err
	})
	if fencepg.State(err) != "25006" {
		t.Errorf("a fenced transaction: %v, want read_only_sql_transaction", err)
	}
	if n := count(t, r.pool, "SELECT count(*) FROM rows"); n != 0 {
		t.Errorf("%d rows", n)
	}
}
