package sqlitestore

import (
	"errors"
	"log/slog"
	"time"

	sqlite3 "github.com/ncruces/go-sqlite3"
)

// The write-ahead log in pages of 4 KiB. From checkpointPages on the
// checkpointer copies it into the database beside the writer. It starts anew
// only at a moment without readers in it; when none came until maxLogPages
// (64 MiB), the writer makes one: it waits for the readers of the moment, up
// to logWait, while new ones read the database itself.
const (
	checkpointPages = 1000
	maxLogPages     = 16384
	logWait         = 2 * time.Second
)

// checkpointer copies the log in the background.
type checkpointer struct {
	conn *conn
	log  *slog.Logger
	wake chan struct{}
	done chan struct{}
}

func (c *checkpointer) run() {
	defer close(c.done)
	for range c.wake {
		// Busy: a commit changed the log's index this very moment. The next
		// commit asks again.
		_, _, err := c.conn.db.WALCheckpoint("main", sqlite3.CHECKPOINT_PASSIVE)
		if err != nil && !errors.Is(err, sqlite3.BUSY) {
			c.log.Warn("store checkpoint failed", "error", err)
		}
	}
}

// logWatch sees the log grow. It belongs to the writer's goroutine.
type logWatch struct {
	conn  *conn
	log   *slog.Logger
	pages int           // in the log after the last commit
	limit int           // where the writer steps in
	wake  chan struct{} // of the checkpointer; nil without one
}

// committed is the hook of SQLite that runs after each commit.
func (l *logWatch) committed(_ *sqlite3.Conn, _ string, pages int) error {
	l.pages = pages
	if pages < checkpointPages || l.wake == nil {
		return nil
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return nil
}

// settle empties the log when it is too long. It runs between groups.
func (l *logWatch) settle() {
	if l.pages < l.limit {
		return
	}
	if err := l.truncate(); err != nil {
		l.limit = l.pages + maxLogPages/2
		l.log.Warn("store log cannot be emptied", "pages", l.pages, "error", err)
		return
	}
	l.pages, l.limit = 0, maxLogPages
}

func (l *logWatch) truncate() error {
	if err := l.conn.db.BusyTimeout(logWait); err != nil {
		return err
	}
	_, _, err := l.conn.db.WALCheckpoint("main", sqlite3.CHECKPOINT_TRUNCATE)
	if restore := l.conn.db.BusyTimeout(busyWait); err == nil {
		err = restore
	}
	return err
}
