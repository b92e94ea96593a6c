package fencepg_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
)

// first is a way to begin a transaction's work, and what it must lead to.
type first struct {
	name  string
	fn    func(context.Context, pgx.Tx) error
	wrote bool   // the row is there when the fence is good
	state string // the error is this one when the fence is good
}

var errOwn = errors.New("own")

var firsts = []first{
	{"exec", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "INSERT INTO tickets VALUES ($1, '1')", 1)
		if err == nil && tag.RowsAffected() != 1 {
			return fmt.Errorf("%d rows", tag.RowsAffected())
		}
		return err
	}, true, ""},
	{"several statements", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT 1; INSERT INTO tickets VALUES (1, '1')")
		return err
	}, true, ""},
	{"named arguments", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO tickets VALUES (@id, '1')", pgx.NamedArgs{"id": 1})
		return err
	}, true, ""},
	{"an option", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO tickets VALUES ($1, '1')", pgx.QueryExecModeExec, 1)
		return err
	}, true, ""},
	{"rows", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "INSERT INTO tickets SELECT $1::int, '1' RETURNING id", 1)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err == nil && (len(ids) != 1 || ids[0] != 1) {
			return fmt.Errorf("got %v", ids)
		}
		if err == nil {
			_, err = tx.Exec(ctx, "SELECT $1::int", 1) // the connection is free again
		}
		return err
	}, true, ""},
	{"rows that are not read to the end", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "SELECT generate_series(1, $1::int)", 1000)
		if err != nil {
			return err
		}
		rows.Next()
		rows.Close()
		if err := rows.Err(); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO tickets VALUES (1, '1')")
		return err
	}, true, ""},
	{"a row", func(ctx context.Context, tx pgx.Tx) error {
		var id int
		err := tx.QueryRow(ctx, "INSERT INTO tickets VALUES ($1, '1') RETURNING id", 1).Scan(&id)
		if err == nil && id != 1 {
			return fmt.Errorf("got %d", id)
		}
		return err
	}, true, ""},
	{"no row", func(ctx context.Context, tx pgx.Tx) error {
		err := tx.QueryRow(ctx, "SELECT 1 WHERE $1", false).Scan(new(int))
		if !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("got %w, want no rows", err)
		}
		_, err = tx.Exec(ctx, "INSERT INTO tickets VALUES (1, '1')")
		return err
	}, true, ""},
	{"a failing row", func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT 1 / $1::int", 0).Scan(new(int))
	}, false, "22012"},
	{"failing rows", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "SELECT 1 / (2 - generate_series(1, $1::int))", 3)
		if err != nil {
			return err
		}
		for rows.Next() {
		}
		return rows.Err()
	}, false, "22012"},
	{"a statement that cannot be parsed", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO nowhere VALUES ($1)", 1)
		return err
	}, false, "42P01"},
	{"an argument that cannot be sent", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO tickets VALUES ($1, '1')", struct{}{}); err == nil {
			return errors.New("it was sent")
		}
		return errOwn
	}, false, "own"},
	{"an error that is passed over", func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, "SELECT 1 / $1::int", 0)
		_, err := tx.Exec(ctx, "INSERT INTO tickets VALUES (1, '1')")
		return err
	}, false, "25P02"},
	{"an error that is hidden", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO tickets VALUES ($1, '2')", 1); err == nil {
			return errors.New("another resource's row was taken")
		}
		return errOwn
	}, false, "own"},
	{"nothing", func(context.Context, pgx.Tx) error { return nil }, false, ""},
	{"own error", func(context.Context, pgx.Tx) error { return errOwn }, false, "own"},
	{"copy", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"tickets"}, []string{"id", "ticket"}, pgx.CopyFromRows([][]any{{1, "1"}}))
		return err
	}, true, ""},
	{"batch", func(ctx context.Context, tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue("INSERT INTO tickets VALUES ($1, '1')", 1)
		return tx.SendBatch(ctx, b).Close()
	}, true, ""},
	{"savepoint", func(ctx context.Context, tx pgx.Tx) error {
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO tickets VALUES ($1, '1')", 1)
			return err
		})
	}, true, ""},
	{"prepare", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Prepare(ctx, "", "INSERT INTO tickets VALUES ($1, '1')")
		if err == nil {
			_, err = tx.Exec(ctx, "INSERT INTO tickets VALUES ($1, '1')", 1)
		}
		return err
	}, true, ""},
	{"large objects", func(ctx context.Context, tx pgx.Tx) error {
		o := tx.LargeObjects()
		if _, err := o.Create(ctx, 0); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO tickets VALUES (1, '1')")
		return err
	}, true, ""},
	{"the connection", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Conn().Exec(ctx, "INSERT INTO tickets VALUES ($1, '1')", 1)
		return err
	}, true, ""},
	{"rolled back", func(ctx context.Context, tx pgx.Tx) error {
		if err := tx.Rollback(ctx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO tickets VALUES ($1, '1')", 1)
		if !errors.Is(err, pgx.ErrTxClosed) {
			return fmt.Errorf("got %v, want a closed transaction", err)
		}
		return errOwn
	}, false, "own"},
}

// A guard that travels with the first statement leads to what a guard before
// it leads to, whatever that statement is and whoever the holder is.
func TestFirstStatement(t *testing.T) {
	ctx := t.Context()
	pool, _ := sealed(t)
	old, now := grant("t/1", 1), grant("t/1", 2)
	want(t, "seal", new(fencepg.DB).Seal(ctx, pool, old), "")
	want(t, "seal", new(fencepg.DB).Seal(ctx, pool, now), "")
	levels := []pgx.TxOptions{{}, {IsoLevel: pgx.Serializable}}
	for _, c := range firsts {
		for i, warm := range []bool{false, true, false, true} {
			name := fmt.Sprintf("%s, trusted %v, %s", c.name, warm, levels[i/2].IsoLevel)
			run := func(f fence.Fence) error {
				db := new(fencepg.DB)
				if warm {
					db = fencepg.Warm(f)
				}
				return db.Tx(ctx, pool, f, levels[i/2], func(tx pgx.Tx) error { return c.fn(ctx, tx) })
			}
			err := run(now)
			switch {
			case c.state == "own" && !errors.Is(err, errOwn), c.state != "own" && fencepg.State(err) != c.state, c.state == "" && err != nil:
				t.Errorf("%s: %v, want %q", name, err, c.state)
			}
			if n := count(t, pool, "WITH gone AS (SELECT count(*) FROM tickets) SELECT count FROM gone"); (n == 1) != c.wrote {
				t.Errorf("%s: %d rows", name, n)
			}
			want(t, "clean", fencepg.Tx(ctx, pool, now, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "DELETE FROM tickets"); return err }), "")
			if err := run(old); c.name != "own error" && c.name != "an argument that cannot be sent" || !warm || !errors.Is(err, errOwn) { // those asked for nothing
				want(t, name+", superseded", err, headgate.CodeStaleFence)
			}
			if n := count(t, pool, "SELECT count(*) FROM tickets"); n != 0 {
				t.Errorf("%s: %d rows of a superseded holder", name, n)
			}
		}
	}
}

// trips counts what is sent together.
type trips struct {
	batches []int
	singles int // begun and not ended
}

func (r *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	r.batches = append(r.batches, len(d.Batch.QueuedQueries))
	return ctx
}
func (r *trips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (r *trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (r *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	r.singles++
	return ctx
}
func (r *trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) { r.singles-- }

// The function runs before the guard was heard only while the fence passed
// lately, and after a refusal it does not any more.
func TestTrust(t *testing.T) {
	ctx := t.Context()
	_, url := sealed(t)
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	sent := &trips{}
	cfg.ConnConfig.Tracer = sent
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	f, next := grant("t/1", 1), grant("t/1", 2)
	want(t, "seal", new(fencepg.DB).Seal(ctx, pool, f), "")
	db := &fencepg.DB{}
	write := func(ran *bool) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			*ran = true
			_, err := tx.Exec(ctx, "INSERT INTO tickets VALUES ($1, '1')", 1)
			return err
		}
	}
	var ran bool
	want(t, "first", db.Tx(ctx, pool, f, pgx.TxOptions{}, write(&ran)), "")
	if fmt.Sprint(sent.batches) != "[2]" {
		t.Errorf("batches of %v, want the guard before the function", sent.batches)
	}
	sent.batches = nil
	warm := fencepg.Warm(f)
	want(t, "trusted", warm.Tx(ctx, pool, f, pgx.TxOptions{}, write(&ran)), "")
	if fmt.Sprint(sent.batches) != "[3]" {
		t.Errorf("batches of %v, want the guard with the first statement", sent.batches)
	}
	want(t, "seal", new(fencepg.DB).Seal(ctx, pool, next), "")
	want(t, "superseded, trusted", fencepg.Warm(f).Tx(ctx, pool, f, pgx.TxOptions{}, write(&ran)), headgate.CodeStaleFence)
	ran = false
	want(t, "superseded, not trusted", new(fencepg.DB).Tx(ctx, pool, f, pgx.TxOptions{}, write(&ran)), headgate.CodeStaleFence)
	if ran {
		t.Error("the function of a superseded holder ran")
	}
	// With a tracer for batches it is this code, not the driver, that ends rows.
	for _, sql := range []string{"SELECT $1::int", "SELECT $1::int / 0"} {
		_ = fencepg.Warm(next).Tx(ctx, pool, next, pgx.TxOptions{}, func(tx pgx.Tx) error {
			var n int
			return tx.QueryRow(ctx, sql, 1).Scan(&n)
		})
		_ = fencepg.Warm(next).Tx(ctx, pool, next, pgx.TxOptions{}, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, sql, 1)
			if err == nil {
				_, err = pgx.CollectRows(rows, pgx.RowTo[int])
			}
			return err
		})
	}
	if sent.singles != 0 {
		t.Errorf("%d single statements were begun and not ended", sent.singles)
	}
}
