package unit_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/headgate/headgate/inbox/inboxpgx"
	"github.com/headgate/headgate/inbox/inboxsqlite"
	"github.com/headgate/headgate/unit/unitpgx"
	"github.com/headgate/headgate/unit/unitsql"
	"github.com/headgate/headgate/unit/unitsqlite"
)

func installInbox(t testing.TB, url string) error {
	return inboxpgx.Install(t.Context(), connect(t, url), inboxpgx.InstallOptions{})
}

func installSQLite(t testing.TB, db *sql.DB) error {
	if err := inboxsqlite.Install(t.Context(), db, 0); err != nil {
		return err
	}
	_, err := db.ExecContext(t.Context(), effects)
	return err
}

// Each adapter tells how long its inbox remembers, as a role that may do no more
// than consume.
func TestRemembers(t *testing.T) {
	url, path := newDatabase(t), t.TempDir()+"/app.db"
	const retain = 45 * 24 * time.Hour
	must(t, inboxpgx.Install(t.Context(), connect(t, url), inboxpgx.InstallOptions{Retain: retain}))
	lite := openSQLite(t, path)
	must(t, inboxsqlite.Install(t.Context(), lite, retain))
	pool := poolOf(t, url)
	consumer := stdlib.OpenDBFromPool(pool)
	consumer.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = consumer.Close() })
	_, err := consumer.ExecContext(t.Context(), `SET ROLE headgate_consumer`)
	must(t, err)
	for name, remembers := range map[string]func(context.Context) (time.Duration, error){
		"pgx": unitpgx.New(pool).Remembers, "sql": (&unitsql.DB{SQL: consumer}).Remembers, "sqlite": (&unitsqlite.DB{SQL: lite}).Remembers,
	} {
		if got, err := remembers(t.Context()); got != retain || err != nil {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}
