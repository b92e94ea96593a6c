package worker_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/inbox/inboxpgx"
	"github.com/headgate/headgate/inbox/inboxsqlite"
	"github.com/headgate/headgate/internal/nodetest"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/unit"
	"github.com/headgate/headgate/unit/unitpgx"
	"github.com/headgate/headgate/unit/unitsqlite"
	"github.com/headgate/headgate/unit/worker"
)

// The harness runs this test binary again as the worker that it kills.
func TestMain(m *testing.M) {
	if os.Getenv("HEADGATE_UNIT_CHILD") == "" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, workerChild(context.Background()))
	os.Exit(1)
}

// points are the named points at which a worker kills itself.
var points = []string{"begin", "received", "written", "commit", "committed", "handled", "claimed", "done"}

// at kills this process at the point that its environment names (POINT:N: when
// it comes there for the nth time).
func at() func(string) {
	point, text, _ := strings.Cut(os.Getenv("HEADGATE_UNIT_KILL_AT"), ":")
	n, _ := strconv.Atoi(text)
	var seen atomic.Int64
	return func(here string) {
		if here == point && seen.Add(1) == int64(n) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
}

// watched is a database that passes the named points, and, when broken, notes
// events in a transaction of their own: the fault that the harness must find.
type watched[T any] struct {
	unit.DB[T]
	at     func(string)
	broken bool
}

func (w watched[T]) Begin(ctx context.Context, o unit.Opening, fn func(T) error) error {
	w.at("begin")
	if r := o.Receive; w.broken && r != nil {
		o.Receive = nil
		if err := w.DB.Begin(ctx, unit.Opening{Receive: r}, func(T) error { return nil }); err != nil {
			return err
		}
	}
	err := w.DB.Begin(ctx, o, func(tx T) error {
		err := fn(tx)
		w.at("commit")
		return err
	})
	w.at("committed")
	return err
}

func workerChild(ctx context.Context) error {
	node, err := client.New(client.Config{URL: os.Getenv("HEADGATE_UNIT_NODE"), Token: os.Getenv("HEADGATE_UNIT_TOKEN")})
	if err != nil {
		return err
	}
	database, broken := os.Getenv("HEADGATE_UNIT_DB"), os.Getenv("HEADGATE_UNIT_BROKEN") == "1"
	if strings.HasPrefix(database, "postgres:") {
		pool, err := pgxpool.New(ctx, database)
		if err != nil {
			return err
		}
		db := unitpgx.New(pool)
		return work(ctx, node, watched[pgx.Tx]{db, at(), broken}, db.Maintain, func(tx pgx.Tx, sql string) error {
			_, err := tx.Exec(ctx, sql)
			return err
		})
	}
	raw, err := openSQLite(database)
	if err != nil {
		return err
	}
	db := unitsqlite.New(raw)
	return work(ctx, node, watched[*sql.Conn]{db, at(), broken}, db.Maintain, func(conn *sql.Conn, sql string) error {
		_, err := conn.ExecContext(ctx, sql)
		return err
	})
}

func work[T any](ctx context.Context, node *client.Client, db watched[T], maintain func(context.Context) error, exec func(T, string) error) error {
	return worker.Run(ctx, worker.Config{Client: node, Subscription: "billing", Maintain: maintain, Wait: time.Second}, func(ctx context.Context, d *worker.Delivery) error {
		_, err := unit.Do(ctx, db, d.Delivery, func(_ context.Context, tx T, _ outbox.Tx) error {
			db.at("received")
			if err := exec(tx, `INSERT INTO effects (id) VALUES ('`+d.Event.ID+`')`); err != nil {
				return err
			}
			db.at("written")
			return exec(tx, `UPDATE totals SET n = n + 1`)
		})
		db.at("handled")
		if err != nil {
			return err
		}
		tool := d.Delivery
		tool.Consumer = "tool"
		_, err = unit.Once(ctx, db, tool, unit.Effect[T]{TTL: time.Second, Do: func(ctx context.Context, key string) ([]byte, error) {
			db.at("claimed")
			err := db.DB.Begin(ctx, unit.Opening{}, func(tx T) error {
				return exec(tx, `INSERT INTO calls (id, tool_key) VALUES ('`+d.Event.ID+`', '`+key+`')`)
			})
			db.at("done")
			return []byte("receipt of " + d.Event.ID), err
		}})
		return err
	})
}

func openSQLite(path string) (*sql.DB, error) {
	return driver.Open("file:" + path + "?_pragma=busy_timeout(20000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
}

// killing is one run of the harness.
type killing struct {
	t      *testing.T
	node   *nodetest.Node
	server *pgtest.Cluster // nil with SQLite
	db     string
	broken bool
	rng    *rand.Rand
	events int
	kills  map[string]int
	query  func(sql string) [][]string
}

const tables = `CREATE TABLE effects (id text NOT NULL); CREATE TABLE calls (id text NOT NULL, tool_key text NOT NULL); CREATE TABLE totals (n integer NOT NULL); INSERT INTO totals VALUES (0)`

func startKilling(t *testing.T, kind string, broken bool, seed uint64) *killing {
	t.Helper()
	h := &killing{t: t, node: nodetest.Start(t, nil), broken: broken, rng: rand.New(rand.NewPCG(seed, 36)), kills: map[string]int{}}
	ctx := t.Context()
	if kind == "postgres" {
		h.server = pgtest.Start(t)
		h.db = h.server.URL()
		conn, err := pgx.Connect(ctx, h.db)
		must(t, err)
		defer conn.Close(ctx)
		must(t, inboxpgx.Install(ctx, conn, inboxpgx.InstallOptions{}))
		pgtest.Exec(t, h.db, tables)
		h.query = func(sql string) [][]string { return pgtest.Exec(t, h.db, sql) }
	} else {
		h.db = filepath.Join(t.TempDir(), "user.db")
		raw, err := openSQLite(h.db)
		must(t, err)
		t.Cleanup(func() { _ = raw.Close() })
		must(t, inboxsqlite.Install(ctx, raw, 0))
		_, err = raw.ExecContext(ctx, tables)
		must(t, err)
		h.query = func(q string) (all [][]string) {
			rows, err := raw.QueryContext(context.Background(), q)
			must(t, err)
			defer rows.Close()
			for rows.Next() {
				row := make([]string, 2)
				must(t, rows.Scan(&row[0], &row[1]))
				all = append(all, row)
			}
			must(t, rows.Err())
			return all
		}
	}
	_, _, err := h.node.Client(t, "admin").PutSubscription(ctx, "billing", api.SubscriptionSpec{
		Types: []string{"ticket.opened"}, As: "triage", From: "beginning", Order: "none", Attempts: 1000, Backoff: "1ms..20ms",
		Claim: api.Duration(400 * time.Millisecond), MaxBlock: api.Duration(time.Hour),
	})
	must(t, err)
	return h
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (h *killing) publish(n int) {
	h.t.Helper()
	desk := h.node.Client(h.t, "desk")
	var events []*headgate.Event
	for range n {
		events = append(events, &headgate.Event{ID: fmt.Sprint("e", h.events), Source: "/desk", Type: "ticket.opened", Data: []byte(`{"ticket_id":"T"}`)})
		h.events++
	}
	out, err := desk.PublishBatch(h.t.Context(), events)
	must(h.t, err)
	if out.Accepted != n {
		h.t.Fatalf("%+v", out)
	}
}

func (h *killing) start(at string) *exec.Cmd {
	h.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HEADGATE_UNIT_CHILD=1", "HEADGATE_UNIT_NODE="+h.node.URL, "HEADGATE_UNIT_TOKEN="+h.node.Tokens["triage"],
		"HEADGATE_UNIT_DB="+h.db, "HEADGATE_UNIT_KILL_AT="+at)
	if h.broken {
		cmd.Env = append(cmd.Env, "HEADGATE_UNIT_BROKEN=1")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(h.t, cmd.Start())
	return cmd
}

// once lets a worker work until it kills itself at a point, or until it is
// killed on its way there.
func (h *killing) once() {
	if h.server != nil && h.rng.IntN(5) == 0 {
		h.crash()
		return
	}
	h.until(points[h.rng.IntN(len(points))], 1+h.rng.IntN(6))
}

// crash ends the database under a worker, which lives on, and kills the worker
// later.
func (h *killing) crash() {
	h.kills["database"]++
	h.publish(6)
	cmd := h.start("")
	wait := time.NewTimer(time.Duration(50+h.rng.IntN(200)) * time.Millisecond)
	<-wait.C
	h.server.Crash()
	h.server.Restart()
	wait.Reset(time.Duration(50+h.rng.IntN(200)) * time.Millisecond)
	<-wait.C
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// until lets a worker work until it comes to a point for the nth time.
func (h *killing) until(point string, n int) {
	h.publish(6)
	cmd := h.start(point + ":" + strconv.Itoa(n))
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	select {
	case <-ended:
		h.kills[point]++
	case <-time.After(3 * time.Second):
		h.kills["anywhere"]++
		_ = cmd.Process.Kill()
		<-ended
	}
}

// drain lets a worker finish, and returns what the database says.
func (h *killing) drain() (lost, twice, total int) {
	h.t.Helper()
	cmd := h.start("")
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	left := uint64(0)
	for deadline := time.Now().Add(time.Minute); ; <-tick.C { // it may take long, as long as it goes on
		balances, err := h.node.Router.Conservation(h.t.Context())
		must(h.t, err)
		if b := balances[0]; b.Lag == 0 && b.Accepted == uint64(h.events) {
			if !b.Holds || b.Counts.Sum() != uint64(h.events) {
				h.t.Errorf("conservation: %+v", b)
			}
			break
		}
		if left != balances[0].Lag {
			left, deadline = balances[0].Lag, time.Now().Add(time.Minute)
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("it does not come to an end: %+v", balances)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	seen := map[string]int{}
	for _, row := range h.query(`SELECT id, count(*) FROM effects GROUP BY id`) {
		seen[row[0]], _ = strconv.Atoi(row[1])
	}
	for i := range h.events {
		switch n := seen[fmt.Sprint("e", i)]; {
		case n == 0:
			lost++
		case n > 1:
			twice++
		}
	}
	total, _ = strconv.Atoi(h.query(`SELECT n, n FROM totals`)[0][0])
	return lost, twice, total
}

// tools checks the effects outside: each was done, always under one key of its
// own, and is recorded.
func (h *killing) tools() {
	h.t.Helper()
	calls := h.query(`SELECT count(DISTINCT id), count(DISTINCT tool_key) FROM calls`)[0]
	pairs := h.query(`SELECT count(*), count(*) FROM (SELECT DISTINCT id, tool_key FROM calls) x`)[0][0]
	repeated := h.query(`SELECT count(*) - count(DISTINCT id), 0 FROM calls`)[0][0]
	table, receipt := "headgate_inbox.rows", `'receipt of ' || id = convert_from(result, 'UTF8')`
	if h.server == nil {
		table, receipt = "headgate_inbox", `'receipt of ' || id = CAST(result AS text)`
	}
	recorded := h.query(`SELECT count(*), 0 FROM ` + table + ` WHERE consumer = 'tool' AND expires IS NULL AND ` + receipt)[0][0]
	h.t.Logf("effects outside: %s of %d done, %s of them again, under %s keys, %s recorded", calls[0], h.events, repeated, calls[1], recorded)
	for _, n := range []string{calls[0], calls[1], pairs, recorded} {
		if n != strconv.Itoa(h.events) {
			h.t.Errorf("of %d effects outside %s are done, under %s keys, in %s pairs; %s are recorded", h.events, calls[0], calls[1], pairs, recorded)
			break
		}
	}
}

// A worker that is killed at any moment loses no effect and has none twice.
func TestKilledWorkerHasEachEffectOnce(t *testing.T) {
	kills, seed := 18, uint64(20261130)
	if os.Getenv("HEADGATE_CAMPAIGN") == "1" {
		kills, seed = 500, uint64(time.Now().UnixNano())
	}
	if s := os.Getenv("HEADGATE_KILL_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		must(t, err)
	}
	for _, kind := range []string{"postgres", "sqlite"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			t.Logf("seed %d: HEADGATE_KILL_SEED=%d repeats the schedule", seed, seed)
			h := startKilling(t, kind, false, seed)
			for range kills {
				h.once()
			}
			lost, twice, total := h.drain()
			t.Logf("%d events, kills %v: %d lost, %d twice", h.events, h.kills, lost, twice)
			h.tools()
			if lost+twice > 0 || total != h.events {
				t.Errorf("of %d events %d are lost, %d had their effect twice, the total is %d", h.events, lost, twice, total)
			}
		})
	}
}

// A harness that cannot fail proves nothing: a worker that notes the event in a
// transaction of its own must be caught.
func TestKillsCatchInboxOutsideTheTransaction(t *testing.T) {
	h := startKilling(t, "postgres", true, 1)
	for range 6 {
		h.until("written", 3)
	}
	lost, twice, _ := h.drain()
	t.Logf("kills %v: %d lost, %d twice", h.kills, lost, twice)
	if lost+twice == 0 {
		t.Error("a worker that notes events apart from their effects broke no promise: the harness cannot see it")
	}
}
