package pgstore

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// lenient swallows what a flood reports when the server goes away under it.
type lenient struct {
	testing.TB
	failed atomic.Pointer[string]
}

func (l *lenient) Errorf(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	l.failed.Store(&s)
}

// answers notes what a flood says was answered.
type answers struct {
	mu   sync.Mutex
	seen [8]uint64
	n    int
	more chan struct{}
}

func (a *answers) Write(p []byte) (int, error) {
	var w int
	var n uint64
	if _, err := fmt.Sscanf(string(p), "answered %d %d", &w, &n); err != nil {
		return 0, err
	}
	a.mu.Lock()
	a.seen[w] = max(a.seen[w], n)
	a.n++
	a.mu.Unlock()
	select {
	case a.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (a *answers) all() []uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	seen := a.seen
	return seen[:]
}

// look reads something.
func look(ctx context.Context, tx *store.Tx) error {
	_, err := tx.Outbox.Count(ctx)
	return err
}

// TestOutsideServerCrash crashes the server under a flood: the same store
// finds it again, and all that was answered is there, whole.
func TestOutsideServerCrash(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	s := openTest(t, Config{URL: server.URL(), ConnectTimeout: time.Second})
	a := &answers{more: make(chan struct{}, 1)}
	for round := range 4 {
		flooding := make(chan struct{})
		l := &lenient{TB: t}
		go func() {
			defer close(flooding)
			storetest.Flood(t.Context(), l, s, a)
		}()
		for range 20 + 30*round {
			<-a.more
		}
		if round%2 == 0 {
			server.Crash()
		} else {
			server.Stop()
		}
		<-flooding
		if l.failed.Load() == nil {
			t.Fatal("the flood went on without a server")
		}
		err := s.Update(t.Context(), put("down"))
		wantCode(t, err, headgate.CodeUnavailable, "")
		if o := headgate.AsError(err).Info().Outcome; o != headgate.NotApplied {
			t.Errorf("outcome %s", o)
		}
		wantCode(t, s.View(t.Context(), look), headgate.CodeUnavailable, "")
		server.Restart()
		storetest.VerifyFlood(t, s, a.all())
		if err := s.Update(t.Context(), put("up")); err != nil {
			t.Errorf("after the restart: %v", err)
		}
	}
	t.Logf("%d answers", a.n)
}

// TestOutsideErrorsHideTheServer: while the server is away, what clients are
// told says neither where it is nor as whom the node connects; the log is told.
func TestOutsideErrorsHideTheServer(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	s := openTest(t, Config{URL: server.URL(), Schema: "headgate", ConnectTimeout: time.Second})
	if err := s.Update(t.Context(), put("a")); err != nil {
		t.Fatal(err)
	}
	if err := s.View(t.Context(), look); err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	server.Crash()
	for round := range 3 {
		for _, err := range []error{s.Update(t.Context(), put("b")), s.View(t.Context(), look)} {
			e := headgate.AsError(err)
			if e == nil || e.Info().Status != 503 {
				t.Fatalf("without a server: %v", err)
			}
			for _, hidden := range []string{at.Hostname(), at.Port(), at.User.Username()} {
				if strings.Contains(e.Detail, hidden) {
					t.Errorf("a client reads %q in %q", hidden, e.Detail)
				}
			}
			var log strings.Builder
			slog.New(slog.NewTextHandler(&log, nil)).Warn("failed", "error", err)
			// Of the first ones the connection breaks, the others make one.
			if round > 0 && !strings.Contains(log.String(), at.Host) {
				t.Errorf("the log does not say where: %s", log.String())
			}
		}
	}
	wantCode(t, tryOpen(t, Config{URL: server.URL()}), headgate.CodeUnavailable, at.Host) // an operator reads it
}

// TestOutsidePlace: the place tells a database from its copies, also to a user
// without rights, and a store that is open does not take a copy for it.
func TestOutsidePlace(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	pgtest.Exec(t, server.URL(), "CREATE DATABASE a; ")
	named := func(name string) string { return strings.Replace(server.URL(), "/postgres?", "/"+name+"?", 1) }
	s := openTest(t, Config{URL: named("a"), Schema: "headgate"})
	place := s.Info().Place
	if !regexp.MustCompile(`^[0-9]+_[0-9]+$`).MatchString(place) {
		t.Fatalf("place %q", place)
	}
	pgtest.Exec(t, server.URL(), "CREATE USER plain")
	pgtest.Exec(t, server.URL(), "CREATE DATABASE theirs OWNER plain")
	other := openTest(t, Config{URL: strings.Replace(named("theirs"), "headgate@", "plain@", 1), Schema: "headgate"})
	if system, _, _ := strings.Cut(place, "_"); !strings.HasPrefix(other.Info().Place, system+"_") || other.Info().Place == place {
		t.Errorf("places %q and %q", place, other.Info().Place)
	}
	end := "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname IN ('a', 'b') AND pid <> pg_backend_pid()"
	swap := func(statements ...string) {
		t.Helper()
		pgtest.Exec(t, server.URL(), "ALTER DATABASE a WITH ALLOW_CONNECTIONS false")
		pgtest.Exec(t, server.URL(), end)
		for len(pgtest.Exec(t, server.URL(), "SELECT 1 FROM pg_stat_activity WHERE datname = 'a'")) > 0 {
		}
		for _, sql := range statements {
			pgtest.Exec(t, server.URL(), sql)
		}
	}
	swap("ALTER DATABASE a RENAME TO b", "CREATE DATABASE a TEMPLATE b")
	for _, err := range []error{s.Update(t.Context(), put("x")), s.View(t.Context(), look)} {
		wantCode(t, err, headgate.CodeUnavailable, "another database")
	}
	swap("DROP DATABASE a WITH (FORCE)", "ALTER DATABASE b RENAME TO a", "ALTER DATABASE a WITH ALLOW_CONNECTIONS true")
	if err := s.Update(t.Context(), put("x")); err != nil {
		t.Errorf("with its own database: %v", err)
	}
}

// TestOutsideUnfitServers opens servers that would lose what they answered, or
// cannot be written to.
func TestOutsideUnfitServers(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off", "full_page_writes=off")
	wantCode(t, tryOpen(t, Config{URL: server.URL()}), headgate.CodeInvalidConfig, "fsync=off")
	if got := objects(t, server.URL(), "headgate"); len(got) != 0 {
		t.Errorf("the refused server was changed: %q", got)
	}
	s := openTest(t, Config{URL: server.URL(), Schema: "headgate", Relaxed: true})
	if i := s.Info(); i.Durable || !strings.Contains(i.Words, "fsync=off") {
		t.Errorf("%+v", i)
	}
}

// TestOutsideStandby: a server that turned into a standby is refused, by Open
// and by a store that was open before.
func TestOutsideStandby(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	s := openTest(t, Config{URL: server.URL()})
	if err := s.Update(t.Context(), put("a")); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	server.Demote()
	server.Restart()
	wantCode(t, tryOpen(t, Config{URL: server.URL()}), headgate.CodeInvalidConfig, "standby")
	for _, err := range []error{s.Update(t.Context(), put("b")), s.View(t.Context(), look)} {
		// Not the caller's fault: it may try again.
		wantCode(t, err, headgate.CodeUnavailable, "standby")
	}
	pgtest.Exec(t, server.URL(), "SELECT pg_promote()")
	if err := s.Update(t.Context(), put("c")); err != nil {
		t.Error(err)
	}
	if n := keys(t, s); n != 2 {
		t.Errorf("%d settings, want 2", n)
	}
}

// TestOutsideSynchronousStandbyIsGone: a commit that the server gives up to
// replicate is not answered as durable. The server calls it committed, with a
// warning.
func TestOutsideSynchronousStandbyIsGone(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	s := openTest(t, Config{URL: server.URL(), StatementTimeout: 300 * time.Millisecond})
	if err := s.Update(t.Context(), put("a")); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, server.URL(), "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
	pgtest.Exec(t, server.URL(), "SELECT pg_reload_conf()")
	result := make(chan error, 1)
	go func() {
		for { // until the writer's session has read the setting
			if err := s.Update(t.Context(), put("b")); err != nil {
				result <- err
				return
			}
		}
	}()
	for len(pgtest.Exec(t, server.URL(), "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")) == 0 {
	}
	wantCode(t, <-result, headgate.CodeUnknownOutcome, "")
	if n := keys(t, s); n != 2 {
		t.Errorf("%d settings, want 2", n)
	}
	// A commit that hangs is not waited for without end.
	began := time.Now()
	wantCode(t, s.Update(t.Context(), put("c")), headgate.CodeUnknownOutcome, "")
	if took := time.Since(began); took > grace+5*time.Second {
		t.Errorf("it took %s", took)
	}
	pgtest.Exec(t, server.URL(), "ALTER SYSTEM RESET synchronous_standby_names")
	pgtest.Exec(t, server.URL(), "SELECT pg_reload_conf()")
}

// TestOutsideEveryCommitIsFlushed counts flushes of the server's log: none
// less than commits.
func TestOutsideEveryCommitIsFlushed(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "autovacuum=off")
	s := openTest(t, Config{URL: server.URL()})
	count := "SELECT wal_sync FROM pg_stat_wal"
	switch version := pgtest.Version(t, server.URL()); {
	case version >= 18:
		count = "SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal'"
	case version < 15: // a process collects the numbers; it has them in order
		count = "SELECT wal_sync FROM pg_stat_wal, pg_sleep(1)"
	}
	syncs := func() (n int) {
		if _, err := fmt.Sscan(pgtest.Exec(t, server.URL(), count)[0][0], &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const n = 50
	update := func(s *Store) {
		t.Helper()
		for i := range n {
			if err := s.Update(t.Context(), put(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		// A session reports its numbers when it ends, which is after we hung up.
		for pgtest.Exec(t, server.URL(), "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")[0][0] != "0" {
		}
	}
	before := syncs()
	update(s)
	between := syncs()
	if got := between - before; got < n {
		t.Errorf("%d commits took %d flushes", n, got)
	}
	update(openTest(t, Config{URL: server.URL(), Relaxed: true}))
	if got := syncs() - between; got >= n {
		t.Errorf("%d relaxed commits took %d flushes: the count says nothing", n, got)
	}
}

// TestOutsideTLS: the URL alone decides how the server proves who it is.
func TestOutsideTLS(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	server.Stop()
	cert, key := selfSigned(t)
	server.Write("server.crt", cert)
	server.Write("server.key", key)
	server.Set("ssl=on")
	server.Restart()
	stranger, _ := selfSigned(t)
	dir := t.TempDir()
	for name, root := range map[string][]byte{"root.pem": cert, "stranger.pem": stranger} {
		if err := os.WriteFile(filepath.Join(dir, name), root, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	with := func(root string) string {
		return strings.Replace(server.URL(), "sslmode=disable", "sslmode=verify-full&sslrootcert="+filepath.Join(dir, root), 1)
	}
	s := openTest(t, Config{URL: with("root.pem"), Schema: "headgate"})
	rows, err := (migrator{pg: s.writer.conn.pg}).query(t.Context(), "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
	if err != nil || string(rows[0][0]) != "t" {
		t.Errorf("the session is not encrypted: %q, %v", rows, err)
	}
	wantCode(t, tryOpen(t, Config{URL: with("stranger.pem"), Schema: "other"}), headgate.CodeUnavailable, "certificate")
}

// selfSigned makes a certificate for 127.0.0.1 and its key, as PEM.
func selfSigned(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}
