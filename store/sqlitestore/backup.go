package sqlitestore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/internal/sqlstore"
)

// Backup writes a consistent copy of the store into a new file, beside
// readers and writers, and makes it durable. It fails with conflict when the
// file exists. A copy is a whole database: put it in the place of a lost one
// while no node runs, without the -wal and -shm files of the old one.
func (s *Store) Backup(ctx context.Context, path string) error {
	return s.queue.Read(func() error { return s.backup(ctx, path) })
}

func (s *Store) backup(ctx context.Context, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return headgate.NewError(headgate.CodeConflict, "the backup %q exists", sqlstore.Clip(path))
	}
	partial := path + ".partial"
	if err := os.Remove(partial); err != nil && !errors.Is(err, os.ErrNotExist) {
		return backupError(err)
	}
	// Created here, so that nobody else can read it.
	f, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return backupError(err)
	}
	defer f.Close()
	if err := s.copyTo(ctx, partial); err != nil {
		return errors.Join(backupError(err), os.Remove(partial))
	}
	if err := f.Sync(); err != nil {
		return backupError(err)
	}
	// A link, unlike a rename, never takes the place of a file that came
	// meanwhile.
	if err := os.Link(partial, path); err != nil {
		return backupError(err)
	}
	return backupError(errors.Join(os.Remove(partial), syncDir(filepath.Dir(path))))
}

// copyTo writes what one snapshot sees, without free pages, into an empty
// file.
func (s *Store) copyTo(ctx context.Context, file string) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	restore := c.interruptible(ctx)
	err = c.db.Exec("VACUUM INTO '" + strings.ReplaceAll(file, "'", "''") + "'")
	restore()
	return errors.Join(err, c.close())
}

func backupError(err error) error {
	if err == nil {
		return nil
	}
	e := headgate.AsError(storeError(err))
	if e.Code == headgate.CodeInternal {
		e = headgate.NewError(headgate.CodeUnavailable, "the backup failed: %v", err)
	}
	return e
}

// Check reads the whole database and reports damage (internal, with what was
// found first). It takes time in proportion to the size.
func (s *Store) Check(ctx context.Context) error {
	return s.queue.Read(func() error { return s.check(ctx) })
}

func (s *Store) check(ctx context.Context) error {
	c, err := s.connect("query_only=ON")
	if err != nil {
		return storeError(err)
	}
	defer c.close()
	defer c.interruptible(ctx)()
	st, _, err := c.db.Prepare("PRAGMA quick_check(1)")
	if err != nil {
		return storeError(err)
	}
	defer st.Close()
	if !st.Step() {
		return storeError(st.Err())
	}
	if found := st.ColumnText(0); found != "ok" {
		return &headgate.Error{
			Code: headgate.CodeInternal, Outcome: headgate.NotApplied, Detail: "the store's database is damaged: " + sqlstore.Clip(found),
			Fix: "Stop the node and restore the database from a backup.",
		}
	}
	return nil
}
