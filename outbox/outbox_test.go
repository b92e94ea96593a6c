package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/outbox/outboxcheck"
	"github.com/headgate/headgate/outbox/outboxpgx"
	"github.com/headgate/headgate/outbox/outboxsql"
	"github.com/headgate/headgate/relay/pgrelay"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// fake keeps rows in memory.
type fake struct{ rows []outbox.Row }

func (f *fake) InsertEvents(_ context.Context, rows []outbox.Row) error {
	f.rows = append(f.rows, rows...)
	return nil
}
func (f *fake) SetCause(context.Context, string) error { return nil }

const schema = `{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}},"additionalProperties":false}`

func event(data string) *headgate.Event {
	return &headgate.Event{Type: "order.placed", Source: "/shop", Key: "k", Subject: "order 1", Data: []byte(data), TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
}

func TestBadEventFailsBeforeTheInsert(t *testing.T) {
	checker, err := outboxcheck.Compile(map[string][]byte{"order.placed": []byte(schema)}, false)
	if err != nil {
		t.Fatal(err)
	}
	w := outbox.Writer{Checker: checker}
	large := event(fmt.Sprintf(`{"n":%0*d}`, 600<<10, 1))
	unknown := event(`{"n":1}`)
	unknown.Type = "order.unheard"
	text := event(`{"n":1}`)
	text.DataContentType = "text/plain"
	noType := event(`{"n":1}`)
	noType.Type = ""
	for name, c := range map[string]struct {
		e    *headgate.Event
		code headgate.Code
	}{
		"violation":   {event(`{"n":"x"}`), headgate.CodeContractViolation},
		"no data":     {event(""), headgate.CodeContractViolation},
		"too large":   {large, headgate.CodeTooLarge},
		"no contract": {unknown, headgate.CodeContractUnknown},
		"no JSON":     {text, headgate.CodeUnsupportedMediaType},
		"no type":     {noType, headgate.CodeBadEnvelope},
		"nil":         {nil, headgate.CodeBadEnvelope},
	} {
		t.Run(name, func(t *testing.T) {
			var tx fake
			err := w.Emit(context.Background(), &tx, event(`{"n":1}`), c.e)
			e := headgate.AsError(err)
			if e == nil || e.Code != c.code {
				t.Fatalf("got %v, want %s", err, c.code)
			}
			if c.code == headgate.CodeContractViolation && (e.Verdict == nil || len(e.Verdict.Violations) == 0) {
				t.Error("the report is missing")
			}
			if len(tx.rows) != 0 {
				t.Error("the event before the bad one was inserted")
			}
		})
	}
}

func TestIDsAreMintedOnce(t *testing.T) {
	var tx fake
	e := event(`{"n":1}`)
	for range 2 {
		if err := outbox.Emit(context.Background(), &tx, e); err != nil {
			t.Fatal(err)
		}
	}
	if tx.rows[0].ID == "" || tx.rows[0].ID != tx.rows[1].ID || e.ID != tx.rows[0].ID {
		t.Errorf("ids %q and %q", tx.rows[0].ID, tx.rows[1].ID)
	}
}

// prepared makes a prepared database of the test's own, without a slot: nothing
// reads it.
func prepared(t *testing.T) string {
	t.Helper()
	server := pgtest.URL(t)
	name := fmt.Sprintf("t_outbox_%x", time.Now().UnixNano())
	pgtest.Exec(t, server, `CREATE DATABASE `+name)
	cfg, err := pgx.ParseConfig(server)
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("postgres://%s@%s:%d/%s?sslmode=disable", cfg.User, cfg.Host, cfg.Port, name)
	if err := pgrelay.Install(context.Background(), url, pgrelay.InstallOptions{}); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, url, `SELECT pg_drop_replication_slot(slot) FROM headgate.installation`)
	t.Cleanup(func() { pgtest.Exec(t, server, `DROP DATABASE `+name+` WITH (FORCE)`) })
	return url
}

// TestAdaptersWriteTheSameRows runs one transaction through each adapter.
func TestAdaptersWriteTheSameRows(t *testing.T) {
	url := prepared(t)
	ctx := context.Background()
	full := event(`{"n": 1}`)
	full.Time = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	full.SetExtension(headgate.Extension{Name: "flag", Value: "true", Kind: headgate.ExtensionBool})
	full.SetExtension(headgate.Extension{Name: "count", Value: "7", Kind: headgate.ExtensionInteger})
	write := func(name string, tx outbox.Tx) {
		t.Helper()
		e, bare := *full, &headgate.Event{ID: name + "-bare", Type: "order.placed"}
		e.ID = name
		if err := outbox.SetCause(ctx, tx, "abc_-123"); err != nil {
			t.Fatal(err)
		}
		if err := outbox.Emit(ctx, tx, &e, bare); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { write("a", outboxpgx.Tx(tx)); return nil }); err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*conn.Config())
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	write("b", outboxsql.Tx(tx))
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	rows := func(prefix string) [][]string {
		return pgtest.Exec(t, url, `SELECT role, type, source, subject, key, attributes, cause, encode(data, 'escape'), data IS NULL, source IS NULL
			FROM headgate.outbox WHERE id LIKE '`+prefix+`%' ORDER BY seq`)
	}
	a, b := rows("a"), rows("b")
	if d := cmp.Diff(a, b); d != "" || len(a) != 2 {
		t.Fatalf("the adapters differ: %s", d)
	}
	want := []string{
		"headgate", "order.placed", "/shop", "order 1", "k",
		`{"flag": true, "time": "2026-01-02T03:04:05.000006Z", "count": 7, "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`,
		"abc_-123", `{"n": 1}`, "f", "f",
	}
	if d := cmp.Diff(want, a[0]); d != "" {
		t.Error(d)
	}
	if a[1][8] != "t" || a[1][9] != "t" {
		t.Errorf("a bare event is %v", a[1])
	}
	// The cause ends with its transaction.
	pgtest.Exec(t, url, `SELECT headgate.emit('order.placed', '{}')`)
	if got := pgtest.Exec(t, url, `SELECT cause IS NULL FROM headgate.outbox ORDER BY seq DESC LIMIT 1`); got[0][0] != "t" {
		t.Error("a cause outlives its transaction")
	}
}

func TestRollbackTakesTheEventsAlong(t *testing.T) {
	url := prepared(t)
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	failed := errors.New("business")
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := outbox.Emit(ctx, outboxpgx.Tx(tx), event(`{"n":1}`)); err != nil {
			return err
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if n := pgtest.Exec(t, url, `SELECT count(*) FROM headgate.outbox`)[0][0]; n != "0" {
		t.Errorf("%s rows are left", n)
	}
	// A database that was not prepared says so.
	bare, err := pgx.Connect(ctx, pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close(ctx)
	err = pgx.BeginFunc(ctx, bare, func(tx pgx.Tx) error { return outbox.Emit(ctx, outboxpgx.Tx(tx), event(`{"n":1}`)) })
	if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeInvalidConfig {
		t.Errorf("without a preparation: %v", err)
	}
}
