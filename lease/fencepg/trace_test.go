package fencepg_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease/fence"
	"github.com/headgate/headgate/lease/fencepg"
)

// singles notes the single statements that a tracer sees begin and end.
type singles struct {
	open  int
	lines []string
}

type singleSQL struct{}

func (s *singles) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	s.open++
	return context.WithValue(ctx, singleSQL{}, fmt.Sprint(d.SQL, " ", d.Args))
}

func (s *singles) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	s.open--
	line := fmt.Sprint(ctx.Value(singleSQL{}), " ", d.CommandTag)
	if d.Err != nil {
		line += " failed"
	}
	s.lines = append(s.lines, line)
}

// TestTracerSeesTheFirstStatement: the driver's tracer for single statements is
// told of the statement that travels with the guard as of any other.
func TestTracerSeesTheFirstStatement(t *testing.T) {
	ctx := t.Context()
	_, url := sealed(t)
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	seen := &singles{}
	cfg.ConnConfig.Tracer = seen
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	old, f := grant("t/1", 1), grant("t/1", 2)
	want(t, "seal", new(fencepg.DB).Seal(ctx, pool, f), "")
	own := errors.New("own")
	run := func(f fence.Fence, fn func(pgx.Tx) error) ([]string, error) {
		seen.lines, seen.open = nil, 0
		err := fencepg.Warm(f).Tx(ctx, pool, f, pgx.TxOptions{}, func(tx pgx.Tx) error {
			if err := fn(tx); err != nil {
				return err
			}
			return own // nothing stays
		})
		if seen.open != 0 {
			t.Errorf("%d statements have no end", seen.open)
		}
		return seen.lines, err
	}
	const insert = "INSERT INTO tickets VALUES ($1, '1') RETURNING id"
	for name, fn := range map[string]func(pgx.Tx) error{
		"exec": func(tx pgx.Tx) error { _, err := tx.Exec(ctx, insert, 7); return err },
		"query": func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, insert, 7)
			if err != nil {
				return err
			}
			_, err = pgx.CollectRows(rows, pgx.RowTo[int])
			return err
		},
		"row": func(tx pgx.Tx) error { var id int; return tx.QueryRow(ctx, insert, 7).Scan(&id) },
	} {
		lines, err := run(f, fn)
		if !errors.Is(err, own) || !slices.Contains(lines, insert+" [7] INSERT 0 1") {
			t.Errorf("%s: %v, traced %q", name, err, lines)
		}
		lines, err = run(old, fn)
		if want(t, name+", superseded", err, headgate.CodeStaleFence); !slices.Contains(lines, insert+" [7]  failed") {
			t.Errorf("%s of a superseded holder: traced %q", name, lines)
		}
	}
	var id int
	lines, err := run(f, func(tx pgx.Tx) error { return tx.QueryRow(ctx, "SELECT 1 WHERE $1", false).Scan(&id) })
	if !errors.Is(err, pgx.ErrNoRows) || !slices.Contains(lines, "SELECT 1 WHERE $1 [false] SELECT 0") {
		t.Errorf("no row: %v, traced %q", err, lines)
	}
	if _, err = run(f, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "SELECT nothing($1)", 1); return err }); fencepg.State(err) != "42883" {
		t.Errorf("what cannot be prepared: %v", err)
	}
}
