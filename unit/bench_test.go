package unit_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/inbox/inboxsqlite"
	"github.com/headgate/headgate/internal/pgtest"
	"github.com/headgate/headgate/lease/fencesqlite"
	"github.com/headgate/headgate/outbox"
	"github.com/headgate/headgate/unit"
	"github.com/headgate/headgate/unit/unitpgx"
	"github.com/headgate/headgate/unit/unitsqlite"
)

// bench compares a transaction that only writes with units of work. Both take
// turns, so that what else the machine does meets both; the ratio counts.
func bench(b *testing.B, plain, whole func(id string) error) {
	var alone, together time.Duration
	for n := 0; b.Loop(); n++ {
		id := fmt.Sprint("b", n)
		begun := time.Now()
		must(b, plain(id))
		between := time.Now()
		must(b, whole(id))
		alone += between.Sub(begun)
		together += time.Since(between)
	}
	b.ReportMetric(float64(alone.Microseconds())/float64(b.N), "plain-µs")
	b.ReportMetric(float64(together.Microseconds())/float64(b.N), "unit-µs")
	b.ReportMetric(float64(together)/float64(alone), "ratio")
}

func BenchmarkDoPostgres(b *testing.B) {
	for _, c := range []struct {
		fenced bool
		tables int
	}{{false, 1}, {false, 11}, {true, 1}} {
		b.Run(fmt.Sprintf("fenced=%v,tables=%d", c.fenced, c.tables), func(b *testing.B) {
			url := prepared(b)
			for range c.tables - 1 {
				pgtest.Exec(b, url, `UPDATE headgate_inbox.state SET length = '0'; SELECT headgate.inbox_maintain()`)
			}
			db := unitpgx.New(poolOf(b, url))
			write := func(ctx context.Context, tx pgx.Tx, id string) error {
				_, err := tx.Exec(ctx, `INSERT INTO effects (id) VALUES ($1)`, id)
				return err
			}
			bench(b, func(id string) error {
				return pgx.BeginFunc(b.Context(), db.Pool, func(tx pgx.Tx) error { return write(b.Context(), tx, id) })
			}, func(id string) error {
				d := delivery(id)
				if c.fenced {
					d.Fence = grant("order/1", 10)
				}
				_, err := unit.Do(b.Context(), db, d, func(ctx context.Context, tx pgx.Tx, _ outbox.Tx) error { return write(ctx, tx, id) })
				return err
			})
		})
	}
}

func BenchmarkDoSQLite(b *testing.B) {
	raw := openSQLite(b, b.TempDir()+"/user.db")
	must(b, inboxsqlite.Install(b.Context(), raw, 0))
	must(b, fencesqlite.Install(b.Context(), raw))
	_, err := raw.Exec(effects)
	must(b, err)
	db := unitsqlite.New(raw)
	bench(b, func(id string) error {
		tx, err := raw.BeginTx(b.Context(), nil)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(b.Context(), `INSERT INTO effects (id) VALUES (?)`, id); err != nil {
			return err
		}
		return tx.Commit()
	}, func(id string) error {
		_, err := unit.Do(b.Context(), db, delivery(id), func(ctx context.Context, conn *sql.Conn, _ outbox.Tx) error {
			_, err := conn.ExecContext(ctx, `INSERT INTO effects (id) VALUES (?)`, id)
			return err
		})
		return err
	})
}
