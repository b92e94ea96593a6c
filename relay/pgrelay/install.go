package pgrelay

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/jackc/pgx/v5"
)

// SchemaVersion is the version of the tables that [Install] makes: what a relay
// must know to read them. It is raised when an older relay would go wrong.
const SchemaVersion = 1

// Revision is that of the functions beside them, raised with every change of
// what Install makes. Relays and writers of every revision work with those of
// every other; [Install] brings a database up to it.
const Revision = 9

// Publication is the name of the publication that the relay reads.
const Publication = "headgate_outbox"

// schema is made once, functions put in place of older ones.
var (
	//go:embed rights.sql
	rights string
	//go:embed schema.sql
	schema string
	//go:embed aside.sql
	aside string
	//go:embed repair.sql
	repairs string
	//go:embed functions.sql
	functions string
	//go:embed upgrade.sql
	upgrade string
)

// InstallOptions change what Install makes.
type InstallOptions struct {
	// Slot is the name of the replication slot: 1 to 63 of a–z, 0–9 and "_",
	// unique in the whole server. Default: headgate_ and the database's name.
	Slot string
	// Writers are existing roles that may write events, Relay one that reads
	// them: it also needs the attribute REPLICATION.
	Writers []string
	Relay   string
	// Harden takes from everybody but superusers and headgate_relay the right to
	// write messages into the server's log, which the relay would receive whole.
	// It is the database's as a whole: other programs that write such messages
	// need the right granted. Only a superuser can do it.
	Harden bool
}

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

func (o InstallOptions) check(database string) (slot string, err error) {
	slot = cmp.Or(o.Slot, defaultSlot(database))
	if !slotName.MatchString(slot) {
		return "", headgate.NewError(headgate.CodeInvalidArgument, "slot %q: want 1 to 63 of a–z, 0–9 and _", slot)
	}
	return slot, nil
}

// Script returns the statements of an installation in an unprepared database of
// PostgreSQL 15 or 16, in order. [Preview] knows the database.
func Script(database string, o InstallOptions) (string, error) {
	main, slot, err := o.script(database, 150000)
	return main + slot, err
}

// script is the transaction of an installation, and the statement that makes the
// slot behind it.
func (o InstallOptions) script(database string, server int) (main, slot string, err error) {
	name, err := o.check(database)
	if err != nil {
		return "", "", err
	}
	var b strings.Builder
	b.WriteString("BEGIN;\n\n")
	b.WriteString(rights + "\n" + schema + "\n" + aside + "\n" + repairs + "\n" + functions)
	fmt.Fprintf(&b, "\nINSERT INTO headgate.installation (version, revision, slot, system_id)\n  SELECT %d, %d, '%s', system_identifier::text FROM pg_control_system();\n", SchemaVersion, Revision, name)
	fmt.Fprintf(&b, "INSERT INTO headgate.relay_state (slot) VALUES ('%s');\nSELECT headgate.maintain('1 day');\n", name)
	b.WriteString(o.grants() + "\nCOMMIT;\n\n")
	return b.String(), "-- The slot comes last: what it reads must exist before it does.\n" + slotStatement(name, server) + ";\n" + noteSlot(name), nil
}

// noteSlot writes down where a new slot stands, and whether there may be rows
// from before it: the table was there to be written to. Whoever writes holds a
// lock until his rows can be seen, which may be long after the log has his commit;
// so the locks are looked at first, and by a statement before that of the rows.
func noteSlot(name string) string {
	return fmt.Sprintf(`UPDATE headgate.relay_state s SET stopped_lsn = r.confirmed_flush_lsn, repair = CASE WHEN EXISTS (
    SELECT FROM pg_locks WHERE locktype = 'relation' AND relation = 'headgate.outbox'::regclass AND mode = 'RowExclusiveLock'
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  ) THEN 'events were being written while the slot was made' END
  FROM pg_replication_slots r WHERE s.slot = '%[1]s' AND r.slot_name = s.slot AND s.system_id IS NULL;
UPDATE headgate.relay_state SET repair = 'events were written before the slot was made'
  WHERE slot = '%[1]s' AND system_id IS NULL AND EXISTS (SELECT FROM headgate.outbox);
`, name)
}

// slotStatement makes a slot; on PostgreSQL 17 and newer one that standbys may
// keep.
func slotStatement(name string, server int) string {
	if server >= 170000 {
		return "SELECT pg_create_logical_replication_slot('" + name + "', 'pgoutput', failover => true)"
	}
	return "SELECT pg_create_logical_replication_slot('" + name + "', 'pgoutput')"
}

//go:embed harden.sql
var harden string

func (o InstallOptions) grants() string {
	var b strings.Builder
	for _, w := range o.Writers {
		fmt.Fprintf(&b, "GRANT headgate_writer TO %s;\n", pgx.Identifier{w}.Sanitize())
	}
	if o.Relay != "" {
		fmt.Fprintf(&b, "GRANT headgate_relay TO %s;\n", pgx.Identifier{o.Relay}.Sanitize())
	}
	if o.Harden {
		b.WriteString(harden)
	}
	return b.String()
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

// plan is what Install runs: a transaction, and then the statement that makes the
// slot. Either may be empty.
type plan struct{ main, slot string }

// plan looks at the database and says what there is to do.
func (o InstallOptions) plan(ctx context.Context, conn *pgx.Conn) (p plan, err error) {
	server, err := checkServer(ctx, conn)
	if err != nil {
		return p, err
	}
	database := conn.Config().Database
	have, err := readInstallation(ctx, conn)
	if e := headgate.AsError(err); e != nil && e.Code == headgate.CodeNotFound {
		if p.main, p.slot, err = o.script(database, server); err != nil {
			return p, err
		}
		if err := knowsItsText(conn); err != nil {
			return p, err
		}
		name, err := o.check(database)
		if err == nil {
			err = slotIsFree(ctx, conn, name)
		}
		return p, err
	}
	if err != nil {
		return p, err
	}
	p.main, err = o.extend(ctx, conn, have)
	return p, err // a missing slot is the relay's to make: it knows what to repair
}

// knowsItsText refuses a database that takes any bytes for text: what is no UTF-8
// could not be published.
func knowsItsText(conn *pgx.Conn) error {
	if conn.PgConn().ParameterStatus("server_encoding") != "SQL_ASCII" {
		return nil
	}
	e := headgate.NewError(headgate.CodeInvalidArgument, "the encoding of the database is SQL_ASCII: nothing says what its text means")
	e.Fix = "Move it to a database with ENCODING 'UTF8'."
	return e
}

// extend is the transaction that brings a prepared database up to date.
func (o InstallOptions) extend(ctx context.Context, conn *pgx.Conn, have installation) (string, error) {
	if have.revision > Revision {
		return "", newerRevision(have.revision)
	}
	var b strings.Builder
	if have.revision < Revision {
		b.WriteString(rights + "\n" + upgrade + "\n" + aside + "\n" + repairs + "\n" + functions)
		fmt.Fprintf(&b, "\nUPDATE headgate.installation SET revision = %d;\n", Revision)
	}
	if o.Slot != "" && o.Slot != have.slot {
		statement, err := rename(ctx, conn, have, o.Slot)
		if err != nil {
			return "", err
		}
		b.WriteString(statement)
	}
	b.WriteString(o.grants())
	if b.Len() == 0 {
		return "", nil
	}
	return fmt.Sprintf(`BEGIN;
SET LOCAL lock_timeout = '2s';
-- One installer at a time; and no older one after a newer one.
LOCK TABLE headgate.installation IN ACCESS EXCLUSIVE MODE;
DO $$ BEGIN
  IF (SELECT (to_jsonb(i) ->> 'revision')::int FROM headgate.installation i) > %d THEN
    RAISE EXCEPTION 'a newer version has prepared the database meanwhile' USING ERRCODE = '%s';
  END IF;
END $$;

`, Revision, stateNewer) + b.String() + "\nCOMMIT;\n", nil
}

// stateNewer is the SQLSTATE of an installer that was overtaken by a newer one.
const stateNewer = "HG111"

func newerRevision(have int) error {
	e := headgate.NewError(headgate.CodeConflict, "the database was prepared by a newer version of Headgate (revision %d; this build has %d)", have, Revision)
	e.Fix = "Run headgate outbox init of that version or a later one; this one would put older functions in place."
	return e
}

// Preview returns what [Install] would run; empty when it would do nothing.
// Errors as of Install.
func Preview(ctx context.Context, url string, o InstallOptions) (string, error) {
	conn, err := connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	p, err := o.plan(ctx, conn)
	return p.main + p.slot, err
}

// Install prepares the database behind url, or brings one that an older version
// prepared up to [Revision]: in one transaction, beside relays and writers, which
// wait for it at most a moment. On one that is up to date it changes nothing but
// adding the roles' grants, and the slot's name when that is taken by another
// database. The role needs the rights to create roles, schemas and publications,
// and REPLICATION, and for an upgrade to own what is there. Errors:
// invalid_argument, also for roles that do not exist and for a database in the
// encoding SQL_ASCII, forbidden, unavailable,
// also when writers keep their transactions open, and conflict for a newer
// version or a slot that exists.
func Install(ctx context.Context, url string, o InstallOptions) error {
	conn, err := connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for attempt := 1; ; attempt++ {
		p, err := o.plan(ctx, conn)
		if err != nil {
			return err
		}
		if p.main != "" {
			err = exec(ctx, conn, p.main)
		}
		if err == nil && p.slot != "" {
			if err = exec(ctx, conn, p.slot); sqlState(err) == "42710" { // duplicate_object
				return o.slotTaken(ctx, conn)
			}
		}
		if err == nil {
			return nil
		}
		if attempt == installAttempts || !passing(err) {
			return installError(err)
		}
		select {
		case <-ctx.Done():
			return installError(errors.Join(ctx.Err(), err))
		case <-time.After(time.Duration(attempt) * 100 * time.Millisecond):
		}
	}
}

// installAttempts is how often Install waits for locks, or looks again after
// another one was quicker.
const installAttempts = 5

// exec runs statements, of which a transaction that fails is undone.
func exec(ctx context.Context, conn *pgx.Conn, statements string) error {
	_, err := conn.PgConn().Exec(ctx, statements).ReadAll()
	if err != nil && !conn.IsClosed() {
		_, rerr := conn.PgConn().Exec(context.WithoutCancel(ctx), "ROLLBACK").ReadAll()
		return errors.Join(err, rerr)
	}
	return err
}

// passing reports whether looking again may help: a lock that was not had in
// time, or what another installer has made since.
func passing(err error) bool {
	switch sqlState(err) {
	case "55P03", "40P01", "23505", "42P07", "42P06", stateNewer:
		return true
	}
	return false
}

func installError(err error) error {
	out := sqlError("preparing the database", err)
	if e := headgate.AsError(out); sqlState(err) == "55P03" && e != nil {
		e.Fix = "Transactions that write events stay open; run headgate outbox init again when they have ended."
	}
	return out
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

// slotTaken is the end of an installation whose slot somebody else has made since
// it was looked for. A relay that was started may have, then all is well; whether
// it was one, and what was read from the slot, nobody can tell, so that the table
// is read first.
func (o InstallOptions) slotTaken(ctx context.Context, conn *pgx.Conn) error {
	name, err := o.check(conn.Config().Database)
	if err != nil {
		return err
	}
	slot, err := readSlot(ctx, conn, name)
	if err != nil {
		return err
	}
	if slot != nil && !slot.serves(conn.Config().Database) {
		e := headgate.NewError(headgate.CodeConflict, "the database is prepared, but for its slot: %s was made meanwhile and belongs to %s", name, slot.owner())
		e.Fix = "Give this database another: headgate outbox init --slot NAME."
		return e
	}
	// No slot at all is the relay's to make, in the same way.
	_, err = conn.Exec(ctx, `UPDATE headgate.relay_state SET repair = 'the slot was made by somebody else while the database was prepared' WHERE slot = $1 AND repair IS NULL AND system_id IS NULL`, name)
	if err != nil {
		return installError(err)
	}
	return nil
}

// rename is the statement that gives an outbox whose slot is of another database
// or for something else a name of its own. The relay makes the slot, and reads from the table
// what it missed.
func rename(ctx context.Context, conn *pgx.Conn, have installation, slot string) (string, error) {
	if !slotName.MatchString(slot) {
		return "", headgate.NewError(headgate.CodeInvalidArgument, "slot %q: want 1 to 63 of a–z, 0–9 and _", slot)
	}
	old, err := readSlot(ctx, conn, have.slot)
	if err != nil {
		return "", err
	}
	if old == nil || old.serves(conn.Config().Database) {
		return "", headgate.NewError(headgate.CodeConflict, "the database is prepared with slot %s", have.slot)
	}
	if err := slotIsFree(ctx, conn, slot); err != nil {
		return "", err
	}
	return "UPDATE headgate.relay_state SET slot = '" + slot + "', repair = 'the slot has another name', stopped_lsn = NULL;\n" +
		"UPDATE headgate.installation SET slot = '" + slot + "';\n", nil
}
