package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	sqlite3 "github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/sqlstore"
)

// faultFS is the host's file system with faults on demand in the log.
type faultFS struct {
	vfs.VFS
	sync  atomic.Pointer[error] // of the log
	write atomic.Pointer[error] // of the log
	syncs atomic.Int64          // of the log
}

func (f *faultFS) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	file, flags, err := f.VFS.(vfs.VFSFilename).OpenFilename(name, flags)
	if err != nil {
		return nil, flags, err
	}
	return &faultFile{File: file, fs: f, log: flags&vfs.OPEN_WAL != 0}, flags, nil
}

type faultFile struct {
	vfs.File
	fs  *faultFS
	log bool
}

func (f *faultFile) SharedMemory() vfs.SharedMemory {
	return f.File.(vfs.FileSharedMemory).SharedMemory()
}

func (f *faultFile) Sync(flags vfs.SyncFlag) error {
	if f.log {
		f.fs.syncs.Add(1)
		if err := f.fs.sync.Load(); err != nil {
			return *err
		}
	}
	return f.File.Sync(flags)
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.write.Load(); f.log && err != nil {
		return 0, *err
	}
	return f.File.WriteAt(p, off)
}

func openFaulty(t *testing.T) (*Store, *faultFS) {
	t.Helper()
	fs := &faultFS{VFS: vfs.Find("os")}
	name := "fault-" + strings.ReplaceAll(t.Name(), "/", "-")
	vfs.Register(name, fs)
	t.Cleanup(func() { vfs.Unregister(name) })
	return openTest(t, Config{Path: filepath.Join(t.TempDir(), "it's 100%?#.db"), vfs: name}), fs
}

func put(key string) sqlstore.Function {
	return func(ctx context.Context, tx *store.Tx) error { return tx.Settings.Put(ctx, key, []byte("v")) }
}

func keys(t *testing.T, s *Store) (n int) {
	t.Helper()
	if err := s.View(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		all, err := tx.Settings.List(ctx, "")
		n = len(all)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestFailedCommits(t *testing.T) {
	for name, c := range map[string]struct {
		fault   error
		arm     func(*faultFS, *error)
		code    headgate.Code
		outcome headgate.Outcome
	}{
		"fsync fails": {
			sqlite3.IOERR_FSYNC, func(f *faultFS, e *error) { f.sync.Store(e) },
			headgate.CodeUnknownOutcome, headgate.Unknown,
		},
		"write fails": {
			sqlite3.IOERR_WRITE, func(f *faultFS, e *error) { f.write.Store(e) },
			headgate.CodeUnknownOutcome, headgate.Unknown,
		},
		"disk full": {
			vfs.SystemError(syscall.ENOSPC, sqlite3.FULL), func(f *faultFS, e *error) { f.write.Store(e) },
			headgate.CodeDiskFull, headgate.NotApplied,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, fs := openFaulty(t)
			if err := s.Update(t.Context(), put("before")); err != nil {
				t.Fatal(err)
			}
			c.arm(fs, &c.fault)
			for i := range 3 {
				err := s.Update(t.Context(), put(fmt.Sprint("failed", i)))
				if headgate.CodeOf(err) != c.code || headgate.AsError(err).Info().Outcome != c.outcome {
					t.Errorf("Update: %v", err)
				}
			}
			if n := keys(t, s); n != 1 {
				t.Errorf("a View sees %d settings while the disk fails", n)
			}
			c.arm(fs, nil)
			if err := s.Update(t.Context(), put("after")); err != nil {
				t.Errorf("Update after the disk recovered: %v", err)
			}
			if n := keys(t, s); n != 2 {
				t.Errorf("%d settings, want 2", n)
			}
		})
	}
}

// TestEveryCommitIsSynced counts fsyncs of the log: none less than commits.
func TestEveryCommitIsSynced(t *testing.T) {
	s, fs := openFaulty(t)
	before := fs.syncs.Load()
	const n = 50
	for i := range n {
		if err := s.Update(t.Context(), put(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if got := fs.syncs.Load() - before; got < n {
		t.Errorf("%d commits took %d fsyncs", n, got)
	}
}

// occupy keeps the writer busy until free is called, so that what comes
// meanwhile makes one group. It gives one result.
func occupy(t *testing.T, s *Store, results chan<- error) (free func()) {
	t.Helper()
	block, entered := make(chan struct{}), make(chan struct{})
	enter := sync.OnceFunc(func() { close(entered) }) // it may run more than once
	go func() {
		results <- s.Update(t.Context(), func(context.Context, *store.Tx) error { enter(); <-block; return nil })
	}()
	<-entered
	return func() { close(block) }
}

// TestFullDatabase: a statement that finds the database full fails alone.
func TestFullDatabase(t *testing.T) {
	s := openTest(t, Config{})
	pages, err := s.writer.conn.int64Pragma("page_count")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.writer.conn.int64Pragma(fmt.Sprint("max_page_count=", pages+20)); err != nil {
		t.Fatal(err)
	}
	results := make(chan error, 31)
	free := occupy(t, s, results)
	for i := range 30 {
		go func() {
			if i%10 != 3 {
				results <- s.Update(t.Context(), put(fmt.Sprint("small", i)))
				return
			}
			err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				if err := tx.Settings.Put(ctx, "first", nil); err != nil {
					return err
				}
				return tx.Settings.Put(ctx, "large", make([]byte, 1<<20))
			})
			if headgate.CodeOf(err) != headgate.CodeDiskFull {
				results <- fmt.Errorf("large value: %w", errors.Join(err, errors.New("want disk_full")))
				return
			}
			results <- nil
		}()
	}
	free()
	for range 31 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := keys(t, s); n != 27 {
		t.Errorf("%d settings, want 27", n)
	}
}

// TestLostTransaction ends the transaction under its group, as SQLite does on
// some failures: the neighbours run again.
func TestLostTransaction(t *testing.T) {
	s := openTest(t, Config{})
	results := make(chan error, 21)
	free := occupy(t, s, results)
	for i := range 20 {
		go func() {
			if i%5 != 2 {
				results <- s.Update(t.Context(), put(fmt.Sprint("small", i)))
				return
			}
			err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				if err := tx.Settings.Put(ctx, "lost", nil); err != nil {
					return err
				}
				return s.writer.conn.db.Exec("ROLLBACK") // and swallow it
			})
			if headgate.CodeOf(err) != headgate.CodeUnavailable {
				results <- fmt.Errorf("the function that lost the transaction: %w", errors.Join(err, errors.New("want unavailable")))
				return
			}
			results <- nil
		}()
	}
	free()
	for range 21 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := keys(t, s); n != 16 {
		t.Errorf("%d settings, want 16", n)
	}
}
