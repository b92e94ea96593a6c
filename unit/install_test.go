package unit_test

import (
	"database/sql"
	"testing"

	"github.com/headgate/headgate/inbox/inboxpgx"
	"github.com/headgate/headgate/inbox/inboxsqlite"
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
