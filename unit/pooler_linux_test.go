package unit_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/unit"
	"github.com/headgate/headgate/unit/unitpgx"
)

// Behind a pooler of transactions a unit is what it is without, and the next
// client of a session meets nothing of it: no cause, no bound, no lock.
func TestPooler(t *testing.T) {
	direct := prepared(t)
	through := pgtest.Pooler(t, direct, 3)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			cfg, err := pgxpool.ParseConfig(through)
			must(t, err)
			cfg.MaxConns, cfg.ConnConfig.DefaultQueryExecMode = 12, mode
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			must(t, err)
			defer pool.Close()
			db := unitpgx.New(pool)
			var wg sync.WaitGroup
			for w := range 8 {
				wg.Go(func() {
					for n := range 6 {
						d := delivery(fmt.Sprint(mode, n)) // each by all of them
						d.Cause = fmt.Sprint("hgc1cause", w)
						if n%2 == 1 {
							d.Fence = grant("order/1", 10)
						}
						_, err := unit.Do(t.Context(), db, d, func(ctx context.Context, tx pgx.Tx, _ outbox.Tx) error {
							var cause string
							if err := tx.QueryRow(ctx, `SELECT current_setting('headgate.cause')`).Scan(&cause); err != nil || cause != d.Cause {
								t.Errorf("cause %q, %v", cause, err)
							}
							_, err := tx.Exec(ctx, `INSERT INTO effects (id) VALUES ($1)`, d.ID)
							return err
						})
						if err != nil {
							t.Error(err)
						}
						value := []byte{0, 255, '\''}
						res, err := unit.Once(t.Context(), db, delivery(fmt.Sprint(mode, w, "once", n)), unit.Effect[pgx.Tx]{
							TTL: time.Minute, Do: func(context.Context, string) ([]byte, error) { return value, nil },
						})
						if err != nil || string(res.Value) != string(value) {
							t.Errorf("%+v, %v", res, err)
						}
					}
				})
			}
			wg.Wait()
			must(t, db.Maintain(t.Context()))
			for range 30 {
				var left string
				must(t, pool.QueryRow(t.Context(), `SELECT coalesce(current_setting('headgate.cause', true), '') || ' ' || current_setting('idle_in_transaction_session_timeout') || ' ' || current_setting('plan_cache_mode')
					|| ' ' || current_setting('lock_timeout') || ' ' || (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory')`).Scan(&left))
				if left != " 0 auto 0 0" {
					t.Fatalf("left in a session: %q", left)
				}
			}
		})
	}
	rows := pgtest.Exec(t, direct, `SELECT count(*), count(DISTINCT id) FROM effects`)[0]
	if rows[0] != "12" || rows[1] != "12" {
		t.Errorf("%s effects of %s events", rows[0], rows[1])
	}
	res, err := unit.Once(t.Context(), unitpgx.New(poolOf(t, direct)), delivery(fmt.Sprint(pgx.QueryExecModeExec, 0, "once", 0)), unit.Effect[pgx.Tx]{})
	if err != nil || !res.Duplicate || string(res.Value) != "\x00\xff'" {
		t.Errorf("%+v, %v", res, err)
	}
}
