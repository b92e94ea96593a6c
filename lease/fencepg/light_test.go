package fencepg_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/lease/fencepg"
)

// Before a table is fenced the guard leaves no note. A transaction that is open
// while the first one is meets no open door: its write there is refused, its
// other writes are not, and its repetition passes. So it is for every session
// that called the older function before, also by a prepared statement.
func TestFirstFencedTable(t *testing.T) {
	ctx := t.Context()
	url := newDatabase(t)
	pool := connect(t, url)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := fencepg.Install(ctx, conn, fencepg.Config{}); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, url, "CREATE TABLE tickets (id int, ticket text); CREATE TABLE notes (id int)")
	db := &fencepg.DB{}
	old, now := grant("t/1", 1), grant("t/1", 2)
	want(t, "seal", db.Seal(ctx, pool, old), "")
	want(t, "seal", db.Seal(ctx, pool, now), "")
	insert := func(tx pgx.Tx, sql string) error {
		_, err := tx.Exec(ctx, sql)
		return err
	}
	const ticket, note = "INSERT INTO tickets VALUES (1, '1')", "INSERT INTO notes VALUES (1)"
	write := func(tx pgx.Tx) error { return insert(tx, ticket) }
	want(t, "a good fence", fencepg.Tx(ctx, pool, now, write), "")
	want(t, "a superseded one", fencepg.Tx(ctx, pool, old, write), headgate.CodeStaleFence)
	if got := pgtest.Exec(t, url, "SELECT count(*) FROM tickets"); got[0][0] != "1" {
		t.Errorf("%s tickets before the table is fenced", got[0][0])
	}

	fenceIt := func() {
		t.Helper()
		if _, err := fencepg.FenceTable(ctx, conn, "", "tickets", "t/{ticket}", false); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "a transaction open meanwhile", fencepg.Tx(ctx, pool, now, func(tx pgx.Tx) error {
		if err := insert(tx, note); err != nil {
			return err
		}
		fenceIt()
		if err := insert(tx, note); err != nil {
			t.Errorf("a write to another table: %v", err)
		}
		return insert(tx, ticket)
	}), headgate.CodeFenceMissing)
	for range 3 { // on the same session, too
		want(t, "its repetition", fencepg.Tx(ctx, pool, now, write), "")
	}
	want(t, "a superseded one, afterwards", fencepg.Tx(ctx, pool, old, write), headgate.CodeStaleFence)
	_, err = pool.Exec(ctx, ticket)
	want(t, "without a fence", fencepg.Error(err), headgate.CodeFenceMissing)

	// Whatever brings the older function back beside a fenced table, the doctor
	// says so, and nothing passes.
	light, err := fencepg.Config{}.Script()
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, url, light)
	want(t, "without a note", fencepg.Tx(ctx, pool, now, write), headgate.CodeFenceMissing)
	fenced, err := fencepg.FencedTables(ctx, conn, "")
	if err != nil || len(fenced) != 1 || len(fenced[0].Problems) != 1 {
		t.Errorf("fenced tables: %+v, %v", fenced, err)
	}
	fenceIt()
	want(t, "fenced again", fencepg.Tx(ctx, pool, now, write), "")
}
