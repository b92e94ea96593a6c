package sqlitestore

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// whole names the statements that read a whole table because that is what
// they return.
var whole = []string{
	"FROM principals ORDER BY name", "FROM subscriptions ORDER BY name", "FROM quarantine_overflow", "count(*) FROM outbox",
	"FROM contracts AS c WHERE deleted = 0", "FROM quarantine ORDER BY qid DESC LIMIT ?", "FROM quarantine GROUP BY fingerprint", "FROM quarantine WHERE qid < ? GROUP BY fingerprint",
	"DELETE FROM event_index", "DELETE FROM event_index_cursors",
}

// sorted names the statements that sort what they selected: groups by size.
var sorted = []string{"GROUP BY fingerprint ORDER BY count(*) DESC"}

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

// TestNoQueryReadsAWholeTable asks SQLite for the plan of every statement.
func TestNoQueryReadsAWholeTable(t *testing.T) {
	s := openTest(t, Config{Memory: true})
	if err := s.Update(t.Context(), everything); err != nil {
		t.Fatal(err)
	}
	statements := map[string]bool{}
	for sql := range s.writer.conn.stmts {
		statements[sql] = true
	}
	contains := func(list []string, sql string) bool {
		return slices.ContainsFunc(list, func(part string) bool { return strings.Contains(sql, part) })
	}
	c := s.writer.conn
	for sql := range statements {
		if strings.HasPrefix(sql, "SAVEPOINT") || strings.HasPrefix(sql, "R") || strings.HasPrefix(sql, "COMMIT") || strings.HasPrefix(sql, "BEGIN") {
			continue
		}
		p, _, err := c.db.Prepare("EXPLAIN QUERY PLAN " + sql)
		if err != nil {
			t.Fatal(err)
		}
		var plan []string
		for p.Step() {
			plan = append(plan, p.ColumnText(3))
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		for _, line := range plan {
			// "SCAN g" reads the few rows of a subquery.
			if strings.HasPrefix(line, "SCAN") && line != "SCAN g" && !contains(whole, sql) {
				t.Errorf("%s\nreads a whole table: %q", sql, plan)
			}
			if strings.Contains(line, "TEMP B-TREE FOR ORDER BY") && !contains(sorted, sql) {
				t.Errorf("%s\nsorts: %q", sql, plan)
			}
		}
	}
	if n := callSites(t); len(statements) < n {
		t.Errorf("%d statements for %d places that have one: everything() leaves some out", len(statements), n)
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
