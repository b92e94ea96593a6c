package fencepg_test

import (
	"context"
	_ "embed"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/lease/fencepg"
)

//go:embed testdata/version1.sql
var version1 string

// An older version in the database guards the writes of this library, and this
// version those of an older library, which makes the same calls. In between
// the fence is never off: sessions that are open, tables that were fenced and
// grants that were sealed stay so, as does who may call what.
func TestUpgrade(t *testing.T) {
	ctx := t.Context()
	url := newDatabase(t)
	pgtest.Exec(t, url, "CREATE TABLE tickets (id int, ticket text NOT NULL); CREATE TABLE parted (id int, ticket text NOT NULL) PARTITION BY LIST (ticket); CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN ('1')")
	pgtest.Exec(t, url, version1)
	pool := connect(t, url)
	old, now := grant("t/1", 1), grant("t/1", 2)
	insert := func(table string) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO "+table+" VALUES (1, '1')")
			return err
		}
	}
	both := func(when string) {
		t.Helper()
		for _, table := range []string{"tickets", "parted"} {
			want(t, when+": holder, "+table, fencepg.Tx(ctx, pool, now, insert(table)), "")
			want(t, when+": superseded, "+table, fencepg.Tx(ctx, pool, old, insert(table)), headgate.CodeStaleFence)
			_, err := pool.Exec(ctx, "INSERT INTO "+table+" VALUES (1, '1')")
			want(t, when+": no fence, "+table, fencepg.Error(err), headgate.CodeFenceMissing)
		}
	}
	db := &fencepg.DB{}
	want(t, "seal", db.Seal(ctx, pool, old), "")
	want(t, "seal", db.Seal(ctx, pool, now), "")
	both("older schema")

	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	_, err = fencepg.FenceTable(ctx, conn, "", "tickets", "t/{ticket}", false)
	want(t, "a table, with the older schema", err, headgate.CodeConflict)
	want(t, "another configuration", fencepg.Install(ctx, conn, fencepg.Config{Node: "public"}), headgate.CodeInvalidConfig)
	upgraded := make(chan error, 1)
	open := func(tx pgx.Tx) error { // a transaction that is open all the while
		if err := insert("tickets")(tx); err != nil {
			return err
		}
		go func() { upgraded <- fencepg.Install(context.WithoutCancel(ctx), conn, fencepg.Config{}) }()
		if err := <-upgraded; err != nil {
			return err
		}
		return insert("tickets")(tx)
	}
	if err := fencepg.Tx(ctx, pool, now, open); err != nil {
		want(t, "a transaction over the upgrade", err, headgate.CodeFenceMissing)
	}
	both("newer schema, older triggers")
	for _, table := range []string{"tickets", "parted"} {
		if _, err := fencepg.FenceTable(ctx, conn, "", table, "t/{ticket}", false); err != nil {
			t.Fatal(err)
		}
	}
	both("newer schema")
	want(t, "repeated", fencepg.Install(ctx, conn, fencepg.Config{}), "")
	if may := pgtest.Exec(t, url, "SELECT has_function_privilege('public', 'headgate.fence(text, bigint, text)', 'EXECUTE') AND has_function_privilege('public', 'headgate.fence_seal(text, bigint, text)', 'EXECUTE')"); may[0][0] != "t" {
		t.Error("who was granted the functions may not call them any more")
	}
	if c, err := fencepg.Installed(ctx, conn, ""); err != nil || c.Node != "" {
		t.Errorf("installed: %+v, %v", c, err)
	}
	pgtest.Exec(t, url, "COMMENT ON SCHEMA headgate_fence IS 'headgate fencing 99, fences'")
	want(t, "a newer one", fencepg.Install(ctx, conn, fencepg.Config{}), headgate.CodeConflict)
	want(t, "a library older than the schema", fencepg.Tx(ctx, pool, old, insert("tickets")), headgate.CodeStaleFence)
}
