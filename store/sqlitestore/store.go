package sqlitestore

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	sqlite3 "github.com/ncruces/go-sqlite3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/filelock"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/sqlstore"
)

// busyWait is how long a statement waits for a foreign process that looks
// into the database (a backup, the sqlite3 shell).
const busyWait = 5 * time.Second

// lockSuffix names the file whose lock keeps other processes out.
const lockSuffix = ".lock"

// Config configures a store. The zero value of each field means its default.
type Config struct {
	// Path is the database file. Its folder is created when missing. Beside it
	// lie PATH-wal, PATH-shm and PATH.lock.
	Path string
	// Memory keeps nothing: the database lives in a temporary folder that
	// Close removes, and is never fsynced. Path is ignored. What a killed
	// process left is removed by the next one.
	Memory bool
	// Relaxed gives up durability against power loss for speed: commits are
	// not fsynced. They still survive a crash of the process.
	Relaxed bool
	// Readers bounds the Views that run at once; default 2 per CPU, at least 4.
	Readers int
	// Logger is for faults that nobody is answered with; default slog.Default.
	Logger *slog.Logger

	vfs string           // a file system of SQLite's other than the host's, for tests
	now func() time.Time // default time.Now
}

// Store is the store. It implements store.Store.
type Store struct {
	cfg      Config
	file     string
	lock     *os.File
	schema   int
	queue    *sqlstore.Queue
	writer   *writer
	watch    *logWatch
	readers  *readers
	checks   *checkpointer
	clock    *clock
	close    sync.Once
	closeErr error
}

var _ store.Store = (*Store)(nil)

// Open opens the database, creates it when it is missing and brings its schema
// up to date. It fails with unavailable when another process has it open, and
// with invalid_config when the file is not a database of Headgate or of a
// newer version.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, sqlstore.Abandoned(ctx)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	cfg.Readers = cmp.Or(max(cfg.Readers, 0), max(4, 2*runtime.GOMAXPROCS(0)))
	s := &Store{cfg: cfg, clock: newClock(cfg.now)}
	if err := s.open(); err != nil {
		s.release()
		return nil, openError(s.file, err)
	}
	return s, nil
}

func (s *Store) open() error {
	if err := s.place(); err != nil {
		return err
	}
	c, err := s.connect("cache_size=-16384", "wal_autocheckpoint=0", "journal_size_limit=67108864")
	if err != nil {
		return err
	}
	s.watch = &logWatch{conn: c, log: s.cfg.Logger, most: maxLogPages, limit: maxLogPages, wait: logWait}
	s.queue = sqlstore.NewQueue()
	s.writer = &writer{conn: c, queue: s.queue, log: s.cfg.Logger, after: s.watch.settle, ended: make(chan struct{})}
	migrations, err := sqlstore.Migrations(migrationFiles)
	if err != nil {
		return err
	}
	// Before anything is written: what is not ours stays as it is.
	if _, err := schemaVersion(c, len(migrations)); err != nil {
		return err
	}
	if err := c.useLog(); err != nil {
		return err
	}
	if err := migrate(c, migrations, len(migrations)); err != nil {
		return err
	}
	s.schema = len(migrations)
	if err := s.clock.restore(c); err != nil {
		return err
	}
	if err := s.restrict(); err != nil {
		return err
	}
	if err := s.syncFolder(); err != nil {
		return err
	}
	cc, err := s.connect("wal_autocheckpoint=0")
	if err != nil {
		return err
	}
	s.checks = &checkpointer{conn: cc, log: s.cfg.Logger, wake: make(chan struct{}, 1), done: make(chan struct{})}
	s.watch.checks = s.checks
	s.readers = newReaders(s.cfg.Readers, s.cfg.Logger, func() (*conn, error) {
		return s.connect("cache_size=-4096", "query_only=ON")
	})
	s.watch.readers = s.readers
	c.db.WALHook(s.watch.committed)
	go s.checks.run()
	go s.writer.run()
	return nil
}

// place prepares the folder and takes the lock.
func (s *Store) place() error {
	s.file = s.cfg.Path
	if s.cfg.Memory {
		file, err := memoryPlace()
		if err != nil {
			return err
		}
		s.file = file
	}
	if s.file == "" {
		return headgate.NewError(headgate.CodeInvalidConfig, "the store needs a path")
	}
	if err := os.MkdirAll(filepath.Dir(s.file), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(s.file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	// Under one name, whichever link leads there: the lock goes by it.
	if s.file, err = filepath.Abs(s.file); err != nil {
		return err
	}
	if s.file, err = filepath.EvalSymlinks(s.file); err != nil {
		return err
	}
	lock, err := os.OpenFile(s.file+lockSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	s.lock = lock
	held, err := filelock.Try(lock)
	if err != nil {
		return err
	}
	if !held {
		return &headgate.Error{
			Code: headgate.CodeUnavailable, Detail: "another process has " + strconv.Quote(s.file) + " open",
			Fix: "Stop the other node, or give this one a data folder of its own.",
		}
	}
	return nil
}

// restrict keeps other users of the host from reading the database and what
// SQLite created beside it.
func (s *Store) restrict() error {
	if runtime.GOOS == "windows" {
		return nil
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Chmod(s.file+suffix, 0o600); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// connect opens one more connection to the database.
func (s *Store) connect(pragmas ...string) (*conn, error) {
	sync := "synchronous=FULL"
	switch {
	case s.cfg.Memory:
		sync = "synchronous=OFF"
	case s.cfg.Relaxed:
		sync = "synchronous=NORMAL"
	}
	common := []string{
		"busy_timeout=" + strconv.FormatInt(busyWait.Milliseconds(), 10),
		sync, "temp_store=MEMORY", "trusted_schema=OFF", "cell_size_check=ON",
	}
	c, err := openConn(s.file, s.cfg.vfs, append(common, pragmas...)...)
	if err != nil {
		return nil, err
	}
	c.clock = s.clock
	return c, nil
}

// syncFolder makes the names of the database and its log durable, and the end
// of the journal that the switch to a log needed. Without it, a power cut could
// take a log whose content was fsynced, or bring that journal back, which
// would undo the switch and all that came after it.
func (s *Store) syncFolder() error {
	if s.cfg.Memory {
		return nil
	}
	return errors.Join(syncDir(filepath.Dir(s.file)), syncDir(filepath.Dir(filepath.Dir(s.file))))
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" { // which has no such call
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	return s.queue.Update(ctx, fn)
}

// View implements store.Store. Cancelling ctx also interrupts a query that
// runs.
func (s *Store) View(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	return s.queue.Read(func() error { return s.readers.view(ctx, fn) })
}

// Info implements store.Store.
func (s *Store) Info() store.Info {
	i := store.Info{Driver: "sqlite", Schema: s.schema}
	switch {
	case s.cfg.Memory:
		i.Words = "Control state is kept for this run only: nothing survives the process."
	case s.cfg.Relaxed:
		i.Words = "Control state survives a crash of the process, not power loss: commits are not fsynced (relaxed)."
	default:
		i.Durable = true
		i.Words = "Control state survives power loss of this host: every commit is fsynced."
	}
	return i
}

// Close implements store.Store. Calls that began are waited for; later ones
// fail with draining.
func (s *Store) Close() error {
	s.close.Do(func() {
		s.queue.Close()
		<-s.writer.ended
		s.queue.WaitReads()
		close(s.checks.wake)
		<-s.checks.done
		s.closeErr = s.release()
	})
	return s.closeErr
}

// release closes what is open, in an order that lets the last connection, the
// writer's, move the log into the database and remove it.
func (s *Store) release() error {
	var errs []error
	if s.readers != nil {
		errs = append(errs, s.readers.close())
	}
	if s.checks != nil {
		errs = append(errs, s.checks.conn.close())
	}
	if s.writer != nil {
		errs = append(errs, s.writer.conn.close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	if s.cfg.Memory && s.file != "" {
		errs = append(errs, os.RemoveAll(filepath.Dir(s.file)))
	}
	return storeError(errors.Join(errs...))
}

// openError gives a failure to open its code and names the file.
func openError(file string, err error) error {
	if headgate.AsError(err) != nil {
		return err
	}
	quoted := strconv.Quote(sqlstore.Clip(file))
	switch {
	case errors.Is(err, sqlite3.NOTADB):
		return headgate.NewError(headgate.CodeInvalidConfig, "%s is not a database: %v", quoted, err)
	case errors.Is(err, sqlite3.CORRUPT):
		e := headgate.NewError(headgate.CodeInternal, "the database %s is damaged: %v", quoted, err)
		e.Outcome, e.Fix = headgate.NotApplied, "Restore it from a backup."
		return e
	}
	return headgate.NewError(headgate.CodeUnavailable, "the store cannot open %s: %v", quoted, err)
}
