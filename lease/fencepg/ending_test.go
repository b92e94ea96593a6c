package fencepg_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
)

// TestSealEnding: a seal ends the sessions that are in its way, and no other;
// its gate alone refuses what begins, and waits for nothing.
func TestSealEnding(t *testing.T) {
	ctx := t.Context()
	pool, url := sealed(t)
	db := &fencepg.DB{}
	old, now, other := grant("t/1", 1), grant("t/1", 2), grant("t/2", 1)
	for _, f := range []*fence.Fence{&old, &other} {
		want(t, "seal", db.Seal(ctx, pool, *f), "")
	}
	within := func(f fence.Fence, id string) (*pgx.Conn, pgx.Tx) {
		t.Helper()
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, "SELECT headgate.fence($1, $2, $3)", f.Resource, f.Epoch, f.NonceText()); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, "INSERT INTO tickets (id, ticket) VALUES (7, '"+id+"')"); err != nil {
			t.Fatal(err)
		}
		return conn, tx
	}
	first, tx1 := within(old, "1")
	second, tx2 := within(old, "1")
	_, bystander := within(other, "2")
	want(t, "gate", db.Gate(ctx, pool, "t/1", 2), "")
	want(t, "a transaction behind the gate", fencepg.Tx(ctx, pool, old, func(pgx.Tx) error { return nil }), headgate.CodeLeaseClosing)
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	want(t, "a seal that ends nobody", db.Seal(short, pool, now), headgate.CodeUnavailable)
	ended, err := db.SealEnding(ctx, pool, now)
	want(t, "a seal that does", err, "")
	pids := map[int]bool{int(first.PgConn().PID()): true, int(second.PgConn().PID()): true}
	if len(ended) != 2 || !pids[ended[0].PID] || !pids[ended[1].PID] {
		t.Errorf("ended %v, want %v", ended, pids)
	}
	for _, tx := range []pgx.Tx{tx1, tx2} {
		if err := tx.Commit(ctx); err == nil {
			t.Error("a transaction in the way committed")
		}
	}
	if err := bystander.Commit(ctx); err != nil {
		t.Errorf("the transaction of another lease: %v", err)
	}
	want(t, "the new grant", fencepg.Tx(ctx, pool, now, func(pgx.Tx) error { return nil }), "")
	want(t, "the old one", fencepg.Tx(ctx, pool, old, func(pgx.Tx) error { return nil }), headgate.CodeStaleFence)
}
