package sqliterelay

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/outbox/outboxsqlite"
)

// told returns what the outbox holds from a row on: types and payloads.
func told(t *testing.T, db *sql.DB, behind int64) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT type, key, coalesce(cause, '-'), origin, data FROM headgate_outbox_rows WHERE seq > ? ORDER BY seq`, behind)
	must(t, err)
	defer rows.Close()
	var all []string
	for rows.Next() {
		var kind, key, cause, origin, data string
		must(t, rows.Scan(&kind, &key, &cause, &origin, &data))
		if origin != "change" || !json.Valid([]byte(data)) {
			t.Errorf("origin %q, data %s", origin, data)
		}
		all = append(all, kind+" "+cause+" "+data)
	}
	must(t, rows.Err())
	return all
}

func last(t *testing.T, db *sql.DB) int64 {
	t.Helper()
	return value[int64](t, db, `SELECT coalesce(max(seq), 0) FROM headgate_outbox_rows`)
}

func watched(t *testing.T, ddl string) *sql.DB {
	t.Helper()
	db := open(t, t.TempDir()+"/app.db")
	must(t, Install(t.Context(), db))
	run(t, db, ddl)
	must(t, Watch(t.Context(), db, "Orders", "orders"))
	return db
}

func TestWatchedTableTellsEachChange(t *testing.T) {
	db := watched(t, `CREATE TABLE orders (id INTEGER PRIMARY KEY, "the ""state""" TEXT, price REAL, scan BLOB, twice AS (price * 2))`)
	d := outboxsqlite.DB{SQL: db}
	must(t, d.Do(t.Context(), "token", func(tx *sql.Tx) error {
		run(t, tx, `INSERT INTO orders (id, "the ""state""", price, scan) VALUES (7, 'it''s "new"', 0.1 + 0.2, x'00ff')`)
		return nil
	}))
	run(t, db, `UPDATE orders SET price = 9e999, scan = NULL WHERE id = 7`)
	run(t, db, `DELETE FROM orders`)
	new7 := `{"id":7,"the \"state\"":"it's \"new\"","price":0.30000000000000004,"scan":"\\x00ff","twice":0.60000000000000009}`
	next := `{"id":7,"the \"state\"":"it's \"new\"","price":"Infinity","scan":null,"twice":"Infinity"}`
	want := []string{
		`orders.inserted token {"table":"orders","change":"insert","key":{"id":7},"before":null,"after":` + new7 + `}`,
		`orders.updated - {"table":"orders","change":"update","key":{"id":7},"before":` + new7 + `,"after":` + next + `}`,
		`orders.deleted - {"table":"orders","change":"delete","key":{"id":7},"before":` + next + `,"after":null}`,
	}
	if d := cmp.Diff(want, told(t, db, 0)); d != "" {
		t.Error(d)
	}
}

// REPLACE removes rows without telling triggers, unless recursive_triggers is
// on; each row that goes is told once in either mode.
func TestReplacedRowsAreTold(t *testing.T) {
	const ddl = `CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT COLLATE NOCASE UNIQUE, a INT, b INT, UNIQUE (a, b));
		INSERT INTO orders (id, name, a, b) VALUES (-1, 'minus', 0, 0), (1, 'one', 1, 1), (2, 'two', 2, 2), (3, 'three', 3, NULL)`
	for _, c := range []struct {
		name, sql string
		want      []string // verb and id
	}{
		{"same key", `INSERT OR REPLACE INTO orders (id, name) VALUES (1, 'uno')`, []string{"deleted 1", "inserted 1"}},
		{"another unique value", `REPLACE INTO orders (id, name) VALUES (9, 'ONE')`, []string{"deleted 1", "inserted 9"}},
		{"several rows at once", `REPLACE INTO orders (id, name, a, b) VALUES (1, 'two', 1, 1)`, []string{"deleted 1", "deleted 2", "inserted 1"}},
		{"two columns", `REPLACE INTO orders (name, a, b) VALUES ('x', 2, 2)`, []string{"deleted 2", "inserted 4"}},
		{"no conflict", `REPLACE INTO orders (name, a, b) VALUES ('x', 3, NULL)`, []string{"inserted 4"}},
		{"update", `UPDATE OR REPLACE orders SET name = 'two' WHERE id = 1`, []string{"deleted 2", "updated 1"}},
		{"update of the key", `UPDATE OR REPLACE orders SET id = 2 WHERE id = 1`, []string{"deleted 2", "updated 2"}},
		{"update of itself", `UPDATE orders SET name = 'ONE' WHERE id = 1`, []string{"updated 1"}},
		{"ignored", `INSERT OR IGNORE INTO orders (id, name) VALUES (1, 'x'), (9, 'nine')`, []string{"inserted 9"}},
		{"upsert", `INSERT INTO orders (id, name) VALUES (1, 'x') ON CONFLICT DO UPDATE SET name = excluded.name`, []string{"updated 1"}},
		{"upsert of several", `INSERT INTO orders (id, name) VALUES (1, 'x'), (8, 'eight'), (2, 'y') ON CONFLICT DO UPDATE SET name = excluded.name`, []string{"updated 1", "inserted 8", "updated 2"}},
		{"all", `DELETE FROM orders`, []string{"deleted -1", "deleted 1", "deleted 2", "deleted 3"}},
	} {
		for _, recursive := range []string{"off", "on"} {
			t.Run(c.name+" "+recursive, func(t *testing.T) {
				db := watched(t, ddl)
				db.SetMaxOpenConns(1)
				run(t, db, `PRAGMA recursive_triggers = `+recursive)
				behind := last(t, db)
				run(t, db, c.sql)
				var got []string
				for _, s := range told(t, db, behind) {
					kind, data, _ := strings.Cut(s, " - ")
					var d struct{ Key struct{ ID int } }
					must(t, json.Unmarshal([]byte(data), &d))
					got = append(got, fmt.Sprintf("%s %d", strings.TrimPrefix(kind, "orders."), d.Key.ID))
				}
				if d := cmp.Diff(c.want, got); d != "" {
					t.Error(d)
				}
				behind = last(t, db)
				run(t, db, `INSERT INTO orders (id, name) VALUES (100, 'hundred')`)
				if got := told(t, db, behind); len(got) != 1 {
					t.Errorf("the next statement tells of what is past: %q", got)
				}
			})
		}
	}
}

func TestWatchOfOtherTables(t *testing.T) {
	t.Run("without rowid, cascade", func(t *testing.T) {
		db := watched(t, `CREATE TABLE customers (id INTEGER PRIMARY KEY);
			CREATE TABLE orders (customer INT REFERENCES customers (id) ON DELETE CASCADE, n TEXT, PRIMARY KEY (customer, n)) WITHOUT ROWID, STRICT;
			INSERT INTO customers VALUES (1), (2)`)
		db.SetMaxOpenConns(1)
		run(t, db, `PRAGMA foreign_keys = ON`)
		run(t, db, `INSERT INTO orders VALUES (1, 'a'), (1, 'b'), (2, 'c')`)
		run(t, db, `REPLACE INTO orders VALUES (2, 'c')`)
		run(t, db, `DELETE FROM customers WHERE id = 1`)
		var got []string
		for _, s := range told(t, db, 0) {
			kind, _, _ := strings.Cut(s, " ")
			got = append(got, kind[len("orders."):])
		}
		want := []string{"inserted", "inserted", "inserted", "deleted", "inserted", "deleted", "deleted"}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	})
	t.Run("many columns", func(t *testing.T) {
		var columns strings.Builder
		for i := range 900 {
			fmt.Fprintf(&columns, ", c%d DEFAULT %d", i, i)
		}
		db := watched(t, `CREATE TABLE orders (id INTEGER PRIMARY KEY`+columns.String()+`)`)
		run(t, db, `INSERT INTO orders (id) VALUES (1)`)
		run(t, db, `UPDATE orders SET c899 = 'x'`)
		if got := told(t, db, 0); len(got) != 2 || !strings.Contains(got[1], `"c899":"x"`) {
			t.Errorf("%d events", len(got))
		}
	})
	t.Run("too large", func(t *testing.T) {
		db := watched(t, `CREATE TABLE orders (id INTEGER PRIMARY KEY, scan BLOB)`)
		_, err := db.ExecContext(t.Context(), `INSERT INTO orders (scan) VALUES (zeroblob(4000000))`)
		if err == nil || !strings.Contains(err.Error(), "HG102") {
			t.Errorf("got %v", err)
		}
	})
}

func TestWatchRefusesWhatItCannotTell(t *testing.T) {
	db := open(t, t.TempDir()+"/app.db")
	must(t, Install(t.Context(), db))
	for name, ddl := range map[string]string{
		"nokey": `CREATE TABLE nokey (a)`,
		"seen":  `CREATE VIEW seen AS SELECT 1 AS a`,
		"part":  `CREATE TABLE part (id INTEGER PRIMARY KEY, a, gone); CREATE UNIQUE INDEX part_a ON part (a) WHERE gone IS NULL`,
		"expr":  `CREATE TABLE expr (id INTEGER PRIMARY KEY, a); CREATE UNIQUE INDEX expr_a ON expr (lower(a))`,
	} {
		run(t, db, ddl)
		err := Watch(t.Context(), db, name, name)
		if e := headgate.AsError(err); e == nil || e.Code != headgate.CodeInvalidArgument || !strings.Contains(e.Detail, "HG106") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for table, code := range map[string]headgate.Code{"nowhere": headgate.CodeNotFound, "headgate_outbox_rows": headgate.CodeInvalidArgument, "sqlite_sequence": headgate.CodeInvalidArgument} {
		if e := headgate.AsError(Watch(t.Context(), db, table, "x")); e == nil || e.Code != code {
			t.Errorf("%s: got %v", table, e)
		}
	}
	run(t, db, `CREATE TABLE orders (id INTEGER PRIMARY KEY)`)
	if e := headgate.AsError(Watch(t.Context(), db, "orders", "No Prefix")); e == nil || e.Code != headgate.CodeInvalidArgument {
		t.Errorf("got %v", e)
	}
}

// Trap 23: the triggers know the columns of the day on which they were made.
func TestTrap23AddedColumnsAreNoticed(t *testing.T) {
	db := watched(t, `CREATE TABLE orders (id INTEGER PRIMARY KEY, a)`)
	findings := func() string {
		t.Helper()
		found, err := Doctor(t.Context(), db, time.Now())
		must(t, err)
		var all []string
		for _, f := range found {
			if f.What != "no relay reads this outbox" {
				all = append(all, f.What)
			}
		}
		return strings.Join(all, "; ")
	}
	if got := findings(); got != "" {
		t.Error(got)
	}
	run(t, db, `ALTER TABLE orders ADD COLUMN b DEFAULT 5`)
	if got := findings(); !strings.Contains(got, "columns of the watched table orders changed") {
		t.Error(got)
	}
	must(t, Watch(t.Context(), db, "orders", "orders"))
	run(t, db, `INSERT INTO orders (id) VALUES (1)`)
	if got := told(t, db, 0); findings() != "" || len(got) != 1 || !strings.Contains(got[0], `"b":5`) {
		t.Errorf("%s; %q", findings(), got)
	}
	if _, err := db.ExecContext(t.Context(), `ALTER TABLE orders DROP COLUMN b`); err == nil {
		t.Error("a column that events have was dropped without a word")
	}
	run(t, db, `ALTER TABLE orders RENAME TO bestellungen`)
	if got := findings(); !strings.Contains(got, "orders is gone or has another name") {
		t.Error(got)
	}
	must(t, Unwatch(context.Background(), db, "bestellungen"))
	run(t, db, `INSERT INTO bestellungen (id) VALUES (2)`)
	if got := told(t, db, 0); len(got) != 1 {
		t.Errorf("%q", got)
	}
	run(t, db, `DROP TRIGGER headgate_outbox_emit`)
	if got := findings(); !strings.Contains(got, "headgate_outbox_emit is missing") {
		t.Error(got)
	}
}
