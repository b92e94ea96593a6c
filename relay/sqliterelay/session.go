package sqliterelay

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/relay"
)

// What one read takes at most.
const (
	readRows  = 256
	readBytes = 4 << 20
)

// place is a row by its number and its id. The same id under the same number
// means the same history before it.
type place struct {
	seq int64
	id  string
}

// session reads one database as its only relay.
type session struct {
	src *Source
	cfg Config

	path       string // of the file, without links
	sqliteName string // the same as SQLite has it
	file       os.FileInfo
	lock       *os.File
	db         *sql.DB
	read       *sql.Conn
	write      *sql.Conn
	writing    sync.Mutex // what write does
	again      *sql.Conn  // reads what is set aside
	version    *sql.Stmt
	epoch      int64
	identity   string
	revision   int

	// Of the goroutine that calls Receive.
	last   place // read
	began  int64 // the last row when the session did
	begun  bool  // it was read, which was told
	seen   int64 // data_version
	dirty  bool  // there may be rows behind last
	shown  int64 // data_version of the snapshot that was read last
	synced int64 // the one up to which the log is on the disk
	looked time.Time
	wal    *os.File

	stop   context.CancelFunc
	nudge  chan struct{}
	broken chan struct{} // closed when failed is set
	ended  chan struct{} // closed when the cursor's goroutine is

	mu        sync.Mutex
	failed    error
	unsettled []place // read and not confirmed, in order
	confirmed place   // by the relay
	told      place   // what the database has
}

// fail ends the session.
func (x *session) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failed == nil {
		x.failed = err
		close(x.broken)
	}
}

// Lead implements [relay.Session].
func (x *session) Lead() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.failed
}

// Prove implements [relay.Session]. This source has no marks.
func (x *session) Prove(context.Context, relay.Mark) error { return nil }

// Receive implements [relay.Session]. Every row is a step of its own: SQLite
// does not keep which rows one transaction wrote, and need not, since a row
// that is there is committed.
func (x *session) Receive(ctx context.Context) ([]relay.Change, error) {
	for {
		if err := x.Lead(); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var changes []relay.Change
		if x.dirty {
			var err error
			if changes, err = x.next(ctx); err != nil {
				return nil, err
			}
		}
		if !x.begun && x.last.seq >= x.began {
			x.begun = true
			changes = append(changes, relay.Change{Kind: relay.Present})
		}
		if len(changes) > 0 {
			return changes, nil
		}
		if err := x.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// wait returns when somebody committed, or may have.
func (x *session) wait(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !x.dirty {
		select {
		case <-x.src.wake:
			x.dirty = true
		case <-tick.C:
			if err := x.poll(ctx); err != nil {
				return err
			}
		case <-x.broken:
			return x.Lead()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// poll asks SQLite whether any connection but this one committed, which reads
// no table, and now and then whether the file was replaced: writers who open it
// by its name would not be seen any more.
func (x *session) poll(ctx context.Context) error {
	if now := x.cfg.Now(); now.Sub(x.looked) >= lookEvery {
		x.looked = now
		if !x.same() {
			return errRestored
		}
	}
	var version int64
	if err := x.version.QueryRowContext(ctx).Scan(&version); err != nil {
		return sqlError("asking for commits", err)
	}
	if version != x.seen {
		x.seen, x.dirty = version, true
	}
	return nil
}

// next reads the rows behind the last one. They are handed out only after they
// are certainly on the disk.
func (x *session) next(ctx context.Context) ([]relay.Change, error) {
	x.dirty = false
	rows, err := x.readRows(ctx)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	x.cfg.fault("after read")
	if err := x.syncLog(); err != nil {
		return nil, sqlError("syncing the write-ahead log", err)
	}
	changes := make([]relay.Change, 0, 3*len(rows))
	places := make([]place, len(rows))
	for i := range rows {
		places[i] = rows[i].place
		changes = append(changes, relay.Change{Kind: relay.Begin}, relay.Change{Kind: relay.Insert, Row: rows[i].row},
			relay.Change{Kind: relay.Commit, Position: relay.Position(rows[i].place.seq)})
	}
	x.last = places[len(places)-1]
	x.mu.Lock()
	x.unsettled = append(x.unsettled, places...)
	x.mu.Unlock()
	return changes, nil
}

// readRows reads within one snapshot that this session's epoch counts, that the
// last row read is still there, and what follows it.
func (x *session) readRows(ctx context.Context) (rows []read, err error) {
	if _, err := x.read.ExecContext(ctx, `BEGIN`); err != nil {
		return nil, sqlError("reading the outbox", err)
	}
	defer func() {
		// Nothing was written: how it ends does not matter, but it must.
		if _, end := x.read.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`); end != nil && err == nil {
			err = sqlError("reading the outbox", end)
		}
	}()
	var epoch int64
	var identity, id string
	err = x.read.QueryRowContext(ctx, `SELECT epoch, identity, coalesce((SELECT id FROM headgate_outbox_rows WHERE seq = ?), '') FROM headgate_outbox_state`, x.last.seq).
		Scan(&epoch, &identity, &id)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, sql.ErrNoRows), err != nil && strings.Contains(err.Error(), "no such table"):
		return nil, errRestored
	case err != nil:
		return nil, sqlError("reading the outbox", err)
	case identity != x.identity, x.last.seq > 0 && id != x.last.id:
		return nil, errRestored
	case epoch != x.epoch:
		return nil, errSuperseded
	}
	if err := x.version.QueryRowContext(ctx).Scan(&x.shown); err != nil {
		return nil, sqlError("asking for commits", err)
	}
	return x.behind(ctx)
}

// behind reads the rows behind the last one, as many as one read takes.
func (x *session) behind(ctx context.Context) ([]read, error) {
	got, err := x.read.QueryContext(ctx, selectRows, x.last.seq, readRows)
	if err != nil {
		return nil, sqlError("reading rows", err)
	}
	defer got.Close()
	var rows []read
	for bytes := 0; got.Next(); {
		r, size, err := scanRow(got)
		if err != nil {
			return nil, sqlError("reading rows", err)
		}
		rows = append(rows, r)
		if bytes += size; bytes >= readBytes || len(rows) == readRows {
			x.dirty = true
			return rows, nil
		}
	}
	if err := got.Err(); err != nil {
		return nil, sqlError("reading rows", err)
	}
	return rows, nil
}

// syncLog makes durable whatever was committed, by whomever: a writer with
// synchronous = NORMAL does not wait for the disk, so that a power cut could
// take back what was published already. A checkpoint syncs the log before it
// empties it, so that what is not in the log any more is durable, too. The
// file holds no locks of SQLite, which closing it would release.
func (x *session) syncLog() error {
	if x.cfg.unsynced {
		return nil
	}
	if x.wal != nil && x.shown == x.synced {
		return nil // nobody committed since, as while a backlog is read
	}
	if err := x.syncFile(); err != nil {
		return err
	}
	x.synced = x.shown
	return nil
}

func (x *session) syncFile() error {
	if x.wal != nil {
		return x.wal.Sync()
	}
	f, err := os.OpenFile(x.sqliteName+"-wal", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	x.wal = f // it stays this file while a connection is open
	if err := f.Sync(); err != nil || runtime.GOOS == "windows" {
		return err
	}
	dir, err := os.Open(filepath.Dir(x.sqliteName))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync() // the log's name
}

// disconnect closes whatever is open. Errors: none that anybody could act on,
// since everything that matters was committed before.
func (x *session) disconnect() {
	if x.version != nil {
		_ = x.version.Close()
	}
	for _, conn := range []*sql.Conn{x.read, x.write, x.again} {
		if conn != nil {
			_ = conn.Close()
		}
	}
	if x.db != nil {
		_ = x.db.Close()
	}
	for _, f := range []*os.File{x.wal, x.lock} {
		if f != nil {
			_ = f.Close()
		}
	}
}
