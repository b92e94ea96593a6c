package pgrelay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/relay"
	"github.com/jackc/pgx/v5"
)

// State is an outbox as its database shows it.
type State struct {
	Database string `json:"database"`
	// Revision is that of the functions in the database, [Revision] the newest
	// that this build knows.
	Revision int    `json:"revision"`
	Slot     string `json:"slot"`
	// SlotStatus is the server's wal_status, "missing", or "foreign": the slot of
	// that name belongs to SlotDatabase, or to another plugin.
	SlotStatus   string `json:"slot_status"`
	SlotDatabase string `json:"slot_database,omitempty"`
	Active       bool   `json:"active"` // a relay streams
	// Held is how many bytes of log the slot keeps, Room how many more it may
	// (-1: no bound on the server).
	Held int64 `json:"held_bytes"`
	Room int64 `json:"room_bytes"`
	// Behind is how many bytes of log are not confirmed yet.
	Behind  int64     `json:"behind_bytes"`
	Epoch   int64     `json:"epoch"`
	Holder  string    `json:"holder,omitempty"`
	Renewed time.Time `json:"renewed,omitzero"`
	Proven  time.Time `json:"proven,omitzero"`
	// Mode is stream, or repair while rows are read from the table; Repair says
	// why.
	Mode   string `json:"mode"`
	Repair string `json:"repair,omitempty"`
	// Received is how far the relay says it has read, empty when none streams;
	// Confirmed how far everything is done; End where the log ends.
	Received  string `json:"received_lsn,omitempty"`
	Confirmed string `json:"confirmed_lsn,omitempty"`
	End       string `json:"end_lsn"`
	Rows      int64  `json:"rows"` // kept in the outbox
	Bytes     int64  `json:"bytes"`
	// Unproven is how many of them are not proven to be published: those behind
	// the last proven heartbeat, which is at most seconds old when all is well.
	// Oldest is when the first of them was written.
	Unproven int64     `json:"unproven"`
	Oldest   time.Time `json:"oldest,omitzero"`
	// Aside is how many rows are set aside until their turn comes: the log is
	// confirmed past them.
	Aside int64 `json:"aside"`

	now time.Time // by the database's clock, as all times above
}

// Inspect reads the state of an outbox. Errors as of [Source.Open].
func Inspect(ctx context.Context, url string) (State, error) {
	conn, err := connect(ctx, url)
	if err != nil {
		return State{}, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return inspect(ctx, conn)
}

func inspect(ctx context.Context, conn *pgx.Conn) (State, error) {
	have, err := readInstallation(ctx, conn)
	if err != nil {
		return State{}, err
	}
	s := State{Database: conn.Config().Database, Revision: have.revision, Slot: have.slot}
	var holder, repair, received, confirmed *string
	var renewed, proven, oldest *time.Time
	err = conn.QueryRow(ctx, `
		SELECT CASE WHEN r.slot_name IS NOT NULL THEN coalesce(r.wal_status, '') WHEN f.slot_name IS NOT NULL THEN 'foreign' ELSE 'missing' END,
		       coalesce(f.database::text, ''), clock_timestamp(), coalesce(r.active, false), coalesce(pg_current_wal_lsn() - r.restart_lsn, 0)::bigint,
		       coalesce(r.safe_wal_size, -1), coalesce(pg_current_wal_lsn() - r.confirmed_flush_lsn, 0)::bigint,
		       s.epoch, s.holder, s.renewed, s.proven, s.repair,
		       CASE WHEN s.repair IS NULL THEN 'stream' ELSE 'repair' END, w.write_lsn::text, r.confirmed_flush_lsn::text, pg_current_wal_lsn()::text,
		       o.rows, o.unproven, o.oldest,
		       (SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0)::bigint FROM pg_inherits WHERE inhparent = 'headgate.outbox'::regclass)
		FROM headgate.relay_state s LEFT JOIN pg_replication_slots f ON f.slot_name = s.slot
		LEFT JOIN pg_replication_slots r ON r.slot_name = s.slot AND r.database = current_database() AND r.plugin = 'pgoutput'
		LEFT JOIN pg_stat_replication w ON w.pid = r.active_pid
		CROSS JOIN LATERAL (
		  SELECT count(*) AS rows, count(*) FILTER (WHERE late) AS unproven, min(created) FILTER (WHERE late) AS oldest
		  FROM (SELECT created, s.proven_snapshot IS NULL OR NOT pg_visible_in_snapshot(xid, s.proven_snapshot) AS late FROM headgate.outbox) x
		) o
		WHERE s.slot = $1`, have.slot).
		Scan(&s.SlotStatus, &s.SlotDatabase, &s.now, &s.Active, &s.Held, &s.Room, &s.Behind, &s.Epoch, &holder, &renewed, &proven, &repair,
			&s.Mode, &received, &confirmed, &s.End, &s.Rows, &s.Unproven, &oldest, &s.Bytes)
	if err != nil {
		return State{}, sqlError("reading the state of the outbox", err)
	}
	for _, p := range []struct {
		from *string
		into *string
	}{{holder, &s.Holder}, {repair, &s.Repair}, {received, &s.Received}, {confirmed, &s.Confirmed}} {
		if p.from != nil {
			*p.into = *p.from
		}
	}
	for _, p := range []struct {
		from *time.Time
		into *time.Time
	}{{renewed, &s.Renewed}, {proven, &s.Proven}, {oldest, &s.Oldest}} {
		if p.from != nil {
			*p.into = p.from.UTC()
		}
	}
	if have.revision < asideRevision {
		return s, nil
	}
	err = conn.QueryRow(ctx, `SELECT coalesce(sum(bit_count(bits)), 0)::bigint FROM headgate.outbox_aside`).Scan(&s.Aside)
	if err != nil {
		return State{}, sqlError("counting the rows that are set aside", err)
	}
	return s, nil
}

// Finding is something wrong or unsafe about an outbox.
type Finding = relay.Finding

// check is one question of Doctor: a statement that returns one row for each
// thing that is wrong, as text for What.
type check struct {
	severity, sql, fix string
}

var checks = [...]check{
	{
		"error", `SELECT 'wal_level is ' || current_setting('wal_level') WHERE current_setting('wal_level') <> 'logical'`,
		"Set wal_level = logical and restart the server.",
	},
	{
		"warning", `SELECT 'max_slot_wal_keep_size is unlimited: a stopped relay can fill the disk' WHERE current_setting('max_slot_wal_keep_size') = '-1'`,
		"Set it to what the disk can spare. A slot that is lost by it is repaired from the table.",
	},
	{
		"error", `SELECT 'the publication headgate_outbox is missing or does not hold exactly headgate.outbox'
			WHERE (SELECT coalesce(array_agg(schemaname || '.' || tablename), '{}') FROM pg_publication_tables WHERE pubname = 'headgate_outbox') <> '{headgate.outbox}'`,
		"CREATE PUBLICATION headgate_outbox FOR TABLE headgate.outbox WITH (publish = 'insert', publish_via_partition_root = true); then drop this database's slot, so that the relay makes it anew and repairs.",
	},
	{
		"error", `SELECT 'the publication headgate_outbox publishes more than inserts, or by partition'
			FROM pg_publication WHERE pubname = 'headgate_outbox' AND (NOT pubinsert OR pubupdate OR pubdelete OR pubtruncate OR NOT pubviaroot)`,
		"ALTER PUBLICATION headgate_outbox SET (publish = 'insert', publish_via_partition_root = true);",
	},
	{
		"error", `SELECT 'the partition ' || inhrelid::regclass || ' of the outbox is unlogged: the log has no row of it, and a crash empties it'
			FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid WHERE inhparent = 'headgate.outbox'::regclass AND c.relpersistence <> 'p'`,
		"ALTER TABLE … SET LOGGED; the relay reads its rows from the table.",
	},
	{
		"error", `SELECT 'row level security is on for ' || c.oid::regclass || ': a relay whose role is not the owner cannot repair'
			FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'headgate' AND c.relkind IN ('r', 'p') AND (c.relrowsecurity OR c.relforcerowsecurity)`,
		"ALTER TABLE … DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY; the rights of schema headgate are grants.",
	},
	{
		"warning", `SELECT 'the publication headgate_outbox is younger than what the slot ' || s.slot_name || ' has yet to read'
			FROM pg_publication p, pg_replication_slots s JOIN headgate.installation i ON i.slot = s.slot_name
			WHERE p.pubname = 'headgate_outbox' AND s.database = current_database() AND age(p.xmin) <= age(s.catalog_xmin)`,
		"Run the relay: what was written before the publication is read from the table. Beside the slot of another database that lags behind, a new slot looks older than it is: then there is nothing to read, and the warning goes once the relay runs.",
	},
	{
		"error", `SELECT 'the encoding of the database is SQL_ASCII: nothing says that its text is UTF-8, and what is not goes to quarantine' WHERE current_setting('server_encoding') = 'SQL_ASCII'`,
		"Move the database to one with ENCODING UTF8.",
	},
	{
		"warning", `SELECT count(*) || ' row(s) of headgate.outbox have transaction numbers of another server, of which they were restored: they count as unproven and stay until this server reaches those' FROM headgate.outbox
			WHERE NOT pg_visible_in_snapshot(xid, pg_current_snapshot()) HAVING count(*) > 0`,
		"Nothing: the first relay on this server reads them. One of a version before this check left them out: write what is missing anew by headgate outbox replay.",
	},
	{
		"warning", `SELECT 'the repair of the outbox ends when a transaction has ended that has not: ' || coalesce('the session ' || l.pid || coalesce(' of role ' || a.usename, ''), 'the prepared transaction ' || quote_literal(left(p.gid, 200)), 'one that is prepared')
			FROM headgate.relay_state s JOIN headgate.installation i USING (slot) JOIN pg_locks l ON l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
			  AND l.transactionid::text = ANY (regexp_split_to_array(substr(s.repair, length('` + openPrefix + `') + 1), '[, ]+'))
			LEFT JOIN pg_stat_activity a USING (pid) LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid
			WHERE starts_with(s.repair, '` + openPrefix + `')`,
		"Let it end: if it waits for a synchronous standby, see to that; else commit it, or roll it back. Events are relayed meanwhile; what it wrote is when it has ended.",
	},
	{
		"error", `SELECT 'the role ' || current_user || ' may not replicate' FROM pg_roles WHERE rolname = current_user AND NOT rolreplication AND NOT rolsuper`,
		"ALTER ROLE … REPLICATION;",
	},
	{
		// The column came with PostgreSQL 17.
		"warning", `SELECT 'no standby keeps the slot ' || slot_name || ', which was made without failover' FROM pg_replication_slots s JOIN headgate.installation i ON i.slot = s.slot_name
			WHERE to_jsonb(s) ->> 'failover' = 'false' AND EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'physical')`,
		"Stop the relay, drop the slot, run the relay: it makes it anew, as one that standbys keep, and repairs from the table.",
	},
	{
		// The setting came with PostgreSQL 17.
		"warning", `SELECT 'commits wait for ' || quote_literal(current_setting('synchronous_standby_names')) || ', and the log tells them before: after a failover an event may be published whose transaction is lost'
			WHERE current_setting('synchronous_standby_names') <> '' AND coalesce(current_setting('synchronized_standby_slots', true), '') = ''`,
		"PostgreSQL 17 and newer: name the physical slot of the standby in synchronized_standby_slots. Before it: let consumers bear such an event.",
	},
	{
		"warning", `SELECT sum(bit_count(bits)) || ' row(s) of role ' || role || ' are set aside: ' || CASE WHEN roots THEN 'the principal is beyond its rate of roots' ELSE 'they wait for the quarantine, or for a rate' END
			FROM headgate.outbox_aside GROUP BY role, roots ORDER BY role`,
		"Nothing, if the rate is meant: they go out at that rate, and others are not held up. Else raise roots.rate of the principal, or see what writes so much.",
	},
	{
		"warning", `SELECT 'row(s) lie in the default partition: ' || count(*) FROM headgate.outbox_rest HAVING count(*) > 0`,
		"Let the relay run, so that partitions are made ahead; move the rows by hand to be able to drop them.",
	},
	{
		"warning", `SELECT 'partition ' || p.relid::regclass || ' of a watched table has no guard against TRUNCATE'
			FROM pg_trigger t CROSS JOIN LATERAL pg_partition_tree(t.tgrelid) p
			WHERE t.tgname = 'headgate_capture' AND t.tgparentid = 0 AND NOT EXISTS (SELECT FROM pg_trigger x WHERE x.tgrelid = p.relid AND x.tgname = 'headgate_truncate')`,
		"Watch the table again: headgate outbox watch TABLE.",
	},
	{
		"error", `SELECT 'the trigger ' || tgname || ' of watched table ' || tgrelid::regclass || ' is disabled' FROM pg_trigger
			WHERE tgname IN ('headgate_as_json', 'headgate_capture') AND tgenabled = 'D'`,
		"ALTER TABLE … ENABLE TRIGGER …;",
	},
}

// Doctor returns everything that is wrong with an outbox.
func Doctor(ctx context.Context, url string) ([]Finding, error) {
	conn, err := connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	s, err := inspect(ctx, conn)
	if err != nil {
		return nil, err
	}
	found := append(slotFindings(s), stuckFindings(s)...)
	if s.Revision < Revision {
		found = append(found, Finding{Severity: "warning", What: fmt.Sprintf("the database was prepared by an older version: revision %d of its functions, the newest is %d", s.Revision, Revision), Fix: "Run headgate outbox init as the owner, beside writers and relays; --dry-run shows what it does."})
	}
	if f, err := squatterFinding(ctx, conn, s); err != nil {
		return nil, err
	} else if f != nil {
		found = append(found, *f)
	}
	if f := replicationFinding(ctx, url); f != nil {
		found = append(found, *f)
	}
	for _, c := range checks {
		rows, _ := conn.Query(ctx, c.sql) // an error is that of the rows
		what, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if sqlState(err) == "42P01" {
			continue // a table that the database's revision does not have
		}
		if sqlState(err) == "42501" {
			found = append(found, Finding{Severity: "warning", What: "not everything can be examined: " + sqlError("the database refuses", err).Error(), Fix: "Run headgate outbox init again as the owner: it grants what was added since."})
			continue
		}
		if err != nil {
			return nil, sqlError("examining the database", err)
		}
		for _, w := range what {
			found = append(found, Finding{Severity: c.severity, What: w, Fix: c.fix})
		}
	}
	return found, nil
}

// squatterFinding names a session that holds the relay's lock and does nothing
// with it: any login can take it while no relay has it.
func squatterFinding(ctx context.Context, conn *pgx.Conn, s State) (*Finding, error) {
	if s.Active || !s.Renewed.IsZero() && s.now.Sub(s.Renewed) <= stuckAfter {
		return nil, nil // a relay that leads, or is about to stream
	}
	var pid int
	var role string
	err := conn.QueryRow(ctx, `
		SELECT l.pid, coalesce(a.usename::text, '?') FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		  AND (l.classid::bigint << 32) | l.objid::bigint = hashtextextended('headgate relay ' || $1, 0)`, s.Slot).Scan(&pid, &role)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, sqlError("asking who holds the relay's lock", err)
	}
	return &Finding{
		Severity: "error",
		What:     fmt.Sprintf("session %d of the role %s holds the relay's lock and relays nothing", pid, role),
		Fix:      fmt.Sprintf("SELECT pg_terminate_backend(%d); a relay in wait then leads. Relays end such sessions themselves if their role has pg_signal_backend.", pid),
	}, nil
}

// replicationFinding tries what a relay does first. That the role may not
// replicate is found by its attributes.
func replicationFinding(ctx context.Context, url string) *Finding {
	repl, _, err := connectReplication(ctx, url)
	if err == nil {
		_ = repl.Close(ctx) // the server ends the session either way
		return nil
	}
	if sqlState(err) == "42501" {
		return nil
	}
	f := &Finding{Severity: "error", What: "no relay can stream from here: " + err.Error(), Fix: "Make room for one more in max_wal_senders, or let pg_hba.conf admit it."}
	if e := headgate.AsError(err); e != nil && e.Fix != "" {
		f.What, f.Fix = e.Detail, e.Fix
	}
	return f
}

func slotFindings(s State) []Finding {
	var found []Finding
	switch s.SlotStatus {
	case "foreign":
		what := "the slot " + s.Slot + " belongs to database " + s.SlotDatabase + ", not to this outbox: nothing is relayed"
		return []Finding{{Severity: "error", What: what, Fix: otherSlotFix}}
	case "missing":
		found = append(found, Finding{Severity: "error", What: "the slot " + s.Slot + " is missing", Fix: "Run the relay: it makes the slot and repairs from the table."})
	case "lost":
		found = append(found, Finding{Severity: "error", What: "the slot " + s.Slot + " was invalidated", Fix: "Run the relay: it makes the slot anew and repairs from the table."})
	}
	if s.Repair != "" && !strings.HasPrefix(s.Repair, openPrefix) {
		found = append(found, Finding{Severity: "warning", What: "rows are read from the table: " + s.Repair, Fix: "Wait; if it lasts, see whether the node and its broker work."})
	}
	if !s.Active && s.SlotStatus != "missing" {
		found = append(found, Finding{Severity: "error", What: "no relay reads the slot " + s.Slot, Fix: "Declare the database under outbox in a node's configuration and run it. If one runs, ask again in half a minute: it may have just begun, or another session holds its lock."})
	}
	if !s.Renewed.IsZero() && s.Active && s.now.Sub(s.Renewed) > time.Minute {
		found = append(found, Finding{Severity: "error", What: "the relay last renewed its lead at " + s.Renewed.Format(time.RFC3339), Fix: "See the log of the node " + s.Holder + "."})
	}
	return found
}

// stuckAfter is three heartbeats of the default: while all is well each is proven
// before the next.
const stuckAfter = 30 * time.Second

// stuckFindings tells of a relay that leads and gets nowhere.
func stuckFindings(s State) []Finding {
	since := s.Proven
	if since.IsZero() {
		since = s.Oldest // of the first rows that it ever had
	}
	leads := !s.Renewed.IsZero() && s.now.Sub(s.Renewed) <= time.Minute
	if !leads || since.IsZero() || s.now.Sub(since) <= stuckAfter {
		return nil
	}
	f := Finding{
		Severity: "error",
		What:     fmt.Sprintf("the relay leads, but nothing is proven to be published since %s: %d row(s) wait", since.Format(time.RFC3339), s.Unproven),
		Fix:      "See the log of the node " + s.Holder + ": which lane waits, and for what (broker, quarantine, a rate). After a long outage wait; the number must fall.",
	}
	if !s.Oldest.IsZero() {
		f.What += ", the first since " + s.Oldest.Format(time.RFC3339)
	}
	if s.Repair != "" {
		f.Severity = "warning" // a repair is proven as a whole
	}
	return []Finding{f}
}

// ReplayFilter selects rows of the outbox.
type ReplayFilter = relay.ReplayFilter

// Replay writes rows of the outbox anew, in their order and in one transaction,
// so that the relay carries them again: with ids of their own, since the broker
// and the consumers know the old ones, and the id of the first in the extension
// replayof. Rows that are replays are left out unless f names their ids. The new
// events are roots of the roles that wrote the old ones, also where those had a
// cause: a token counts for its delivery, which is over. DryRun only counts. It
// returns how many there are.
func Replay(ctx context.Context, url string, f ReplayFilter, dryRun bool) (int64, error) {
	if err := f.Check(); err != nil {
		return 0, err
	}
	conn, err := connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := readInstallation(ctx, conn); err != nil {
		return 0, err
	}
	where, args := where(f)
	selected := fmt.Sprintf(`SELECT * FROM headgate.outbox WHERE %s ORDER BY seq LIMIT %d`, where, f.Limit)
	var n int64
	if dryRun {
		err := conn.QueryRow(ctx, `SELECT count(*) FROM (`+selected+`) s`, args...).Scan(&n)
		if err != nil {
			return 0, sqlError("counting rows", err)
		}
		return n, nil
	}
	tag, err := conn.Exec(ctx, `
		INSERT INTO headgate.outbox (id, role, type, source, subject, key, attributes, origin, data)
		SELECT headgate.new_id(), role, type, source, subject, key,
		       coalesce(attributes, '{}') || jsonb_build_object('replayof', coalesce(attributes ->> 'replayof', id)), origin, data
		FROM (`+selected+`) s ORDER BY seq`, args...)
	if err != nil {
		return 0, sqlError("replaying rows", err)
	}
	return tag.RowsAffected(), nil
}

func where(f ReplayFilter) (string, []any) {
	var parts []string
	var args []any
	add := func(format string, v any) {
		args = append(args, v)
		parts = append(parts, fmt.Sprintf(format, len(args)))
	}
	if len(f.IDs) > 0 {
		add("id = ANY ($%d)", f.IDs)
	} else {
		parts = append(parts, "attributes ->> 'replayof' IS NULL")
	}
	if f.Type != "" {
		add("type = $%d", f.Type)
	}
	if f.Key != "" {
		add("key = $%d", f.Key)
	}
	if !f.Since.IsZero() {
		add("created >= $%d", f.Since)
	}
	if !f.Until.IsZero() {
		add("created < $%d", f.Until)
	}
	return strings.Join(parts, " AND "), args
}

// Watch makes row changes of a table into events of type PREFIX.inserted,
// PREFIX.updated and PREFIX.deleted. Tables that cannot be watched without gaps
// are refused with the reason (invalid_argument).
func Watch(ctx context.Context, url, table, prefix string) error {
	return call(ctx, url, `SELECT headgate.watch($1::pg_catalog.text::pg_catalog.regclass, $2)`, table, prefix)
}

// Unwatch ends the watch of a table.
func Unwatch(ctx context.Context, url, table string) error {
	return call(ctx, url, `SELECT headgate.unwatch($1::pg_catalog.text::pg_catalog.regclass)`, table)
}

func call(ctx context.Context, url, sql string, args ...any) error {
	conn, err := connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := readInstallation(ctx, conn); err != nil {
		return err
	}
	// The table's name is looked up as the caller's session does.
	if _, err := conn.Exec(ctx, `RESET search_path`); err != nil {
		return sqlError("asking the server", err)
	}
	if _, err := conn.Exec(ctx, sql, args...); err != nil {
		return refusal(err)
	}
	return nil
}
