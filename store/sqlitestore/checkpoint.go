package sqlitestore

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	sqlite3 "github.com/ncruces/go-sqlite3"
)

// The write-ahead log in pages of 4 KiB. From checkpointPages on, the
// checkpointer copies it into the database beside the writer. Under load it
// never catches up by itself, so the writer adds the little that is left each
// time the checkpointer is through. The log then starts anew at the next
// moment without readers in it. When none came until maxLogPages (64 MiB), the
// writer makes one: it lets the Views of the moment end and no new one begin,
// for as long as logWait. SQLite's own waiting would not do: it has four marks
// for readers, and more readers than that keep each other's marks alive.
const (
	checkpointPages = 1000
	maxLogPages     = 16384
	logWait         = 2 * time.Second
)

// checkpointer copies the log in the background.
type checkpointer struct {
	conn    *conn
	log     *slog.Logger
	wake    chan struct{}
	turn    sync.Mutex // held by whoever runs a checkpoint: SQLite refuses a second
	through atomic.Bool
	done    chan struct{}
}

func (c *checkpointer) run() {
	defer close(c.done)
	for range c.wake {
		c.turn.Lock()
		passive(c.conn, c.log)
		c.turn.Unlock()
		c.through.Store(true)
	}
}

// passive copies what it can without waiting for anybody.
func passive(c *conn, log *slog.Logger) {
	// Busy: a commit changed the log's index this very moment. The next
	// commit asks again.
	_, _, err := c.db.WALCheckpoint("main", sqlite3.CHECKPOINT_PASSIVE)
	if err != nil && !errors.Is(err, sqlite3.BUSY) {
		log.Warn("store checkpoint failed", "error", err)
	}
}

// logWatch sees the log grow. It belongs to the writer's goroutine.
type logWatch struct {
	conn    *conn
	log     *slog.Logger
	checks  *checkpointer
	readers *readers
	pages   int           // in the log after the last commit
	most    int           // maxLogPages
	wait    time.Duration // logWait
	limit   int           // where the writer steps in: most, or beyond when it failed
}

// committed is the hook of SQLite that runs after each commit.
func (l *logWatch) committed(_ *sqlite3.Conn, _ string, pages int) error {
	l.pages = pages
	if pages >= checkpointPages {
		select {
		case l.checks.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// settle keeps the log short. It runs between groups.
func (l *logWatch) settle() {
	if l.pages < min(l.limit, checkpointPages) {
		return
	}
	if l.pages < l.limit {
		if l.checks.through.Load() && l.checks.turn.TryLock() {
			l.checks.through.Store(false)
			passive(l.conn, l.log)
			l.checks.turn.Unlock()
		}
		return
	}
	l.checks.turn.Lock()
	defer l.checks.turn.Unlock()
	if err := l.truncate(); err != nil {
		l.limit = l.pages + l.most/2
		l.log.Warn("store log cannot be emptied", "pages", l.pages, "error", err)
		return
	}
	l.pages, l.limit = 0, l.most
}

func (l *logWatch) truncate() error {
	resume := l.readers.pause(l.wait)
	defer resume()
	// Others than Views may read as well: a backup, a foreign process.
	if err := l.conn.db.BusyTimeout(l.wait / 10); err != nil {
		return err
	}
	_, _, err := l.conn.db.WALCheckpoint("main", sqlite3.CHECKPOINT_TRUNCATE)
	if restore := l.conn.db.BusyTimeout(busyWait); err == nil {
		err = restore
	}
	return err
}
