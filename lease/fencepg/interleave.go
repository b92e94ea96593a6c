package fencepg

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/lease/fence"
)

// How a guard is put before a write.
const (
	guardCall     = "call"
	guardLight    = "call, no table fenced"
	guardInline   = "inline"
	guardTrigger  = "trigger"
	guardRows     = "rows"
	guardParted   = "partitions"
	guardUnlocked = "control: read without lock"
	guardAdvisory = "control: advisory lock"
)

var guards = []string{guardCall, guardLight, guardInline, guardTrigger, guardRows, guardParted}

// triggered are the guards that catch who forgets the call.
func triggered(guard string) bool {
	return guard == guardTrigger || guard == guardRows || guard == guardParted
}

// patience is how long a session that does not wait may take, and settle how
// long the server's word that one waits is asked for.
const patience = 5 * time.Second

// fresh makes a lease that is held, and returns its fence. The table with a
// constant resource knows one name only.
func (w *world) fresh(ctx context.Context, guard string) (fence.Fence, error) {
	w.n++
	f := fence.Fence{Resource: fmt.Sprintf("doctor/%d", w.n), Epoch: int64(w.n) * 1000, Nonce: []byte(fmt.Sprintf("nonce%011d", w.n))}
	if guard == guardTrigger {
		f.Resource = "constant"
	}
	_, err := w.eye.Exec(ctx, "INSERT INTO "+w.leases()+` AS l VALUES (convert_to($1, 'UTF8'), $2, $3, false, 9000000000000000000)
		ON CONFLICT (resource) DO UPDATE SET epoch = excluded.epoch, nonce = excluded.nonce, closing = false, expires = excluded.expires`, f.Resource, f.Epoch, f.Nonce)
	return f, err
}

func (w *world) leases() string { return fence.Ident(w.config.Node) + ".leases" }

// set changes the lease; it raises the epoch when what says so.
func (w *world) set(ctx context.Context, c *pgx.Conn, f fence.Fence, what string) error {
	_, err := c.Exec(ctx, "UPDATE "+w.leases()+" SET "+what+" WHERE resource = convert_to($1, 'UTF8')", f.Resource)
	return err
}

const (
	takeover = "epoch = epoch + 1, nonce = 'another nonce 16'"
	renewal  = "expires = expires - 1"
)

// take is a takeover, in the way that the guard asks for.
func (w *world) take(ctx context.Context, guard string, f fence.Fence) error {
	if guard == guardAdvisory {
		if _, err := w.taker.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext($1))", f.Resource); err != nil {
			return err
		}
	}
	return w.set(ctx, w.taker, f, takeover)
}

// write is a guarded write in the worker's transaction.
func (w *world) write(ctx context.Context, guard string, f fence.Fence) error {
	db := &DB{Schema: w.config.Schema}
	if guard == guardInline {
		item, args := db.Inline(f, 1)
		_, err := w.worker.Exec(ctx, "INSERT INTO "+w.table("plain")+" SELECT $1::text, 1 FROM "+item, args...)
		return err
	}
	if err := w.guard(ctx, guard, f); err != nil {
		return err
	}
	return w.insert(ctx, guard, f)
}

func (w *world) insert(ctx context.Context, guard string, f fence.Fence) error {
	table := map[string]string{guardTrigger: "constant", guardRows: "rows", guardParted: "parted"}[guard]
	if table == "" {
		table = "plain"
	}
	w.n++
	_, err := w.worker.Exec(ctx, "INSERT INTO "+w.table(table)+" VALUES ($1, $2)", f.Resource, w.n%1000)
	return err
}

func (w *world) guard(ctx context.Context, guard string, f fence.Fence) error {
	switch guard {
	case guardAdvisory:
		if _, err := w.worker.Exec(ctx, "SELECT pg_advisory_xact_lock_shared(hashtext($1))", f.Resource); err != nil {
			return err
		}
		fallthrough
	case guardUnlocked:
		var n int
		err := w.worker.QueryRow(ctx, "SELECT 1 FROM "+w.leases()+" WHERE resource = convert_to($1, 'UTF8') AND epoch = $2 AND nonce = $3", f.Resource, f.Epoch, f.Nonce).Scan(&n)
		if errors.Is(err, pgx.ErrNoRows) {
			return &refusal{StateStale}
		}
		return err
	}
	schema := w.config.Schema
	if guard == guardLight {
		schema = w.light.Schema
	}
	_, err := w.worker.Exec(ctx, "SELECT "+fence.Ident(schema)+".fence($1, $2, $3)", f.Resource, f.Epoch, f.NonceText())
	return err
}

// refusal is that of a guard that is written here.
type refusal struct{ state string }

func (r *refusal) Error() string    { return r.state }
func (r *refusal) SQLState() string { return r.state }

func (w *world) begin(ctx context.Context, c *pgx.Conn, level pgx.TxIsoLevel) error {
	_, err := c.Exec(ctx, "BEGIN ISOLATION LEVEL "+strings.ToUpper(string(level)))
	return err
}

// reset ends what a scenario left open.
func (w *world) reset(ctx context.Context) {
	for _, c := range []*pgx.Conn{w.worker, w.taker} {
		_, _ = c.Exec(ctx, "ROLLBACK; RESET ALL; SET statement_timeout = '10s'; SET lock_timeout = '3s'") // a broken session shows in the next scenario
	}
}

// refused wants one of the states: stale for an old snapshot may come as a
// conflict, whose repetition is refused.
func refused(err error, states ...string) error {
	got := State(err)
	for _, s := range states {
		if got == s {
			return nil
		}
	}
	if err == nil {
		return fmt.Errorf("the write was accepted, want SQLSTATE %s", states[0])
	}
	return fmt.Errorf("want SQLSTATE %s: %w", states[0], err)
}

// waits runs fn on a session and wants the server to say that it waits. The
// outcome comes on the channel.
func (w *world) waits(ctx context.Context, c *pgx.Conn, fn func() error) (<-chan error, error) {
	done, pid := w.start(c, fn)
	begun := time.Now()
	for {
		select {
		case err := <-done:
			return done, errors.Join(errors.New("it did not wait"), err)
		default:
		}
		var waiting bool
		err := w.eye.QueryRow(ctx, "SELECT cardinality(pg_blocking_pids($1)) > 0", pid).Scan(&waiting)
		if waiting || err != nil && time.Since(begun) > time.Second {
			return done, nil // an engine without the function: it took too long for anything else
		}
		if time.Since(begun) > patience {
			return done, errors.New("it neither waited nor ended")
		}
	}
}

func (w *world) start(c *pgx.Conn, fn func() error) (<-chan error, uint32) {
	done := make(chan error, 1)
	pid := c.PgConn().PID()
	go func() { done <- fn() }()
	return done, pid
}

// quick runs fn on a session and wants it not to wait for a lock.
func (w *world) quick(ctx context.Context, c *pgx.Conn, fn func() error) error {
	if _, err := c.Exec(ctx, "SET lock_timeout = '300ms'"); err != nil {
		return err
	}
	return fn()
}

func exec(ctx context.Context, c *pgx.Conn, sql string) error {
	_, err := c.Exec(ctx, sql)
	return err
}

// scenario is one interleaving.
type scenario struct {
	name string
	only func(guard string) bool // nil: every guard
	run  func(ctx context.Context, w *world, guard string, level pgx.TxIsoLevel, f fence.Fence) error
}

func (w *world) interleavings(ctx context.Context, d *Diagnosis, guard string, level pgx.TxIsoLevel) {
	for _, s := range scenarios {
		if s.only == nil || s.only(guard) {
			d.add(s.name, guard, string(level), w.play(ctx, s, guard, level))
		}
	}
}

func (w *world) play(ctx context.Context, s scenario, guard string, level pgx.TxIsoLevel) error {
	defer w.reset(ctx)
	f, err := w.fresh(ctx, guard)
	if err != nil {
		return err
	}
	return s.run(ctx, w, guard, level, f)
}

// controls plays guards that are known not to hold, in the scenarios that
// tell. One that passes means that the checks see nothing here.
func (w *world) controls(ctx context.Context, d *Diagnosis) {
	for _, level := range levels {
		for _, s := range scenarios {
			wrong := guardUnlocked
			switch {
			case s.name == waitForWriter || s.name == waitForTaker:
			case s.name == oldSnapshot && level != pgx.ReadCommitted:
				wrong = guardAdvisory
			default:
				continue
			}
			err := w.play(ctx, s, wrong, level)
			if err == nil {
				err = errors.New("a guard that does not hold passed: the checks prove nothing here")
			} else {
				err = nil
			}
			d.add("caught: "+s.name, wrong, string(level), err)
		}
	}
}
