// Package pgtest finds a PostgreSQL server for tests, or runs one that a test
// may stop, crash and start again. It is for tests and benchmarks only.
package pgtest

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// URL returns the server that scripts/services started
// (HEADGATE_TEST_POSTGRES). When there is none the test is skipped, or fails
// if HEADGATE_REQUIRE_SERVICES is 1.
func URL(t testing.TB) string {
	t.Helper()
	url := os.Getenv("HEADGATE_TEST_POSTGRES")
	if url == "" {
		absent(t, "HEADGATE_TEST_POSTGRES names no server; scripts/services run CMD starts one")
	}
	return url
}

func absent(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("HEADGATE_REQUIRE_SERVICES") == "1" {
		t.Fatalf("PostgreSQL is required: %s", why)
	}
	t.Skipf("PostgreSQL is absent: %s", why)
}

// Version returns the major version of a server.
func Version(t testing.TB, url string) int {
	t.Helper()
	n, err := strconv.Atoi(Exec(t, url, `SELECT current_setting('server_version_num')::int / 10000`)[0][0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Schema returns a schema name of its own for a seed, such as the test's
// folder, and drops the schema when the test ends.
func Schema(t testing.TB, url, seed string) string {
	t.Helper()
	h := fnv.New64a()
	fmt.Fprint(h, seed)
	name := fmt.Sprintf("t_%016x", h.Sum64())
	t.Cleanup(func() { Exec(t, url, `DROP SCHEMA IF EXISTS "`+name+`" CASCADE`) })
	return name
}

// Exec runs a script on a connection of its own and returns the rows of its
// last statement as text.
func Exec(t testing.TB, url, sql string) [][]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	pg, err := pgconn.Connect(ctx, url)
	if err != nil {
		t.Fatalf("connecting to PostgreSQL: %v", err)
	}
	defer pg.Close(ctx)
	results, err := pg.Exec(ctx, sql).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if len(results) == 0 {
		return nil
	}
	var all [][]string
	for _, row := range results[len(results)-1].Rows {
		values := make([]string, len(row))
		for i, v := range row {
			values[i] = string(v)
		}
		all = append(all, values)
	}
	return all
}
