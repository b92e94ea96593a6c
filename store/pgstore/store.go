package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/sqlstore"
)

const (
	// closeWait bounds the farewell of a connection.
	closeWait = 2 * time.Second
	// grace is how much longer than the server the client waits for a
	// statement: the server's own answer says more.
	grace = 5 * time.Second
	// viewIdle is how long a View may do something else than read.
	viewIdle = time.Minute
)

// schemaName is what a schema may be called: it needs no quoting.
var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// Config configures a store. The zero value of each field means its default.
type Config struct {
	// URL locates the database: postgres://USER:PASSWORD@HOST:PORT/DATABASE
	// with the parameters of libpq, TLS (sslmode, sslrootcert, …) and several
	// hosts included. Connect to the server itself or to a pooler that keeps
	// sessions: a pooler of transactions would mix up prepared statements.
	URL string
	// Schema is the schema of the tables, created when missing; default
	// headgate. Lower-case letters, digits and underscores.
	Schema string
	// Shared lets several stores use the schema at the same time. Without it a
	// second one is refused for as long as the first lives: what runs on the
	// store must know how to share.
	Shared bool
	// Relaxed gives up durability for speed: the server answers a commit before
	// its log is flushed, and a server without fsync is accepted. Commits still
	// survive a crash of the node.
	Relaxed bool
	// Readers bounds the Views that run at once, each on a connection; default
	// 2 per CPU, at least 4. The writer has one connection more.
	Readers int
	// ConnectTimeout bounds one attempt to connect; default 5 s.
	ConnectTimeout time.Duration
	// StatementTimeout bounds one statement; default 30 s.
	StatementTimeout time.Duration
	// LockTimeout bounds the wait for the writers of other nodes and for
	// foreign locks; default 10 s.
	LockTimeout time.Duration
	// IdleTimeout is how long a node may keep the other nodes' writers waiting
	// without doing anything, before the server ends its session; default 10 s.
	IdleTimeout time.Duration
	// Logger is for faults that nobody is answered with; default slog.Default.
	Logger *slog.Logger

	optimistic bool                    // SERIALIZABLE instead of the lock, for the benchmark of both
	wrap       func(net.Conn) net.Conn // the network, for tests
}

// Store is the store. It implements store.Store.
type Store struct {
	cfg     Config
	server  *pgconn.Config
	schema  int
	owner   session // that holds the schema; the writer's goroutine changes it
	facts   facts
	lock    string
	queue   *sqlstore.Queue
	writer  *writer
	readers *readers
	// evicting has one token for each Evict that runs.
	evicting chan struct{}
	close    sync.Once
}

var _ store.Store = (*Store)(nil)

// Open connects to the database and brings the schema up to date. It fails
// with unavailable when the server cannot be reached, and with invalid_config
// when it is too old, a standby or without fsync, when the user may not do
// what is needed, or when the schema is foreign or of a newer version.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, sqlstore.Abandoned(ctx)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	cfg.Schema = cmp.Or(cfg.Schema, "headgate")
	cfg.Readers = cmp.Or(max(cfg.Readers, 0), max(4, 2*runtime.GOMAXPROCS(0)))
	cfg.ConnectTimeout = cmp.Or(max(cfg.ConnectTimeout, 0), 5*time.Second)
	cfg.StatementTimeout = cmp.Or(max(cfg.StatementTimeout, 0), 30*time.Second)
	cfg.LockTimeout = cmp.Or(max(cfg.LockTimeout, 0), 10*time.Second)
	cfg.IdleTimeout = cmp.Or(max(cfg.IdleTimeout, 0), 10*time.Second)
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	server, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, server: server, lock: lockStatement(cfg.Schema), evicting: make(chan struct{}, evictions)}
	s.queue = sqlstore.NewQueue()
	c, err := s.first(ctx)
	if err != nil {
		return nil, openError(err)
	}
	begin := []string{sqlBegin, s.lock}
	if cfg.optimistic {
		begin = []string{"BEGIN ISOLATION LEVEL SERIALIZABLE"}
	}
	s.writer = &writer{dial: s.redial, conn: c, begin: begin, queue: s.queue, log: cfg.Logger, ended: make(chan struct{})}
	s.readers = newReaders(cfg.Readers, cfg.Logger, s.connectReader)
	go s.writer.run()
	return s, nil
}

// Validate returns what no server could make right.
func (c *Config) Validate() error {
	if c.Schema != "" && !schemaName.MatchString(c.Schema) {
		return headgate.NewError(headgate.CodeInvalidConfig, "a schema cannot be called %q: want lower-case letters, digits and underscores", sqlstore.Clip(c.Schema))
	}
	_, err := parseURL(c.URL)
	return err
}

// parseURL reads the URL; its errors do not show a password.
func parseURL(raw string) (*pgconn.Config, error) {
	if !strings.HasPrefix(raw, "postgres://") && !strings.HasPrefix(raw, "postgresql://") {
		return nil, headgate.NewError(headgate.CodeInvalidConfig, "the store needs a URL such as postgres://USER@HOST:5432/DATABASE")
	}
	server, err := pgconn.ParseConfig(raw)
	if err != nil {
		return nil, &headgate.Error{Code: headgate.CodeInvalidConfig, Detail: "the store's URL cannot be read", Err: err}
	}
	return server, nil
}

// first opens the writer's first connection and migrates over it.
func (s *Store) first(ctx context.Context) (*conn, error) {
	migrations, err := sqlstore.Migrations(migrationFiles)
	if err != nil {
		return nil, err
	}
	c, err := s.connectWriter(ctx)
	if err != nil {
		return nil, err
	}
	m := migrator{pg: c.pg, schema: s.cfg.Schema, lock: s.lock}
	if err := m.migrate(ctx, migrations, len(migrations)); err != nil {
		c.close()
		return nil, connectError(s.where(), err)
	}
	s.schema, s.facts = len(migrations), c.facts
	return c, nil
}

// connectWriter opens the writer's connection, and takes the schema for this
// store alone unless it is shared.
func (s *Store) connectWriter(ctx context.Context) (*conn, error) {
	c, err := s.connect(ctx, writerSession)
	if err != nil || s.cfg.Shared {
		return c, err
	}
	if err := s.own(ctx, c); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// redial is connectWriter for a store that is open.
func (s *Store) redial() (*conn, error) {
	c, err := s.connectWriter(context.Background())
	return c, laterError(err)
}

func (s *Store) connectReader(ctx context.Context) (*conn, error) {
	c, err := s.connect(ctx, readerSession)
	if err != nil && ctx.Err() != nil {
		return nil, sqlstore.Abandoned(ctx)
	}
	return c, laterError(err)
}

// where names the server without the user.
func (s *Store) where() string {
	return fmt.Sprintf("%s:%d/%s", sqlstore.Clip(s.server.Host), s.server.Port, sqlstore.Clip(s.server.Database))
}

// What a session is for.
type purpose bool

const (
	writerSession purpose = true
	readerSession purpose = false
)

// connect opens one more connection and looks at the server behind it.
func (s *Store) connect(ctx context.Context, p purpose) (*conn, error) {
	c := &conn{
		prefix: `"` + s.cfg.Schema + `".`, limit: s.cfg.StatementTimeout + grace, stmts: map[string]string{}, used: time.Now(),
	}
	server := s.server.Copy()
	s.settings(server.RuntimeParams, p)
	server.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if c.ending && n.SeverityUnlocalized == "WARNING" {
			c.doubt = true
		}
	}
	if s.cfg.wrap != nil {
		server.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, network net.Conn) (net.Conn, error) {
			return s.cfg.wrap(network), nil
		}
	}
	theirs := server.ValidateConnect
	server.ValidateConnect = func(ctx context.Context, pg *pgconn.PgConn) (err error) {
		if theirs != nil {
			if err := theirs(ctx, pg); err != nil {
				return err
			}
		}
		c.facts, err = s.inspect(ctx, pg)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ConnectTimeout)
	defer cancel()
	pg, err := pgconn.ConnectConfig(ctx, server)
	if err != nil {
		return nil, connectError(s.where(), err)
	}
	c.pg = pg
	return c, nil
}

// settings sets what every session of ours is made with. The URL may choose the
// application's name; what correctness rests on it cannot choose.
func (s *Store) settings(params map[string]string, p purpose) {
	commit := "on"
	if s.cfg.Relaxed {
		commit = "off"
	}
	// A reader's filters differ much in how many rows they select: its plans are
	// made for the values. The writer's statements find single rows.
	idle, plans := viewIdle, "force_custom_plan"
	if p == writerSession {
		idle, plans = s.cfg.IdleTimeout, "auto"
	}
	if params["application_name"] == "" {
		params["application_name"] = "headgate"
	}
	ms := func(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }
	for name, value := range map[string]string{
		// pg_temp last: else a temporary table would come before ours.
		"search_path":                         `"` + s.cfg.Schema + `", pg_temp`,
		"client_encoding":                     "UTF8",
		"synchronous_commit":                  commit,
		"default_transaction_isolation":       "read committed",
		"default_transaction_read_only":       "off",
		"statement_timeout":                   ms(s.cfg.StatementTimeout),
		"lock_timeout":                        ms(s.cfg.LockTimeout),
		"idle_in_transaction_session_timeout": ms(idle),
		"idle_session_timeout":                "0", // an idle writer keeps its schema
		// A host that vanished must not keep its locks for hours.
		"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3", "tcp_user_timeout": "25000",
		// Every query has its index. A plan that was made while a table was small
		// must not read it whole when it is large.
		"enable_seqscan":   "off",
		"jit":              "off",
		"plan_cache_mode":  plans,
		"random_page_cost": "1.1",
	} {
		params[name] = value
	}
}

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	return s.queue.Update(ctx, fn)
}

// View implements store.Store. Cancelling ctx also ends a query that runs, and
// with it the connection.
func (s *Store) View(ctx context.Context, fn func(context.Context, *store.Tx) error) error {
	return s.queue.Read(func() error { return s.readers.view(ctx, fn) })
}

// Info implements store.Store.
func (s *Store) Info() store.Info {
	return store.Info{Driver: "postgres", Shared: s.cfg.Shared, Place: s.facts.place, Schema: s.schema, Durable: !s.cfg.Relaxed, Words: s.facts.words(s.cfg.Relaxed)}
}

// Close implements store.Store. Calls that began are waited for; later ones
// fail with draining.
func (s *Store) Close() error {
	s.close.Do(func() {
		s.queue.Close()
		<-s.writer.ended
		s.queue.WaitReads()
		s.readers.close()
		if c := s.writer.conn; c != nil {
			c.close()
		}
	})
	return nil
}
