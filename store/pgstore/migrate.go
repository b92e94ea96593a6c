package pgstore

import (
	"context"
	"embed"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/internal/sqlstore"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrationWait is how long a node waits for others that migrate or write.
const migrationWait = "60s"

// migrator changes the schema over one connection. Its statements are simple
// queries: a migration is a script.
type migrator struct {
	pg     *pgconn.PgConn
	schema string
	lock   string // the statement that takes the writers' lock
}

// migrate brings the schema to a version, one transaction per step: after a
// crash the next start goes on where it was. Each step holds the writers'
// lock, so that nodes that start together follow one another, and finds out
// under it where the schema stands. It refuses what is not ours.
func (m migrator) migrate(ctx context.Context, all []sqlstore.Migration, want int) error {
	for {
		done, err := m.step(ctx, all, want)
		if err != nil && m.pg.TxStatus() != 'I' {
			_, _ = m.query(ctx, sqlRollback) // the first error says more
		}
		if done || err != nil {
			return err
		}
	}
}

// step takes one step and says whether there is none left.
func (m migrator) step(ctx context.Context, all []sqlstore.Migration, want int) (done bool, err error) {
	for _, sql := range []string{
		"BEGIN", "SET LOCAL lock_timeout = '" + migrationWait + "'", "SET LOCAL statement_timeout = 0", m.lock,
	} {
		if _, err := m.query(ctx, sql); err != nil {
			return false, err
		}
	}
	have, err := m.version(ctx, len(all))
	if err != nil {
		return false, err
	}
	if have == want {
		_, err := m.query(ctx, sqlCommit)
		return true, err
	}
	if have == 0 {
		if err := m.found(ctx); err != nil {
			return false, err
		}
	}
	next, sql, where := have+1, "", ""
	if have < want {
		sql, where = all[have].Up, fmt.Sprintf("migration %d %s up", all[have].Version, all[have].Name)
	} else {
		next = have - 1
		sql, where = all[next].Down, fmt.Sprintf("migration %d %s down", all[next].Version, all[next].Name)
	}
	if _, err := m.query(ctx, sql); err != nil {
		return false, fmt.Errorf("%s: %w", where, err)
	}
	mark := fmt.Sprintf("UPDATE @schema_version SET version = %d", next)
	if next == 0 {
		mark = "DROP TABLE @schema_version"
	}
	for _, sql := range []string{mark, sqlCommit} {
		if _, err := m.query(ctx, sql); err != nil {
			return false, fmt.Errorf("%s: %w", where, err)
		}
	}
	return next == want, nil
}

// found makes an empty schema ours. One that an administrator made is used as
// it is, so that the node's user needs no right to create any.
func (m migrator) found(ctx context.Context) error {
	exists, err := m.number(ctx, "SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = '"+m.schema+"'")
	if err != nil {
		return err
	}
	if exists == 0 {
		if _, err := m.query(ctx, `CREATE SCHEMA "`+m.schema+`"`); err != nil {
			return err
		}
	}
	_, err = m.query(ctx, "CREATE TABLE @schema_version (version bigint NOT NULL); INSERT INTO @schema_version VALUES (0)")
	return err
}

// version returns the version of the tables; 0 for a schema that is missing or
// empty.
func (m migrator) version(ctx context.Context, newest int) (int, error) {
	ours, err := m.number(ctx, "SELECT count(pg_catalog.to_regclass('@schema_version'))")
	if err != nil {
		return 0, err
	}
	if ours == 0 {
		objects, err := m.number(ctx, "SELECT count(*) FROM pg_catalog.pg_class WHERE relnamespace = "+
			"(SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = '"+m.schema+"')")
		if err == nil && objects > 0 {
			err = headgate.NewError(headgate.CodeInvalidConfig, "the schema %q belongs to another application", m.schema)
		}
		return 0, err
	}
	version, err := m.number(ctx, "SELECT version FROM @schema_version")
	if err != nil {
		return 0, err
	}
	if version < 0 || version > newest {
		return 0, &headgate.Error{
			Code:   headgate.CodeInvalidConfig,
			Detail: fmt.Sprintf("the database has schema %d, this version of Headgate knows up to %d", version, newest),
			Fix:    "Run the newer version of Headgate that wrote it.",
		}
	}
	return version, nil
}

// query runs a script and returns the rows of its last statement.
func (m migrator) query(ctx context.Context, sql string) ([][][]byte, error) {
	results, err := m.pg.Exec(ctx, strings.ReplaceAll(sql, "@", `"`+m.schema+`".`)).ReadAll()
	if err != nil || len(results) == 0 {
		return nil, err
	}
	return results[len(results)-1].Rows, nil
}

func (m migrator) number(ctx context.Context, sql string) (int, error) {
	rows, err := m.query(ctx, sql)
	if err != nil {
		return 0, err
	}
	if len(rows) != 1 || len(rows[0]) != 1 {
		return 0, headgate.NewError(headgate.CodeInvalidConfig, "the schema %q is damaged: %d rows for a number", m.schema, len(rows))
	}
	return strconv.Atoi(string(rows[0][0]))
}
