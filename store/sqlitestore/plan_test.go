package sqlitestore

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/store/storetest"
)

// whole names the statements that read a whole table because that is what
// they return.
var whole = []string{
	"FROM principals ORDER BY name", "FROM subscriptions ORDER BY name", "FROM quarantine_overflow", "count(*) FROM outbox",
	"FROM contracts AS c WHERE NOT deleted", "FROM quarantine ORDER BY qid DESC LIMIT ?", "FROM quarantine GROUP BY fingerprint", "FROM quarantine WHERE qid < ? GROUP BY fingerprint",
	"FROM lease_requests ORDER BY noted DESC LIMIT 1 OFFSET", // no more of them than it may keep
	"DELETE FROM event_index_chunks", "DELETE FROM event_index_keys", "DELETE FROM event_index_cursors",
}

// sorted names the statements that sort what they selected: groups by size.
var sorted = []string{"GROUP BY fingerprint ORDER BY count(*) DESC"}

// TestNoQueryReadsAWholeTable asks SQLite for the plan of every statement.
func TestNoQueryReadsAWholeTable(t *testing.T) {
	s := openTest(t, Config{Memory: true})
	if err := s.Update(t.Context(), storetest.Everything); err != nil {
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
			// "SCAN g" reads the few rows of a subquery, "SCAN n-ROW VALUES CLAUSE"
			// those of the statement itself.
			if strings.HasPrefix(line, "SCAN") && line != "SCAN g" && !strings.HasSuffix(line, "VALUES CLAUSE") && !contains(whole, sql) {
				t.Errorf("%s\nreads a whole table: %q", sql, plan)
			}
			if strings.Contains(line, "TEMP B-TREE FOR ORDER BY") && !contains(sorted, sql) {
				t.Errorf("%s\nsorts: %q", sql, plan)
			}
		}
	}
	if n := storetest.Statements(t, "*.go", "../internal/sqlstore/*.go"); len(statements) < n {
		t.Errorf("%d statements for %d places that have one: Everything leaves some out", len(statements), n)
	}
}
