package inboxpgx

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/inbox"
	"github.com/headgate/headgate/inbox/internal/postgres"
	"github.com/headgate/headgate/internal/pgtest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var databases atomic.Int64

// newDatabase makes a database with an inbox whose script was changed.
func newDatabase(t testing.TB, change func(string) string) string {
	t.Helper()
	server := pgtest.URL(t)
	name := fmt.Sprintf("inbox_%x_%d", time.Now().UnixNano(), databases.Add(1))
	pgtest.Exec(t, server, `CREATE DATABASE `+name)
	t.Cleanup(func() { pgtest.Exec(t, server, `DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`) })
	u, err := url.Parse(server)
	must(t, err)
	u.Path = "/" + name
	script, err := Script(InstallOptions{})
	must(t, err)
	pgtest.Exec(t, u.String(), change(script))
	pgtest.Exec(t, u.String(), `CREATE TABLE effects (id text)`)
	return u.String()
}

func asItIs(s string) string { return s }

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func begin(t testing.TB, conn *pgx.Conn, iso pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: iso})
	must(t, err)
	return tx
}

func receipt(id string) inbox.Receipt {
	return inbox.Receipt{Consumer: "billing", Source: "/shop", ID: id, Recorded: time.Now()}
}

// rotate begins a new generation, if it can.
func rotate(t testing.TB, url string) error {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `UPDATE headgate_inbox.state SET length = '0'`)
	must(t, err)
	_, err = conn.Exec(t.Context(), `SELECT headgate.inbox_maintain('100 milliseconds')`)
	return err
}

// Of two transactions on the two sides of a new generation one receives. Each
// variant without one of the locks must be caught at it.
func TestNoDuplicateBetweenGenerations(t *testing.T) {
	exclusive := "LOCK TABLE headgate_inbox.state IN ACCESS EXCLUSIVE MODE;"
	shared := " FOR KEY SHARE;\n  ELSE"
	for _, c := range []struct {
		name   string
		change func(string) string
		caught string // which scenario finds it
	}{
		{"as it is", asItIs, ""},
		{"a new generation that waits for nobody", func(s string) string {
			// Nor for the lock that making a table takes: it is there already.
			s = strings.Replace(s, "PERFORM headgate_inbox.open(s.generation + 1);", "", 1)
			return strings.Replace(s, exclusive, "", 1) + "SELECT headgate_inbox.open(2);"
		}, "open"},
		{"a snapshot that is not compared", func(s string) string { return strings.Replace(s, shared, ";\n  ELSE", 1) }, "snapshot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := openAcrossGenerations(t, newDatabase(t, c.change)); got != (c.caught == "open") {
				t.Errorf("an open transaction across generations: duplicate %v", got)
			}
			if got := snapshotAcrossGenerations(t, newDatabase(t, c.change)); got != (c.caught == "snapshot") {
				t.Errorf("a snapshot from before the generation: duplicate %v", got)
			}
		})
	}
}

// openAcrossGenerations lets a second transaction receive in the next
// generation what the first has received and not committed.
func openAcrossGenerations(t *testing.T, url string) (duplicate bool) {
	ctx := t.Context()
	first := begin(t, connect(t, url), pgx.ReadCommitted)
	if fresh, err := Tx(first).Receive(ctx, receipt("a")); err != nil || !fresh {
		t.Fatal(fresh, err)
	}
	if err := rotate(t, url); err != nil && postgres.State(err) != "55P03" {
		t.Fatal(err)
	}
	second := begin(t, connect(t, url), pgx.ReadCommitted)
	_, err := second.Exec(ctx, `SET LOCAL lock_timeout = '200ms'`)
	must(t, err)
	fresh, err := Tx(second).Receive(ctx, receipt("a"))
	if err != nil && postgres.State(err) != "55P03" {
		t.Fatal(err)
	}
	return fresh && first.Commit(ctx) == nil && second.Commit(ctx) == nil
}

// snapshotAcrossGenerations lets a transaction whose snapshot is older than the
// generation receive what another received in it.
func snapshotAcrossGenerations(t *testing.T, url string) (duplicate bool) {
	ctx := t.Context()
	old := begin(t, connect(t, url), pgx.RepeatableRead)
	_, err := old.Exec(ctx, `SELECT count(*) FROM effects`)
	must(t, err)
	must(t, rotate(t, url))
	first := begin(t, connect(t, url), pgx.ReadCommitted)
	if fresh, err := Tx(first).Receive(ctx, receipt("a")); err != nil || !fresh {
		t.Fatal(fresh, err)
	}
	must(t, first.Commit(ctx))
	fresh, err := Tx(old).Receive(ctx, receipt("a"))
	if err != nil && postgres.State(err) != "40001" {
		t.Fatal(err)
	}
	return fresh && old.Commit(ctx) == nil
}

// Workers at every isolation level, commits and rollbacks, while generations
// come as fast as they can: each event has one effect.
func TestRandomReceivesAcrossGenerations(t *testing.T) {
	url := newDatabase(t, asItIs)
	ctx := t.Context()
	end := time.Now().Add(3 * time.Second)
	var wg sync.WaitGroup
	var rotations, committed atomic.Int64
	wg.Go(func() {
		for time.Now().Before(end) {
			if err := rotate(t, url); err == nil {
				rotations.Add(1)
			} else if postgres.State(err) != "55P03" {
				t.Error(err)
				return
			}
		}
	})
	for w := range 6 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 36))
			conn, err := pgx.Connect(ctx, url)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close(context.Background())
			for n := 0; time.Now().Before(end); n++ {
				iso := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}[rng.IntN(3)]
				id := fmt.Sprint("e", n/3+rng.IntN(3)) // close to where the others are
				err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: iso}, func(tx pgx.Tx) error {
					fresh, err := Tx(tx).Receive(ctx, receipt(id))
					if err != nil || !fresh {
						return err
					}
					if _, err := tx.Exec(ctx, `INSERT INTO effects VALUES ($1)`, id); err != nil {
						return err
					}
					if rng.IntN(4) == 0 {
						return errUndo
					}
					return nil
				})
				if err == nil {
					committed.Add(1)
				} else if s := postgres.State(err); err != errUndo && s != "40001" && s != "40P01" {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	twice := pgtest.Exec(t, url, `SELECT count(*) FROM (SELECT id FROM effects GROUP BY id HAVING count(*) > 1) x`)[0][0]
	t.Logf("%d generations, %d commits", rotations.Load(), committed.Load())
	if twice != "0" || rotations.Load() == 0 || committed.Load() == 0 {
		t.Errorf("%s events had two effects", twice)
	}
}

var errUndo = fmt.Errorf("undo")

// A consuming role can receive, and can neither read, change nor forge what was
// received, nor shorten how long it is remembered. Nothing of a transaction is
// left in its session: it works through a pooler.
func TestLeastRights(t *testing.T) {
	url := newDatabase(t, asItIs)
	role := fmt.Sprintf("consumer_%x", time.Now().UnixNano())
	conn := connect(t, url)
	pgtest.Exec(t, url, `CREATE ROLE `+role+` LOGIN`)
	t.Cleanup(func() { pgtest.Exec(t, url, `DROP ROLE `+role) })
	ctx := t.Context()
	_, err := conn.Exec(ctx, `SET SESSION AUTHORIZATION `+role)
	must(t, err)
	_, err = Tx(begin(t, conn, "")).Receive(ctx, receipt("a"))
	if headgate.CodeOf(err) != headgate.CodeForbidden {
		t.Errorf("without the role: %v", err)
	}
	_, err = conn.Exec(ctx, `ROLLBACK`)
	must(t, err)
	must(t, Install(ctx, connect(t, url), InstallOptions{Consumers: []string{role}}))
	r := receipt("a")
	r.Cause = "hgc1token"
	tx := begin(t, conn, "")
	if fresh, err := Tx(tx).Receive(ctx, r); err != nil || !fresh {
		t.Fatal(fresh, err)
	}
	var cause string
	must(t, tx.QueryRow(ctx, `SELECT current_setting('headgate.cause')`).Scan(&cause))
	if cause != "hgc1token" {
		t.Errorf("the cause within the transaction is %q", cause)
	}
	must(t, tx.Commit(ctx))
	var left string
	must(t, conn.QueryRow(ctx, `SELECT coalesce(current_setting('headgate.cause', true), '') || (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype <> 'virtualxid' AND relation IS DISTINCT FROM 'pg_locks'::regclass)
		|| current_setting('search_path') || current_setting('plan_cache_mode')`).Scan(&left))
	if !strings.HasPrefix(left, "0\"$user\", public") || !strings.HasSuffix(left, "auto") {
		t.Errorf("left in the session: %q", left)
	}
	for _, sql := range []string{
		`SELECT * FROM headgate_inbox.rows`, `DELETE FROM headgate_inbox.rows`, `UPDATE headgate_inbox.rows SET id = 'b'`, `TRUNCATE headgate_inbox.rows`,
		`INSERT INTO headgate_inbox.rows (generation, consumer, source, id, role) VALUES (1, 'a', 'a', 'a', 'a')`,
		`UPDATE headgate_inbox.state SET retain = '0'`, `DROP TABLE headgate_inbox.rows`, `DO $$ BEGIN LOCK TABLE headgate_inbox.state; END $$`, `SELECT headgate_inbox.open(7)`,
		`SELECT headgate_inbox.enter()`, `CREATE FUNCTION headgate.receive() RETURNS int LANGUAGE sql AS 'SELECT 1'`, `CREATE TABLE headgate_inbox.mine (a int)`,
	} {
		if _, err := conn.Exec(ctx, sql); postgres.State(err) != "42501" {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if _, err := Maintain(ctx, conn); err != nil {
		t.Error(err)
	}
	if s, err := Inspect(ctx, conn); err != nil || s.Generations != 1 || s.Retain != inbox.DefaultRetain || s.Overdue || !s.Forgotten.IsZero() {
		t.Errorf("%+v, %v", s, err)
	}
}

// Generations are dropped whole, when all in them is older than is remembered.
func TestOldGenerationsAreDropped(t *testing.T) {
	url := newDatabase(t, asItIs)
	ctx, conn := t.Context(), connect(t, url)
	for _, id := range []string{"a", "b"} {
		tx := begin(t, conn, "")
		if _, err := Tx(tx).Receive(ctx, receipt(id)); err != nil {
			t.Fatal(err)
		}
		must(t, tx.Commit(ctx))
		must(t, rotate(t, url))
	}
	pgtest.Exec(t, url, `UPDATE headgate_inbox.state SET length = '1 day'; UPDATE headgate_inbox.generations SET closed = closed - interval '31 days' WHERE generation = 1`)
	dropped, err := Maintain(ctx, conn)
	if err != nil || len(dropped) != 1 || dropped[0] != "rows_1" {
		t.Fatalf("%v, %v", dropped, err)
	}
	if again, err := Maintain(ctx, conn); err != nil || len(again) != 0 {
		t.Errorf("%v, %v", again, err)
	}
	s, err := Inspect(ctx, conn)
	must(t, err)
	if s.Generations != 2 || time.Since(s.Forgotten) < 30*24*time.Hour {
		t.Errorf("%+v", s)
	}
	old := receipt("a")
	old.Recorded = time.Now().Add(-40 * 24 * time.Hour)
	_, err = Tx(begin(t, conn, "")).Receive(ctx, old)
	if headgate.CodeOf(err) != headgate.CodeTooOld {
		t.Errorf("what is dropped: %v", err)
	}
	_, err = conn.Exec(ctx, `ROLLBACK`)
	must(t, err)
	if fresh, err := Tx(begin(t, conn, "")).Receive(ctx, receipt("b")); err != nil || fresh {
		t.Errorf("what is kept: %v, %v", fresh, err)
	}
}

// Installation is repeatable and says what is wrong.
func TestInstall(t *testing.T) {
	url := newDatabase(t, asItIs)
	ctx, conn := t.Context(), connect(t, url)
	must(t, Install(ctx, conn, InstallOptions{Retain: 48 * time.Hour}))
	if s, err := Inspect(ctx, conn); err != nil || s.Retain != 48*time.Hour {
		t.Errorf("%+v, %v", s, err)
	}
	for _, o := range []InstallOptions{{Retain: time.Minute}, {Retain: 1 << 62}} {
		if err := Install(ctx, conn, o); headgate.CodeOf(err) != headgate.CodeInvalidArgument {
			t.Errorf("%+v: %v", o, err)
		}
	}
	pgtest.Exec(t, url, `UPDATE headgate_inbox.state SET version = 99`)
	if err := Install(ctx, conn, InstallOptions{}); headgate.CodeOf(err) != headgate.CodeConflict {
		t.Error(err)
	}
	pgtest.Exec(t, url, `DROP SCHEMA headgate_inbox, headgate CASCADE`)
	if _, err := Inspect(ctx, conn); headgate.CodeOf(err) != headgate.CodeNotFound {
		t.Error(err)
	}
	_, err := Tx(begin(t, conn, "")).Receive(ctx, receipt("a"))
	if headgate.CodeOf(err) != headgate.CodeInvalidConfig {
		t.Error(err)
	}
	_, err = conn.Exec(ctx, `ROLLBACK`)
	must(t, err)
	must(t, Install(ctx, conn, InstallOptions{}))
}
