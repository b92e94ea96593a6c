package pgrelay

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/headgate/headgate"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// SchemaVersion is the version of what [Install] makes.
const SchemaVersion = 1

// Publication is the name of the publication that the relay reads.
const Publication = "headgate_outbox"

//go:embed schema.sql
var schema string

// InstallOptions change what Install makes.
type InstallOptions struct {
	// Slot is the name of the replication slot: 1 to 63 of a–z, 0–9 and "_",
	// unique in the whole server. Default: headgate_ and the database's name.
	Slot string
	// Writers are existing roles that may write events, Relay one that reads
	// them: it also needs the attribute REPLICATION.
	Writers []string
	Relay   string
}

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// Script returns the statements of an installation, in order: what
// headgate outbox init --dry-run prints.
func Script(database string, o InstallOptions) (string, error) {
	slot := o.Slot
	if slot == "" {
		slot = defaultSlot(database)
	}
	if !slotName.MatchString(slot) {
		return "", headgate.NewError(headgate.CodeInvalidArgument, "slot %q: want 1 to 63 of a–z, 0–9 and _", slot)
	}
	var b strings.Builder
	b.WriteString("BEGIN;\n\n")
	b.WriteString(schema)
	fmt.Fprintf(&b, "\nINSERT INTO headgate.installation (version, slot, system_id)\n  SELECT %d, '%s', system_identifier::text FROM pg_control_system();\n", SchemaVersion, slot)
	fmt.Fprintf(&b, "INSERT INTO headgate.relay_state (slot) VALUES ('%s');\nSELECT headgate.maintain('1 day');\n", slot)
	for _, w := range o.Writers {
		fmt.Fprintf(&b, "GRANT headgate_writer TO %s;\n", pgx.Identifier{w}.Sanitize())
	}
	if o.Relay != "" {
		fmt.Fprintf(&b, "GRANT headgate_relay TO %s;\n", pgx.Identifier{o.Relay}.Sanitize())
	}
	b.WriteString("\nCOMMIT;\n\n-- The slot comes last: what it reads must exist before it does.\n")
	fmt.Fprintf(&b, "SELECT pg_create_logical_replication_slot('%s', 'pgoutput');\n", slot)
	return b.String(), nil
}

func defaultSlot(database string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(database))
	return "headgate_" + clean[:min(len(clean), 54)]
}

// Install prepares the database behind url. On a prepared one it changes
// nothing but adding the roles' grants, and the slot's name when that is taken
// by another database. The role needs the rights to create roles, schemas and
// publications, and REPLICATION. Errors: invalid_argument, also for roles that
// do not exist, forbidden, unavailable, and conflict for another version or a
// slot that exists.
func Install(ctx context.Context, url string, o InstallOptions) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return unreachable(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := checkServer(ctx, conn); err != nil {
		return err
	}
	have, err := readInstallation(ctx, conn)
	switch {
	case err == nil:
		return extend(ctx, conn, have, o)
	case headgate.AsError(err) == nil || headgate.AsError(err).Code != headgate.CodeNotFound:
		return err
	}
	script, err := Script(conn.Config().Database, o)
	if err != nil {
		return err
	}
	slotName := o.Slot
	if slotName == "" {
		slotName = defaultSlot(conn.Config().Database)
	}
	if err := slotIsFree(ctx, conn, slotName); err != nil {
		return err
	}
	// The last statement makes the slot, which no transaction that wrote may.
	main, slot, _ := strings.Cut(script, "COMMIT;")
	for _, part := range []string{main + "COMMIT;", slot} {
		if _, err := conn.PgConn().Exec(ctx, part).ReadAll(); err != nil {
			return sqlError("preparing the database", err)
		}
	}
	return nil
}

// slotIsFree refuses the name of a slot that exists. Names are the server's, and
// databases whose names differ in signs alone have the same default.
func slotIsFree(ctx context.Context, conn *pgx.Conn, name string) error {
	slot, err := readSlot(ctx, conn, name)
	if err != nil || slot == nil {
		return err
	}
	e := headgate.NewError(headgate.CodeConflict, "the slot %s exists already and belongs to %s", name, slot.owner())
	e.Fix = "Choose another name: headgate outbox init --slot NAME."
	return e
}

// rename gives an outbox whose slot belongs to another database a name of its
// own. The relay makes the slot, and reads from the table what it missed.
func rename(ctx context.Context, conn *pgx.Conn, have installation, slot string) error {
	if !slotName.MatchString(slot) {
		return headgate.NewError(headgate.CodeInvalidArgument, "slot %q: want 1 to 63 of a–z, 0–9 and _", slot)
	}
	old, err := readSlot(ctx, conn, have.slot)
	if err != nil {
		return err
	}
	if old == nil || old.database == conn.Config().Database {
		return headgate.NewError(headgate.CodeConflict, "the database is prepared with slot %s", have.slot)
	}
	if err := slotIsFree(ctx, conn, slot); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `
		WITH s AS (UPDATE headgate.relay_state SET slot = $1, repair = 'the slot has another name', stopped_lsn = NULL WHERE slot = $2)
		UPDATE headgate.installation SET slot = $1 WHERE slot = $2`, slot, have.slot)
	if err != nil {
		return sqlError("naming the slot", err)
	}
	return nil
}

// extend adds to a prepared database.
func extend(ctx context.Context, conn *pgx.Conn, have installation, o InstallOptions) error {
	if o.Slot != "" && o.Slot != have.slot {
		if err := rename(ctx, conn, have, o.Slot); err != nil {
			return err
		}
	}
	// Databases that were prepared earlier lack it.
	var may bool
	err := conn.QueryRow(ctx, `SELECT has_table_privilege('headgate_relay', 'headgate.outbox_rest', 'SELECT')`).Scan(&may)
	if err == nil && !may {
		_, err = conn.Exec(ctx, `GRANT SELECT ON headgate.outbox_rest TO headgate_relay`)
	}
	if err != nil {
		return sqlError("granting what the relay reads", err)
	}
	for _, w := range o.Writers {
		if _, err := conn.Exec(ctx, "GRANT headgate_writer TO "+pgx.Identifier{w}.Sanitize()); err != nil {
			return sqlError("granting headgate_writer", err)
		}
	}
	if o.Relay != "" {
		if _, err := conn.Exec(ctx, "GRANT headgate_relay TO "+pgx.Identifier{o.Relay}.Sanitize()); err != nil {
			return sqlError("granting headgate_relay", err)
		}
	}
	return nil // a missing slot is the relay's to make: it knows what to repair
}

// checkServer refuses what cannot hold an outbox.
func checkServer(ctx context.Context, conn *pgx.Conn) error {
	var version int
	var level string
	var standby bool
	err := conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('wal_level'), pg_is_in_recovery()`).Scan(&version, &level, &standby)
	switch {
	case err != nil:
		return sqlError("asking the server", err)
	case version < 150000:
		return headgate.NewError(headgate.CodeInvalidConfig, "the server is PostgreSQL %d; the outbox needs 15 or newer", version/10000)
	case level != "logical":
		return headgate.NewError(headgate.CodeInvalidConfig, "wal_level is %s; set it to logical and restart the server", level)
	case standby:
		return headgate.NewError(headgate.CodeUnavailable, "the server is a standby; connect to the primary")
	}
	return nil
}

type installation struct {
	version  int
	slot     string
	systemID string
}

func readInstallation(ctx context.Context, conn *pgx.Conn) (installation, error) {
	var i installation
	err := conn.QueryRow(ctx, `SELECT version, slot, system_id FROM headgate.installation`).Scan(&i.version, &i.slot, &i.systemID)
	switch {
	case sqlState(err) == "42P01", sqlState(err) == "3F000", errors.Is(err, pgx.ErrNoRows):
		return i, headgate.NewError(headgate.CodeNotFound, "the database has no outbox; prepare it by headgate outbox init --url URL")
	case err != nil:
		return i, sqlError("reading headgate.installation", err)
	case i.version != SchemaVersion:
		return i, headgate.NewError(headgate.CodeConflict, "the database's outbox has version %d; this build works with %d", i.version, SchemaVersion)
	}
	return i, nil
}

func sqlState(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// unreachable names a failed connection without repeating the URL.
func unreachable(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		refused := &headgate.Error{Code: headgate.CodeUnavailable, Detail: fmt.Sprintf("the database refuses the connection: %s (%s)", e.Message, e.Code), Err: e}
		if e.Code == "42501" {
			refused.Code = headgate.CodeForbidden
		}
		return refused
	}
	return &headgate.Error{Code: headgate.CodeUnavailable, Detail: "the database cannot be reached", Err: err}
}

// sqlError names a statement that failed. What trying again cannot mend is not
// unavailable.
func sqlError(doing string, err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		mine := &headgate.Error{Code: headgate.CodeUnavailable, Detail: fmt.Sprintf("%s: %s (%s)", doing, e.Message, e.Code), Err: err}
		switch e.Code {
		case "42501": // insufficient_privilege
			mine.Code, mine.Fix = headgate.CodeForbidden, "Connect as a role that has the right; headgate outbox init runs as the owner."
		case "42704", "42602", "42622", "0LP01", "22023": // no such object, no name, too long a name, no such grant, bad value
			mine.Code, mine.Fix = headgate.CodeInvalidArgument, e.Hint
		case "42710": // duplicate_object
			mine.Code, mine.Fix = headgate.CodeConflict, e.Hint
		}
		return mine
	}
	return &headgate.Error{Code: headgate.CodeUnavailable, Detail: doing + ": " + err.Error(), Err: err}
}

// refusal turns what the functions of schema headgate refuse into an argument's
// fault, with their hint.
func refusal(err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !strings.HasPrefix(e.Code, "HG") && e.Code != "42P01" {
		return sqlError("changing the database", err)
	}
	return &headgate.Error{Code: headgate.CodeInvalidArgument, Detail: fmt.Sprintf("%s (%s)", e.Message, e.Code), Fix: e.Hint, Err: err}
}
