// Command billing charges each order once: the charge, the note that the event
// was handled and the event order.charged are one transaction. See ../README.md.
package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/signal"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/unit"
	"github.com/headgate/headgate/unit/unitpgx"
	"github.com/headgate/headgate/unit/worker"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("billing", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("BILLING_DB"))
	if err != nil {
		return err
	}
	defer pool.Close()
	node, err := client.New(client.Config{URL: os.Getenv("HEADGATE_URL"), Token: os.Getenv("BILLING_TOKEN")})
	if err != nil {
		return err
	}
	db := unitpgx.New(pool)
	return worker.Run(ctx, worker.Config{Client: node, Subscription: "billing", Maintain: db.Maintain, Remembers: db.Remembers}, func(ctx context.Context, d *worker.Delivery) error {
		res, err := unit.Do(ctx, db, d.Delivery, func(ctx context.Context, tx pgx.Tx, out outbox.Tx) error {
			return charge(ctx, tx, out, d.Event)
		})
		if err == nil {
			slog.Info("order", "event", d.Event.ID, "attempt", d.Attempt, "duplicate", res.Duplicate)
		}
		return err
	})
}

// charge writes the charge and its event. It may run several times, and is
// committed once.
func charge(ctx context.Context, tx pgx.Tx, out outbox.Tx, e *headgate.Event) error {
	var order struct {
		ID    int64 `json:"order_id"`
		Cents int64 `json:"cents"`
	}
	if err := json.Unmarshal(e.Data, &order); err != nil {
		return unit.Rejected(err)
	}
	if _, err := tx.Exec(ctx, `INSERT INTO public.charges (order_id, cents) VALUES ($1, $2)`, order.ID, order.Cents); err != nil {
		return err
	}
	data, err := json.Marshal(order)
	if err != nil {
		return err
	}
	return outbox.Emit(ctx, out, &headgate.Event{
		Type: "order.charged", Source: "/billing", Subject: e.Subject, Key: strconv.FormatInt(order.ID, 10), Data: data,
	})
}
