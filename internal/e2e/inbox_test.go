package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/internal/servertest"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/unit"
	"github.com/headgate/headgate/unit/unitpgx"
	"github.com/headgate/headgate/unit/worker"
)

const inboxConfig = `
version: 1
data: %s
listen: %s
principals:
  - { name: operator, kind: human, roles: [admin], listen: ["*"], token: env:TOKEN_OPERATOR }
  - { name: shop, kind: system, emit: ["order.placed"], roots: 100000/s }
  - { name: billing, kind: system, emit: ["order.charged"], listen: ["order.placed"], lease: ["order/*"], token: env:TOKEN_BILLING }
types:
  order.placed: { key: "string(data.order_id)", ttl: 8 }
subscriptions:
  billing: { types: ["order.placed"], as: billing, from: beginning, claim: 3s, backoff: 10ms..100ms, lease: "order/{data.order_id}" }
outbox:
  - { name: shop, url: env:SHOP_DB, roles: { %[3]s_shop: shop, %[3]s_billing: billing } }
`

// inboxDatabase makes a database prepared by the commands that a user types,
// with a role for each writer.
func inboxDatabase(t *testing.T) (owner, shop, billing, prefix string) {
	t.Helper()
	server := pgtest.URL(t)
	prefix = fmt.Sprintf("e2e_%x", time.Now().UnixNano())
	pgtest.Exec(t, server, `CREATE DATABASE `+prefix+`; `)
	t.Cleanup(func() {
		deadline := time.Now().Add(20 * time.Second)
		for len(pgtest.Exec(t, server, `SELECT 1 FROM pg_replication_slots WHERE database = '`+prefix+`' AND active`)) > 0 && time.Now().Before(deadline) {
			pgtest.Exec(t, server, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = '`+prefix+`' AND active`)
		}
		pgtest.Exec(t, server, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '`+prefix+`'`)
		pgtest.Exec(t, server, `DROP DATABASE IF EXISTS `+prefix+` WITH (FORCE)`)
		pgtest.Exec(t, server, `DROP ROLE IF EXISTS `+prefix+`_shop, `+prefix+`_billing`)
	})
	as := func(role string) string {
		u, err := url.Parse(server)
		if err != nil {
			t.Fatal(err)
		}
		u.Path = "/" + prefix
		if role != "" {
			u.User = url.User(role)
		}
		return u.String()
	}
	owner, shop, billing = as(""), as(prefix+"_shop"), as(prefix+"_billing")
	pgtest.Exec(t, owner, `CREATE ROLE `+prefix+`_shop LOGIN; CREATE ROLE `+prefix+`_billing LOGIN`)
	pgtest.Exec(t, owner, `CREATE TABLE public.orders (id int PRIMARY KEY); GRANT INSERT ON public.orders TO `+prefix+`_shop;
		CREATE TABLE public.charges (order_id int NOT NULL, times int NOT NULL DEFAULT 1); GRANT INSERT, SELECT ON public.charges TO `+prefix+`_billing`)
	for _, args := range [][]string{
		{"inbox", "init", "--url", owner, "--consumer", prefix + "_billing"},
		{"lease", "fence-table", owner, "charges", "--resource", "order/{order_id}", "--grant", prefix + "_billing"},
		{"outbox", "init", "--url", owner, "--writer", prefix + "_shop", "--writer", prefix + "_billing"},
		{"inbox", "status", "--url", owner},
	} {
		if out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return owner, shop, billing, prefix
}

// An order is written with its event in one transaction; the relay carries it
// to a subscription; a worker charges it under its lease, once, with a child
// event in the same transaction; the relay carries that under its cause. The
// worker's deliveries are repeated on the way.
func TestOutsideInboxFromEndToEnd(t *testing.T) {
	owner, shop, billing, prefix := inboxDatabase(t)
	dir, addr := t.TempDir(), freeAddr(t)
	t.Setenv("SHOP_DB", owner)
	tokens := map[string]string{}
	for _, name := range []string{"operator", "billing"} {
		tokens[name] = "a-token-for-tests-of-" + name + "-0123456789"
		t.Setenv("TOKEN_"+strings.ToUpper(name), tokens[name])
	}
	config := filepath.Join(dir, "headgate.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, inboxConfig, filepath.Join(dir, "data"), addr, prefix), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := servertest.Start(t, binary, addr, "serve", "--config", config)
	operator := srv.Client(tokens["operator"])
	for _, subject := range []string{"order.placed", "order.charged"} {
		schema := `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","required":["order_id"],"properties":{"order_id":{"type":"integer"}}}`
		if _, _, err := operator.PutContract(t.Context(), subject, []byte(schema)); err != nil {
			t.Fatal(err)
		}
	}

	const orders = 20
	ids := place(t, shop, orders)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	charge(ctx, t, srv.Client(tokens["billing"]), billing, func() bool {
		return pgtest.Exec(t, owner, `SELECT count(DISTINCT order_id) FROM public.charges`)[0][0] == fmt.Sprint(orders)
	})
	if rows := pgtest.Exec(t, owner, `SELECT count(*), count(DISTINCT order_id) FROM public.charges`)[0]; rows[0] != fmt.Sprint(orders) || rows[0] != rows[1] {
		t.Errorf("there are %s charges of %s orders", rows[0], rows[1])
	}
	for n, id := range ids {
		child := onlyChild(ctx, t, operator, id)
		var e struct {
			RootID      string `json:"rootid"`
			CausationID string `json:"causationid"`
			TTL, Hop    int
			Principal   string
			Data        struct {
				Order int `json:"order_id"`
			}
		}
		if err := json.Unmarshal(child, &e); err != nil {
			t.Fatal(err)
		}
		if e.RootID != id || e.CausationID != id || e.TTL != 7 || e.Hop != 1 || e.Principal != "billing" || e.Data.Order != n {
			t.Errorf("the charge of %s came as %s", id, child)
		}
	}
	// The relay and the inbox are looked at as a user would.
	var status struct{ Rows, Claims int64 }
	servertest.RunJSON(t, binary, &status, "inbox", "status", "--url", owner)
	if status.Claims != 0 {
		t.Errorf("%+v", status)
	}
}

// place writes orders with their events and returns the events' ids.
func place(t *testing.T, database string, n int) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	ids := make([]string, n)
	for i := range ids {
		err := conn.QueryRow(t.Context(), `WITH o AS (INSERT INTO public.orders VALUES ($1))
			SELECT headgate.emit('order.placed', jsonb_build_object('order_id', $1::int))`, i).Scan(&ids[i])
		if err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

// charge works until done. Every third handling fails after its writes, every
// fourth delivery is handled twice.
func charge(ctx context.Context, t *testing.T, node *client.Client, database string, done func() bool) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	db := unitpgx.New(pool)
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	handled := make(chan struct{}, 1)
	go func() {
		ended <- worker.Run(working, worker.Config{Client: node, Subscription: "billing", Maintain: db.Maintain, Wait: time.Second}, func(ctx context.Context, d *worker.Delivery) error {
			if d.Fence == nil || d.Fence.Resource == "" {
				t.Error("the delivery has no lease")
			}
			var data struct {
				Order int `json:"order_id"`
			}
			if err := json.Unmarshal(d.Event.Data, &data); err != nil {
				return unit.Rejected(err)
			}
			handle := func(fail bool) error {
				_, err := unit.Do(ctx, db, d.Delivery, func(ctx context.Context, tx pgx.Tx, out outbox.Tx) error {
					if _, err := tx.Exec(ctx, `INSERT INTO public.charges (order_id) VALUES ($1)`, data.Order); err != nil {
						return err
					}
					if err := outbox.Emit(ctx, out, &headgate.Event{Type: "order.charged", Source: "/billing", Data: d.Event.Data}); err != nil {
						return err
					}
					if fail {
						return fmt.Errorf("the network is away")
					}
					return nil
				})
				return err
			}
			err := handle(d.Attempt == 1 && data.Order%3 == 0)
			if err == nil && data.Order%4 == 0 {
				err = handle(false) // again: a duplicate
			}
			select {
			case handled <- struct{}{}:
			default:
			}
			return err
		})
	}()
	for !done() {
		select {
		case <-handled:
		case err := <-ended:
			t.Fatalf("the worker ended: %v", err)
		case <-ctx.Done():
			t.Fatal("the orders are not charged in time")
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// onlyChild waits for the one child of an event, and returns it.
func onlyChild(ctx context.Context, t *testing.T, c *client.Client, id string) []byte {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		tree, err := c.Tree(ctx, id, 10, true)
		if err == nil && len(tree.Root.Children) > 0 {
			if len(tree.Root.Children) != 1 {
				t.Fatalf("%s has %d children", id, len(tree.Root.Children))
			}
			got, err := c.Event(ctx, tree.Root.Children[0].ID, true)
			if err != nil || len(got.Events) != 1 {
				t.Fatalf("%+v, %v", got, err)
			}
			return got.Events[0].Event
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s has no child: %v", id, err)
		}
	}
}
