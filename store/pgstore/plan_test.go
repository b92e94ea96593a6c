package pgstore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/store"
)

// whole names the statements that read a whole table because that is what
// they return.
var whole = []string{
	"FROM @principals ORDER BY name", "FROM @subscriptions ORDER BY name", "FROM @quarantine_overflow", "count(*) FROM @outbox",
	"FROM @contracts AS c WHERE NOT deleted", "FROM @quarantine ORDER BY qid DESC LIMIT ?", "FROM @quarantine GROUP BY fingerprint", "FROM @quarantine WHERE qid < ? GROUP BY fingerprint",
	"DELETE FROM @event_index", "DELETE FROM @event_index_cursors",
}

// ordered names the statements that stop early, and must therefore not sort
// what they select.
var ordered = []string{
	"FROM @outbox WHERE seq", `(stream, partition, "offset") > (?, ?, ?)`,
	"WHERE event_id = ? AND event_id <> '' ORDER BY qid DESC LIMIT ?",
	"WHERE fingerprint = ? ORDER BY qid DESC LIMIT ?", "WHERE principal = ? ORDER BY qid DESC LIMIT ?", "WHERE type = ? ORDER BY qid DESC LIMIT ?",
	"WHERE reason = ? ORDER BY qid DESC LIMIT ?", "WHERE kind = ? ORDER BY qid DESC LIMIT ?", "FROM @quarantine ORDER BY qid DESC LIMIT ?",
}

// everything calls every method once in every form that has a statement of
// its own.
func everything(ctx context.Context, tx *store.Tx) error {
	var errs []error
	try := func(err error) {
		if err != nil && headgate.CodeOf(err) != headgate.CodeNotFound {
			errs = append(errs, err)
		}
	}
	try2 := func(_ any, err error) { try(err) }
	pos := headgate.Position{}
	try2(tx.Settings.Get(ctx, "a"))
	try(tx.Settings.Put(ctx, "a", nil))
	try(tx.Settings.Delete(ctx, "a"))
	try2(tx.Settings.List(ctx, ""))
	try2(tx.Settings.List(ctx, "a"))
	try(tx.Contracts.Put(ctx, store.Contract{Subject: "a", Version: 1}))
	for version := range 2 {
		try2(tx.Contracts.Get(ctx, "a", version))
		try2(tx.Contracts.Delete(ctx, "a", version))
	}
	try2(tx.Contracts.Versions(ctx, "a"))
	try2(tx.Contracts.Latest(ctx))
	try(tx.Principals.Put(ctx, store.Principal{Principal: headgate.Principal{Name: "a"}}))
	try2(tx.Principals.List(ctx))
	try(tx.Principals.PutToken(ctx, store.Token{ID: "a", Principal: "a"}))
	try2(tx.Principals.Token(ctx, "a"))
	try2(tx.Principals.Tokens(ctx, "a"))
	try(tx.Principals.DeleteToken(ctx, "a"))
	try(tx.Principals.Delete(ctx, "a"))
	try(tx.Subscriptions.Put(ctx, store.Subscription{Name: "a"}))
	try2(tx.Subscriptions.Get(ctx, "a"))
	try2(tx.Subscriptions.List(ctx))
	try2(tx.Deliveries.Progress(ctx, "a"))
	try(tx.Deliveries.SaveProgress(ctx, []store.Progress{{}}))
	try2(tx.Deliveries.Floors(ctx, "a"))
	try(tx.Deliveries.PutExceptions(ctx, []store.Exception{{}}))
	try(tx.Deliveries.DeleteException(ctx, "a", "a", pos))
	try2(tx.Deliveries.Exceptions(ctx, "a", "", pos, 1))
	try2(tx.Deliveries.Exception(ctx, "a", "a", pos))
	try(tx.Subscriptions.Delete(ctx, "a"))
	try(tx.Outbox.Append(ctx, make([]store.OutboxRow, 1)))
	try2(tx.Outbox.Pending(ctx, 0, 1))
	try(tx.Outbox.Delete(ctx, []int64{1}))
	try2(tx.Outbox.Count(ctx))
	try2(tx.Quarantine.Put(ctx, store.QuarantineRecord{QID: "a"}))
	try2(tx.Quarantine.Get(ctx, "a"))
	for _, f := range filters() {
		try2(tx.Quarantine.List(ctx, f))
		try2(tx.Quarantine.Groups(ctx, f))
	}
	for _, kind := range []store.QuarantineKind{"", store.KindParked} {
		for _, principal := range []string{"", "a"} {
			try2(tx.Quarantine.Count(ctx, kind, principal, time.Time{}))
		}
	}
	try2(tx.Quarantine.Expire(ctx, time.Now(), 1))
	try(tx.Quarantine.AddOverflow(ctx, []store.QuarantineOverflow{{}}))
	try2(tx.Quarantine.Overflow(ctx))
	try2(tx.Gas.Debit(ctx, "a", 2, 1, 1, time.Now()))
	try2(tx.Gas.Prune(ctx, time.Now(), 1))
	try(tx.Index.Put(ctx, make([]store.IndexRow, 1)))
	try2(tx.Index.ByID(ctx, "a"))
	try2(tx.Index.ByRoot(ctx, "a", 0, 1))
	try2(tx.Index.Cursor(ctx, "a", 0))
	try(tx.Index.SetCursor(ctx, "a", 0, 1))
	try2(tx.Index.Prune(ctx, "a", 0, 1, 1))
	try(tx.Index.Reset(ctx))
	try2(tx.Leases.Now(ctx))
	try2(tx.Leases.Get(ctx, "a"))
	for _, f := range []store.LeaseFilter{{}, {Prefix: "a"}, {Held: true}, {Prefix: "a", Held: true}} {
		try2(tx.Leases.List(ctx, f))
	}
	try(tx.Leases.Grant(ctx, store.Lease{Resource: "a", Epoch: 1}))
	try(tx.Leases.Touch(ctx, "a", 1, time.Now(), time.Now(), false))
	if len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// filters are those of no, one and two fields.
func filters() []store.QuarantineFilter {
	set := func(f *store.QuarantineFilter, field int) {
		switch field {
		case 0:
			f.Kind = store.KindParked
		case 1, 2, 3, 4, 5, 6, 7, 8:
			*[]*string{&f.Reason, &f.Type, &f.Subscription, &f.Principal, &f.Root, &f.ID, &f.Fingerprint, &f.After}[field-1] = "a"
		}
	}
	all := []store.QuarantineFilter{{}}
	for a := range 9 {
		for b := a; b < 9; b++ {
			var f store.QuarantineFilter
			set(&f, a)
			set(&f, b)
			all = append(all, f)
		}
	}
	return all
}

// TestOutsideNoQueryReadsAWholeTable asks the server for the plan of every
// statement, over tables that hold something.
func TestOutsideNoQueryReadsAWholeTable(t *testing.T) {
	s := openTest(t, Config{})
	fillTables(t, s)
	if err := s.Update(t.Context(), everything); err != nil {
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
	if n := callSites(t); len(c.stmts) < n {
		t.Errorf("%d statements for %d places that have one: everything() leaves some out", len(c.stmts), n)
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
	for _, table := range []string{"quarantine", "event_index", "exceptions", "gas", "outbox"} {
		pgtest.Exec(t, s.cfg.URL, "ANALYZE "+s.cfg.Schema+"."+table)
	}
}

// callSites counts the places in the package that execute a statement.
func callSites(t *testing.T) (n int) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		n += len(regexp.MustCompile(`\br\.query\("`).FindAll(b, -1)) + len(regexp.MustCompile("\\br\\.query\\(`").FindAll(b, -1))
	}
	return n
}
