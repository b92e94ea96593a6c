package gateway_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/nodetest"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/pgstore"
)

// TestSettleOnPostgres: a worker that settles while its own fenced transaction
// is open in the database of the node is answered once that has ended, and
// nobody else waits for it.
func TestSettleOnPostgres(t *testing.T) {
	url := pgtest.URL(t)
	schema := pgtest.Schema(t, url, t.TempDir())
	functions := pgtest.Schema(t, url, t.TempDir())
	t.Cleanup(func() { pgtest.Exec(t, url, `DROP SCHEMA IF EXISTS "`+functions+`_fence" CASCADE`) })
	n := nodetest.Start(t, &nodetest.Opts{Store: func(store.Store) store.Store {
		st, err := pgstore.Open(t.Context(), pgstore.Config{URL: url, Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		return st
	}})
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	err = fencepg.Install(t.Context(), conn, fencepg.Config{Schema: functions, Node: schema})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	leasedSubscription(t, n, "one")
	triage := n.Client(t, "triage")
	openTicket(t, n, "e1", "7")
	openTicket(t, n, "e2", "8")
	first, second := pullOne(t, n, "one"), pullOne(t, n, "one")
	f, err := fence.Parse(first.Lease.Token)
	if err != nil {
		t.Fatal(err)
	}
	settle := func(d api.Delivery) error {
		_, err := triage.Settle(t.Context(), "one", api.Settlement{Claim: d.Claim, Outcome: "ack"})
		return err
	}
	settled := make(chan error, 1)
	db := &fencepg.DB{Schema: functions}
	err = db.Tx(t.Context(), pool, f, pgx.TxOptions{}, func(tx pgx.Tx) error {
		go func() { settled <- settle(first) }()
		if err := settle(second); err != nil { // while the first one waits, or is about to
			t.Errorf("another delivery: %v", err)
		}
		select {
		case err := <-settled:
			t.Errorf("it was answered while the transaction was open: %v", err)
		case <-time.After(300 * time.Millisecond): // of a wait of 5 s
		}
		return nil
	})
	if err != nil {
		t.Errorf("the worker's own transaction: %v", err)
	}
	if err := <-settled; err != nil {
		t.Errorf("the settlement: %v", err)
	}
	err = db.Tx(context.WithoutCancel(t.Context()), pool, f, pgx.TxOptions{}, func(pgx.Tx) error { return nil })
	wantCode(t, "a transaction after the settlement", err, headgate.CodeStaleFence)
}
