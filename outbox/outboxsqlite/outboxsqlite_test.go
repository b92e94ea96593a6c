package outboxsqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/outbox/outboxsqlite"
	"github.com/headgate/headgate/relay/sqliterelay"
)

// open makes a prepared database; foreign keys are off, as SQLite has them.
func open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := driver.Open("file:" + filepath.Join(t.TempDir(), "app.db") + "?_pragma=busy_timeout(10000)&_pragma=foreign_keys(off)")
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	must(t, sqliterelay.Install(t.Context(), db))
	must(t, sqliterelay.Install(t.Context(), db)) // again: it changes nothing
	return db
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type row struct{ ID, Type, Source, Subject, Key, Attributes, Cause, Data string }

func rows(t *testing.T, db *sql.DB) []row {
	t.Helper()
	got, err := db.QueryContext(t.Context(), `SELECT id, type, coalesce(source, '-'), coalesce(subject, '-'), coalesce(key, '-'),
		coalesce(attributes, '-'), coalesce(cause, '-'), coalesce(data, '-') FROM headgate_outbox ORDER BY seq`)
	must(t, err)
	defer got.Close()
	var all []row
	for got.Next() {
		var r row
		must(t, got.Scan(&r.ID, &r.Type, &r.Source, &r.Subject, &r.Key, &r.Attributes, &r.Cause, &r.Data))
		all = append(all, r)
	}
	must(t, got.Err())
	return all
}

func event() *headgate.Event {
	e := &headgate.Event{ID: "E-1", Type: "order.placed", Source: "/shop", Key: "k", Subject: "order 1", Data: []byte(`{"n": 1}`)}
	e.Time = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	e.SetExtension(headgate.Extension{Name: "count", Value: "7", Kind: headgate.ExtensionInteger})
	return e
}

func TestEventsOfATransaction(t *testing.T) {
	db := open(t)
	committed := 0
	d := outboxsqlite.DB{SQL: db, Committed: func() { committed++ }}
	bare := &headgate.Event{ID: "E-2", Type: "order.placed"}
	must(t, d.Do(t.Context(), "abc_-123", func(tx *sql.Tx) error {
		return outbox.Emit(t.Context(), outboxsqlite.Tx(tx), event(), bare)
	}))
	failed := errors.New("business")
	err := d.Do(t.Context(), "", func(tx *sql.Tx) error {
		if err := outbox.Emit(t.Context(), outboxsqlite.Tx(tx), &headgate.Event{Type: "order.placed"}); err != nil {
			return err
		}
		return failed
	})
	if !errors.Is(err, failed) || committed != 1 {
		t.Errorf("%v; %d commits were told", err, committed)
	}
	must(t, d.Do(t.Context(), "", func(tx *sql.Tx) error {
		return outbox.Emit(t.Context(), outboxsqlite.Tx(tx), &headgate.Event{ID: "E-3", Type: "order.placed"})
	}))
	want := []row{
		{"E-1", "order.placed", "/shop", "order 1", "k", `{"count":7,"time":"2026-01-02T03:04:05.000006Z"}`, "abc_-123", `{"n": 1}`},
		{"E-2", "order.placed", "-", "-", "-", "-", "abc_-123", "-"},
		{"E-3", "order.placed", "-", "-", "-", "-", "-", "-"},
	}
	if d := cmp.Diff(want, rows(t, db)); d != "" {
		t.Error(d)
	}
}

// The transaction goes on after a refusal, but without any event of the call.
func TestAllEventsOfACallOrNone(t *testing.T) {
	db := open(t)
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	defer tx.Rollback() //nolint:errcheck // after the commit there is nothing to undo
	a := outboxsqlite.Tx(tx)
	must(t, a.InsertEvents(t.Context(), []outbox.Row{{ID: "1", Type: "order.placed"}}))
	err = a.InsertEvents(t.Context(), []outbox.Row{{ID: "2", Type: "order.placed"}, {ID: "3", Type: "Order Placed"}})
	if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeBadEnvelope || !strings.HasPrefix(e.Detail, "headgate HG101") {
		t.Errorf("got %v", err)
	}
	must(t, a.InsertEvents(t.Context(), []outbox.Row{{ID: "4", Type: "order.placed"}, {ID: "5", Type: "order.placed"}}))
	must(t, tx.Commit())
	var ids []string
	for _, r := range rows(t, db) {
		ids = append(ids, r.ID)
	}
	if d := cmp.Diff([]string{"1", "4", "5"}, ids); d != "" {
		t.Error(d)
	}
}

func TestCauseEndsWithItsTransaction(t *testing.T) {
	db, ctx := open(t), t.Context()
	conn, err := db.Conn(ctx)
	must(t, err)
	defer conn.Close()
	set := func() error { return outboxsqlite.Tx(conn).SetCause(ctx, "token") }
	exec := func(q string) error { _, err := conn.ExecContext(ctx, q); return err }

	must(t, exec("BEGIN"))
	if e := headgate.AsError(set()); e == nil || e.Code != headgate.CodeInvalidConfig {
		t.Errorf("without foreign keys a cause could be left behind, and it was taken: %v", e)
	}
	must(t, exec("ROLLBACK"))
	must(t, exec("PRAGMA foreign_keys = ON"))
	if set() == nil {
		t.Error("a cause was set outside of any transaction")
	}
	must(t, exec("BEGIN"))
	must(t, set())
	if exec("COMMIT") == nil {
		t.Error("a transaction left its cause behind")
	}
	must(t, outboxsqlite.Tx(conn).SetCause(ctx, ""))
	must(t, exec("COMMIT"))
	must(t, exec("BEGIN"))
	must(t, set())
	must(t, exec("ROLLBACK"))
	must(t, exec("INSERT INTO headgate_outbox (type) VALUES ('order.placed')"))
	must(t, exec("INSERT INTO headgate_outbox (type, cause) VALUES ('order.placed', 'own')"))
	got := rows(t, db)
	if len(got) != 2 || got[0].Cause != "-" || got[1].Cause != "own" {
		t.Errorf("%+v", got)
	}
	e := headgate.AsError(outboxsqlite.Tx(conn).SetCause(ctx, "no token!"))
	if e == nil || e.Code != headgate.CodeTokenInvalid {
		t.Errorf("got %v", e)
	}
}

// What writers in other languages do wrong fails their statement, with a name.
func TestPlainSQL(t *testing.T) {
	db := open(t)
	for q, want := range map[string]string{
		`INSERT INTO headgate_outbox (data) VALUES ('{}')`:                                                "HG101",
		`INSERT INTO headgate_outbox (type) VALUES ('a..b')`:                                              "HG101",
		`INSERT INTO headgate_outbox (type) VALUES ('.a')`:                                                "HG101",
		`INSERT INTO headgate_outbox (type) VALUES (7)`:                                                   "HG101",
		`INSERT INTO headgate_outbox (type, data) VALUES ('a', 7)`:                                        "HG108",
		`INSERT INTO headgate_outbox (type, data) VALUES ('a', zeroblob(6291457))`:                        "HG102",
		`INSERT INTO headgate_outbox (type, subject) VALUES ('a', hex(zeroblob(2049)))`:                   "HG103",
		`INSERT INTO headgate_outbox (type, attributes) VALUES ('a', '[]')`:                               "HG103",
		`INSERT INTO headgate_outbox (type, attributes) VALUES ('a', '{')`:                                "HG103",
		`INSERT INTO headgate_outbox (type, cause) VALUES ('a', 'b c')`:                                   "HG104",
		`INSERT INTO headgate_outbox (type, seq) VALUES ('a', 1)`:                                         "HG109",
		`INSERT INTO headgate_outbox_rows (seq, id, type) VALUES (-5, 'x', 'a')`:                          "HG109",
		`UPDATE headgate_outbox_rows SET type = 'b'`:                                                      "HG109",
		`DELETE FROM headgate_outbox_rows`:                                                                "HG109",
		`DELETE FROM headgate_outbox`:                                                                     "cannot modify",
		`INSERT INTO headgate_outbox_rows (seq, id, type) SELECT max(seq), 'y', 'a' FROM headgate_outbox`: "UNIQUE",
	} {
		if q != `INSERT INTO headgate_outbox (data) VALUES ('{}')` {
			_, err := db.ExecContext(t.Context(), `INSERT INTO headgate_outbox (type, data, attributes) VALUES ('order.placed', x'7B7D', '{"a":1}')`)
			must(t, err)
		}
		if _, err := db.ExecContext(t.Context(), q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", q, err, want)
		}
	}
	uuid := regexp.MustCompile(`^0[0-9a-f]{7}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	ids := map[string]bool{}
	for _, r := range rows(t, db) {
		if !uuid.MatchString(r.ID) || ids[r.ID] {
			t.Errorf("id %q", r.ID)
		}
		ids[r.ID] = true
	}
}

func TestUnpreparedDatabaseSaysSo(t *testing.T) {
	db, err := driver.Open("file:" + filepath.Join(t.TempDir(), "bare.db"))
	must(t, err)
	defer db.Close()
	err = outboxsqlite.DB{SQL: db}.Do(t.Context(), "", func(tx *sql.Tx) error {
		return outbox.Emit(context.Background(), outboxsqlite.Tx(tx), event())
	})
	if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeInvalidConfig {
		t.Errorf("got %v", err)
	}
}
