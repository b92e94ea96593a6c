// Command orders is an order service: each order and its event are one
// transaction. See README.md for how to run it.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/outbox/outboxcheck"
	"github.com/headgate/headgate/outbox/outboxpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("orders", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	db, err := pgxpool.New(ctx, os.Getenv("SHOP_DB"))
	if err != nil {
		return err
	}
	defer db.Close()
	schema, err := os.ReadFile("contracts/order.placed.json")
	if err != nil {
		return err
	}
	contracts, err := outboxcheck.Compile(map[string][]byte{"order.placed": schema}, false)
	if err != nil {
		return err
	}
	shop := &shop{db: db, events: &outbox.Writer{Checker: contracts}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", shop.place)
	srv := &http.Server{Addr: cmp.Or(os.Getenv("SHOP_LISTEN"), "127.0.0.1:8080"), Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		_ = srv.Shutdown(context.Background())
	}()
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type shop struct {
	db     *pgxpool.Pool
	events *outbox.Writer
}

// order is what a client sends and what the event says.
type order struct {
	ID       int64  `json:"order_id"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
}

func (s *shop) place(w http.ResponseWriter, req *http.Request) {
	var o order
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, 1<<16)).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	err := pgx.BeginFunc(req.Context(), s.db, func(tx pgx.Tx) error { return s.insert(req.Context(), tx, &o) })
	if e := headgate.AsError(err); e != nil && e.Verdict != nil {
		// The transaction was rolled back: neither order nor event is there.
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(e.Verdict) // the client may have gone
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(o) // the client may have gone
}

// insert writes the order and its event. An agent that reacts to a delivery
// would call outbox.SetCause with the delivery's token first.
func (s *shop) insert(ctx context.Context, tx pgx.Tx, o *order) error {
	err := tx.QueryRow(ctx, `INSERT INTO public.orders (customer, cents) VALUES ($1, $2) RETURNING id`, o.Customer, o.Cents).Scan(&o.ID)
	if err != nil {
		return err
	}
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return s.events.Emit(ctx, outboxpgx.Tx(tx), &headgate.Event{
		Type: "order.placed", Source: "/shop", Subject: "order " + strconv.FormatInt(o.ID, 10), Key: strconv.FormatInt(o.ID, 10), Data: data,
	})
}
