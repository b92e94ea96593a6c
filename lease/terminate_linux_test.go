package lease

import (
	"bufio"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/pgstore"
)

// inDatabase is a service whose store lies in a database of the user's, with
// the guards installed there.
type inDatabase struct {
	*Service
	t                *testing.T
	url              string
	schema, guards   string
	nodeRole, worker string // roles without other rights
}

// inPostgres opens one as the outside server's own user, or as a role of its
// own without rights.
func inPostgres(t *testing.T, humble bool) *inDatabase {
	t.Helper()
	admin := pgtest.URL(t)
	d := &inDatabase{t: t, url: admin, schema: pgtest.Schema(t, admin, t.TempDir()), guards: pgtest.Schema(t, admin, t.TempDir())}
	d.nodeRole, d.worker = d.schema+"_node", d.schema+"_app"
	t.Cleanup(func() { pgtest.Exec(t, admin, `DROP SCHEMA IF EXISTS "`+d.guards+`_fence" CASCADE`) })
	for _, role := range []string{d.nodeRole, d.worker} {
		pgtest.Exec(t, admin, `CREATE ROLE "`+role+`" LOGIN`)
		t.Cleanup(func() {
			pgtest.Exec(t, admin, `DROP OWNED BY "`+role+`" CASCADE`)
			pgtest.Exec(t, admin, `DROP ROLE "`+role+`"`)
		})
	}
	node := admin
	if humble {
		pgtest.Exec(t, admin, fmt.Sprintf(`DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %%I TO %q', current_database()); END $$`, d.nodeRole))
		node = d.as(d.nodeRole, "node")
	}
	st, err := pgstore.Open(t.Context(), pgstore.Config{URL: node, Schema: d.schema})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	d.Service = service(t, st)
	conn := d.connect(admin)
	if err := fencepg.Install(t.Context(), conn, fencepg.Config{Schema: d.guards, Node: d.schema, Grant: []string{d.worker}}); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, admin, fmt.Sprintf(`CREATE TABLE %[1]q.rows (id int); GRANT USAGE ON SCHEMA %[1]q TO %[2]q; GRANT INSERT ON %[1]q.rows TO %[2]q`, d.guards, d.worker))
	return d
}

func (d *inDatabase) as(role, application string) string {
	u, err := url.Parse(d.url)
	if err != nil {
		d.t.Fatal(err)
	}
	u.User = url.User(role)
	q := u.Query()
	q.Set("application_name", application)
	u.RawQuery = q.Encode()
	return u.String()
}

func (d *inDatabase) connect(url string) *pgx.Conn {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), url)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (d *inDatabase) take(resource string) (Grant, fence.Fence) {
	d.t.Helper()
	g, err := d.Acquire(d.t.Context(), worker("a"), Request{Resources: []string{resource}, TTL: time.Minute})
	if err != nil {
		d.t.Fatal(err)
	}
	f, err := fence.Parse(g[0].Token)
	if err != nil {
		d.t.Fatal(err)
	}
	return g[0], f
}

// within opens a transaction of the application's that passed the guard and
// wrote a row.
func (d *inDatabase) within(f *fence.Fence, application string, id int) (*pgx.Conn, pgx.Tx) {
	d.t.Helper()
	conn := d.connect(d.as(d.worker, application))
	tx, err := conn.Begin(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := tx.Exec(d.t.Context(), fmt.Sprintf("SELECT %q.fence($1, $2, $3)", d.guards), f.Resource, f.Epoch, f.NonceText()); err != nil {
		d.t.Fatal(err)
	}
	if _, err := tx.Exec(d.t.Context(), fmt.Sprintf("INSERT INTO %q.rows VALUES (%d)", d.guards, id)); err != nil {
		d.t.Fatal(err)
	}
	return conn, tx
}

func (d *inDatabase) rows() string {
	d.t.Helper()
	return fmt.Sprint(pgtest.Exec(d.t, d.url, fmt.Sprintf("SELECT id FROM %q.rows ORDER BY id", d.guards)))
}

// TestTerminateEndsSessions: three sessions hold the lease in open
// transactions, one of them behind a savepoint, and one of another lease stands
// by. Terminate ends the three and no other, and nothing of theirs is written.
func TestTerminateEndsSessions(t *testing.T) {
	d := inPostgres(t, false)
	g, f := d.take("r")
	_, other := d.take("other")
	var txs []pgx.Tx
	pids := map[int]bool{}
	for i := range 3 {
		conn, tx := d.within(&f, fmt.Sprint("billing-", i), i)
		if i == 1 {
			if _, err := tx.Exec(t.Context(), fmt.Sprintf("SAVEPOINT s; INSERT INTO %q.rows VALUES (10)", d.guards)); err != nil {
				t.Fatal(err)
			}
		}
		txs, pids[int(conn.PgConn().PID())] = append(txs, tx), true
	}
	_, bystander := d.within(&other, "other", 42)
	got, err := d.Revoke(t.Context(), "r", Revocation{Terminate: true, Deadline: 20 * time.Second})
	if err != nil || !got.Killed || got.Epoch <= g.Epoch {
		t.Fatalf("revoke: %+v, %v", got, err)
	}
	if len(got.Sessions) != len(pids) {
		t.Errorf("%d sessions were ended, want %d: %+v", len(got.Sessions), len(pids), got.Sessions)
	}
	for _, s := range got.Sessions {
		if !pids[s.PID] || !s.Ended || s.User != d.worker || !strings.HasPrefix(s.Application, "billing-") || s.State != "idle in transaction" {
			t.Errorf("ended %s", s)
		}
	}
	for i, tx := range txs {
		if err := tx.Commit(t.Context()); err == nil {
			t.Errorf("transaction %d committed", i)
		}
	}
	if err := bystander.Commit(t.Context()); err != nil {
		t.Errorf("the transaction of another lease: %v", err)
	}
	if got := d.rows(); got != "[[42]]" {
		t.Errorf("rows %s", got)
	}
	if _, err := d.Acquire(t.Context(), worker("b"), Request{Resources: []string{"r"}}); err != nil {
		t.Errorf("the next holder: %v", err)
	}
}

// TestTerminateWithoutTheRight: what the node may not end it names, with what
// it lacks; the gate stays closed, and a retry with the right does it.
func TestTerminateWithoutTheRight(t *testing.T) {
	d := inPostgres(t, true)
	_, f := d.take("r")
	conn, tx := d.within(&f, "billing", 1)
	_, err := d.Revoke(t.Context(), "r", Revocation{Terminate: true, Deadline: 300 * time.Millisecond})
	e := headgate.AsError(err)
	if e == nil || e.Code != headgate.CodeUnavailable || e.Info().Outcome != headgate.Applied {
		t.Fatalf("revoke: %v", err)
	}
	for _, part := range []string{fmt.Sprintf("pid %d", conn.PgConn().PID()), d.worker, `"billing"`, "pg_signal_backend"} {
		if !strings.Contains(e.Detail, part) {
			t.Errorf("the detail lacks %s: %s", part, e.Detail)
		}
	}
	if st, err := d.Get(t.Context(), "r"); err != nil || !st.Closing {
		t.Errorf("the gate is not closed: %+v, %v", st, err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT 1"); err != nil {
		t.Errorf("the session was ended: %v", err)
	}
	pgtest.Exec(t, d.url, fmt.Sprintf("GRANT pg_signal_backend TO %q", d.nodeRole))
	got, err := d.Revoke(t.Context(), "r", Revocation{Terminate: true, Deadline: 20 * time.Second})
	if err != nil || !got.Killed || len(got.Sessions) != 1 || got.Sessions[0].PID != int(conn.PgConn().PID()) {
		t.Errorf("with the right: %+v, %v", got, err)
	}
	if got := d.rows(); got != "[]" {
		t.Errorf("rows %s", got)
	}
}

// TestDrainWaitsForTransactions: a drain waits for an open transaction until
// its deadline, ends none, and says whose it is.
func TestDrainWaitsForTransactions(t *testing.T) {
	d := inPostgres(t, true)
	_, f := d.take("r")
	conn, tx := d.within(&f, "billing", 1)
	begun := time.Now()
	_, err := d.Revoke(t.Context(), "r", Revocation{Deadline: 300 * time.Millisecond})
	e := headgate.AsError(err)
	if e == nil || e.Code != headgate.CodeUnavailable || e.Info().Outcome != headgate.Applied || !strings.Contains(e.Detail, fmt.Sprintf("pid %d", conn.PgConn().PID())) {
		t.Fatalf("revoke: %v", err)
	}
	if took := time.Since(begun); took < 300*time.Millisecond || took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	done := make(chan error, 1)
	var got Revoked
	go func() {
		var err error
		got, err = d.Revoke(t.Context(), "r", Revocation{Deadline: time.Minute})
		done <- err
	}()
	if err := tx.Commit(t.Context()); err != nil { // what passed before the gate closed may end
		t.Errorf("the transaction: %v", err)
	}
	// The holder itself has not released: it does so now, as one that drains.
	g, err := d.Get(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	token, err := d.token(rowOf(t, d.Service, "r"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Release(t.Context(), worker("a"), "r", token); err != nil {
		t.Errorf("release of epoch %d: %v", g.Epoch, err)
	}
	if err := <-done; err != nil || got.Killed || len(got.Sessions) != 0 {
		t.Errorf("drain: %+v, %v", got, err)
	}
	if got := d.rows(); got != "[[1]]" {
		t.Errorf("rows %s", got)
	}
}

// TestTerminatePreparedTransaction names what no signal ends.
func TestTerminatePreparedTransaction(t *testing.T) {
	db := pgtest.Start(t, "max_prepared_transactions=2")
	t.Setenv("HEADGATE_TEST_POSTGRES", db.URL())
	d := inPostgres(t, false)
	_, f := d.take("r")
	_, tx := d.within(&f, "billing", 1)
	if _, err := tx.Exec(t.Context(), "PREPARE TRANSACTION 'left-behind'"); err != nil {
		t.Fatal(err)
	}
	_, err := d.Revoke(t.Context(), "r", Revocation{Terminate: true, Deadline: 300 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), `"left-behind"`) || !strings.Contains(err.Error(), "ROLLBACK PREPARED") {
		t.Errorf("revoke: %v", err)
	}
	pgtest.Exec(t, d.url, "ROLLBACK PREPARED 'left-behind'")
	if got, err := d.Revoke(t.Context(), "r", Revocation{Terminate: true}); err != nil || len(got.Sessions) != 0 {
		t.Errorf("afterwards: %+v, %v", got, err)
	}
}

// TestTerminateAPausedProcess: the holder's process is stopped within its
// transaction, where nothing of its own can end it. When it goes on nothing of
// it counts.
func TestTerminateAPausedProcess(t *testing.T) {
	d := inPostgres(t, false)
	g, _ := d.take("r")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), pausedHolder+"="+strings.Join([]string{d.as(d.worker, "paused"), d.guards, g.Token}, "|"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	out := bufio.NewReader(pipe)
	if line, err := out.ReadString('\n'); line != "within\n" {
		t.Fatalf("the holder says %q, %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	got, err := d.Revoke(t.Context(), "r", Revocation{Terminate: true, Deadline: 20 * time.Second})
	if err != nil || !got.Killed || len(got.Sessions) != 1 || got.Sessions[0].Application != "paused" || got.Epoch <= g.Epoch {
		t.Errorf("revoke: %+v, %v", got, err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(in, "go on"); err != nil {
		t.Fatal(err)
	}
	if line, err := out.ReadString('\n'); !strings.HasPrefix(line, "failed: ") {
		t.Errorf("the holder says %q, %v", line, err)
	}
	if got := d.rows(); got != "[]" {
		t.Errorf("rows %s", got)
	}
}

// rowOf reads the stored row of a lease.
func rowOf(t *testing.T, s *Service, resource string) *store.Lease {
	t.Helper()
	l, _, err := s.look(t.Context(), resource)
	if err != nil {
		t.Fatal(err)
	}
	return &l
}
