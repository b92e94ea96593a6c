package pgstore

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/internal/sqlstore"
)

// minVersion is the oldest server that is accepted, as server_version_num.
const minVersion = 140000

// facts are what durability depends on, as the server reports it.
type facts struct {
	number                     int // server_version_num
	version                    string
	standby, readOnly          bool
	fsync, fullPages, standbys string
	place                      string // of the database; empty where the server does not say
}

const sqlFacts = `SELECT current_setting('server_version_num'), current_setting('server_version'), pg_catalog.pg_is_in_recovery(),
	current_setting('transaction_read_only'), current_setting('fsync'), current_setting('full_page_writes'),
	current_setting('synchronous_standby_names'),
	(SELECT oid::text FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())`

// sqlSystem reads what initdb drew, and every physical copy has. Any role may,
// unless that right was taken away.
const sqlSystem = "SELECT system_identifier::text FROM pg_catalog.pg_control_system()"

// inspect asks the server and refuses one that cannot keep what the port
// promises. It runs on every new connection: behind the same name there may be
// another server by then.
func (s *Store) inspect(ctx context.Context, pg *pgconn.PgConn) (facts, error) {
	results, err := pg.Exec(ctx, sqlFacts).ReadAll()
	if err != nil {
		return facts{}, err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) != 8 {
		return facts{}, headgate.NewError(headgate.CodeInvalidConfig, "the server does not answer as PostgreSQL does")
	}
	row := results[0].Rows[0]
	f := facts{
		version: string(row[1]), standby: string(row[2]) == "t", readOnly: string(row[3]) == "on",
		fsync: string(row[4]), fullPages: string(row[5]), standbys: string(row[6]),
	}
	if f.number, err = strconv.Atoi(string(row[0])); err != nil {
		return facts{}, headgate.NewError(headgate.CodeInvalidConfig, "the server's version %q cannot be read", sqlstore.Clip(string(row[0])))
	}
	if err := f.check(s.cfg.Relaxed); err != nil {
		return f, err
	}
	system, err := pg.Exec(ctx, sqlSystem).ReadAll()
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused):
		return f, nil
	case err != nil:
		return f, err
	case len(system) == 1 && len(system[0].Rows) == 1 && len(system[0].Rows[0]) == 1:
		f.place = string(system[0].Rows[0][0]) + "_" + string(row[7])
	}
	return f, s.stays(f)
}

// stays refuses another database than the one that was opened: the memory of
// the node, and what it holds in it, do not belong to it.
func (s *Store) stays(f facts) error {
	if was := s.facts.place; was != "" && f.place != "" && f.place != was {
		return &headgate.Error{
			Code: headgate.CodeUnavailable, Outcome: headgate.NotApplied, Detail: "another database stands where the store's was",
			Fix: "Put the store's database back, or restart the node to take the other one.",
		}
	}
	return nil
}

// check refuses a server.
func (f facts) check(relaxed bool) error {
	e := &headgate.Error{Code: headgate.CodeInvalidConfig}
	switch {
	case f.number < minVersion:
		e.Detail, e.Fix = "PostgreSQL "+sqlstore.Clip(f.version)+" is too old for the store", "Use version 14 or newer."
	case f.standby:
		e.Detail, e.Fix = "the server is a standby, which cannot be written to", "Name the primary, or several hosts with target_session_attrs=read-write."
	case f.readOnly:
		e.Detail, e.Fix = "the server's sessions are read-only", "Name a server that can be written to."
	case f.fsync != "on" && !relaxed:
		e.Detail = "the server runs with fsync=" + sqlstore.Clip(f.fsync) + " and would lose what it acknowledged, or all of it, with the power of its host"
		e.Fix = "Set fsync=on, or accept the loss by durability: relaxed."
	default:
		return nil
	}
	return e
}

// words is one sentence about durability for an operator, or two.
func (f facts) words(relaxed bool) string {
	var b strings.Builder
	b.WriteString("Control state lives in PostgreSQL " + f.version + " and ")
	switch {
	case relaxed && f.fsync != "on":
		b.WriteString("does not survive power loss of its host: the server runs with fsync=" + f.fsync + " (relaxed).")
		return b.String()
	case relaxed:
		b.WriteString("survives a crash of the node; the last moments may be lost with the server (relaxed: synchronous_commit=off).")
		return b.String()
	case f.standbys != "":
		b.WriteString("survives power loss of its host: every commit is flushed there and by its synchronous standbys.")
	default:
		b.WriteString("survives power loss of its host: every commit is flushed (fsync=on, synchronous_commit=on).")
	}
	if f.fullPages != "on" {
		b.WriteString(" The server has full_page_writes=" + f.fullPages + ": that is safe only on a file system that never tears a page.")
	}
	return b.String()
}
