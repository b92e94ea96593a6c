package pgstore

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// whole names the statements that read a whole table because that is what
// they return.
var whole = []string{
	"FROM @principals ORDER BY name", "FROM @subscriptions ORDER BY name", "FROM @quarantine_overflow", "count(*) FROM @outbox",
	"FROM @contracts AS c WHERE NOT deleted", "FROM @quarantine ORDER BY qid DESC LIMIT ?", "FROM @quarantine GROUP BY fingerprint", "FROM @quarantine WHERE qid < ? GROUP BY fingerprint",
	"FROM @lease_requests ORDER BY noted DESC LIMIT 1 OFFSET", // no more of them than it may keep
	"DELETE FROM @event_index_chunks", "DELETE FROM @event_index_keys", "DELETE FROM @event_index_cursors",
}

// ordered names the statements that stop early, and must therefore not sort
// what they select.
var ordered = []string{
	"FROM @outbox WHERE seq", `(stream, partition, "offset") > (?, ?, ?)`,
	"WHERE event_id = ? AND event_id <> '' ORDER BY qid DESC LIMIT ?",
	"WHERE fingerprint = ? ORDER BY qid DESC LIMIT ?", "WHERE principal = ? ORDER BY qid DESC LIMIT ?", "WHERE type = ? ORDER BY qid DESC LIMIT ?",
	"WHERE reason = ? ORDER BY qid DESC LIMIT ?", "WHERE kind = ? ORDER BY qid DESC LIMIT ?", "FROM @quarantine ORDER BY qid DESC LIMIT ?",
}

// TestOutsideNoQueryReadsAWholeTable asks the server for the plan of every
// statement, over tables that hold something.
func TestOutsideNoQueryReadsAWholeTable(t *testing.T) {
	s := openTest(t, Config{})
	fillTables(t, s)
	if err := s.Update(t.Context(), storetest.Everything); err != nil {
		t.Fatal(err)
	}
	contains := func(list []string, sql string) bool {
		return slices.ContainsFunc(list, func(part string) bool { return strings.Contains(sql, part) })
	}
	c := s.writer.conn
	m := migrator{pg: c.pg, schema: s.cfg.Schema}
	types := parameterTypes(t, m)
	for sql, name := range c.stmts {
		if regexp.MustCompile("^(SAVEPOINT|ROLLBACK|RELEASE|COMMIT|BEGIN)").MatchString(sql) {
			continue
		}
		// Readers plan for the values, and those of a rare thing are the test.
		plans, values := "force_generic_plan", map[string]string{"bytea": "NULL", "bigint": "NULL", "boolean": "NULL", "double precision": "NULL"}
		if strings.Contains(sql, "ORDER BY qid DESC") {
			plans, values = "force_custom_plan", map[string]string{"bytea": "'a'", "bigint": "100"}
		}
		if _, err := m.query(t.Context(), "SET plan_cache_mode = "+plans); err != nil {
			t.Fatal(err)
		}
		var args []string
		for _, typ := range types[name] {
			args = append(args, values[typ])
		}
		execute := "EXPLAIN (COSTS OFF) EXECUTE " + name
		if len(args) > 0 {
			execute += "(" + strings.Join(args, ", ") + ")"
		}
		rows, err := m.query(t.Context(), execute)
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		checkPlan(t, sql, rows, contains(whole, sql), !contains(ordered, sql))
	}
	if n := storetest.Statements(t, "*.go", "../internal/sqlstore/*.go"); len(c.stmts) < n {
		t.Errorf("%d statements for %d places that have one: Everything leaves some out", len(c.stmts), n)
	}
}

// parameterTypes returns the types of the parameters of each prepared statement.
func parameterTypes(t *testing.T, m migrator) map[string][]string {
	t.Helper()
	rows, err := m.query(t.Context(), "SELECT name, array_to_string(parameter_types::text[], ',') FROM pg_prepared_statements")
	if err != nil {
		t.Fatal(err)
	}
	types := map[string][]string{}
	for _, r := range rows {
		if len(r[1]) > 0 {
			types[string(r[0])] = strings.Split(string(r[1]), ",")
		}
	}
	return types
}

func checkPlan(t *testing.T, sql string, rows [][][]byte, mayReadAll, maySort bool) {
	t.Helper()
	var lines []string
	for _, r := range rows {
		lines = append(lines, string(r[0]))
	}
	plan := strings.Join(lines, "\n")
	for i, line := range lines {
		scan := regexp.MustCompile(`(Seq Scan|Index Scan|Index Only Scan|Bitmap Index Scan)`).FindString(line)
		keyed := scan != "" && scan != "Seq Scan" && i+1 < len(lines) && strings.Contains(lines[i+1], "Index Cond")
		if scan != "" && !keyed && !mayReadAll {
			t.Errorf("%s\nreads a whole table:\n%s", sql, plan)
		}
		if strings.Contains(line, "Sort Key") && !maySort {
			t.Errorf("%s\nsorts:\n%s", sql, plan)
		}
	}
}

// fillTables gives the planner what a node has after a while.
func fillTables(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Update(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		for i := range 3000 {
			name := fmt.Sprint(i % 20)
			pos := headgate.Position{Partition: uint32(i % 4), Offset: uint64(i)}
			if _, err := tx.Quarantine.Put(ctx, store.QuarantineRecord{
				QID: fmt.Sprintf("%08d", i), Kind: store.KindParked, Reason: name, Type: name, Subscription: name, Principal: name,
				Root: fmt.Sprint(i / 10), ID: fmt.Sprint(i), Fingerprint: name, Created: time.Unix(int64(i), 0), Expires: time.Unix(int64(i), 1),
			}); err != nil {
				return err
			}
			if err := tx.Index.Put(ctx, []store.IndexRow{{ID: fmt.Sprint(i), Root: fmt.Sprint(i / 10), Stream: name, Position: pos, Recorded: time.Unix(int64(i), 0)}}); err != nil {
				return err
			}
			if err := tx.Deliveries.PutExceptions(ctx, []store.Exception{{Subscription: name, Stream: name, Position: pos}}); err != nil {
				return err
			}
			if _, err := tx.Gas.Debit(ctx, fmt.Sprint("root", i), 1000, 1, 1, time.Unix(int64(i), 0)); err != nil {
				return err
			}
		}
		return tx.Outbox.Append(ctx, make([]store.OutboxRow, 3000))
	}); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"quarantine", "event_index_chunks", "event_index_keys", "exceptions", "gas", "outbox"} {
		pgtest.Exec(t, s.cfg.URL, "ANALYZE "+s.cfg.Schema+"."+table)
	}
}
