package sqliterelay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/filelock"
	"github.com/headgate/headgate/relay"
)

// State is an outbox as its database shows it.
type State struct {
	Database string `json:"database"`
	// Revision is that of the views and triggers in the database, [Revision] the
	// newest that this build knows.
	Revision int `json:"revision"`
	// Active is whether a relay holds the lock.
	Active bool   `json:"active"`
	Epoch  int64  `json:"epoch"`
	Holder string `json:"holder,omitempty"` // of the last relay
	// Confirmed is the number of the row to which everything is published.
	Confirmed   int64     `json:"confirmed"`
	ConfirmedAt time.Time `json:"confirmed_at,omitzero"`
	// Waiting counts the rows behind it; WaitingSince is when the first of them
	// was written.
	Waiting      int64     `json:"waiting"`
	WaitingSince time.Time `json:"waiting_since,omitzero"`
	Repair       string    `json:"repair,omitempty"` // why rows are published again
	Aside        int64     `json:"aside"`            // rows before it that are set aside until their turn comes
	Rows         int64     `json:"rows"`             // kept in the outbox
	LogBytes     int64     `json:"log_bytes"`        // of the write-ahead log
}

// Inspect reads the state of the outbox in the database that db opens. Errors:
// not_found, conflict, unavailable.
func Inspect(ctx context.Context, db *sql.DB) (State, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return State{}, sqlError("opening the database", err)
	}
	defer conn.Close()
	return inspect(ctx, conn)
}

func inspect(ctx context.Context, conn *sql.Conn) (State, error) {
	s, err := readState(ctx, conn)
	if err != nil {
		return State{}, err
	}
	out := State{Revision: s.revision, Epoch: s.epoch, Holder: s.holder, Confirmed: s.confirmed, Repair: s.repair, ConfirmedAt: millis(s.confirmedAt)}
	var since int64
	err = conn.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM headgate_outbox_rows WHERE seq > ?1), (SELECT count(*) FROM headgate_outbox_rows),
		coalesce((SELECT created FROM headgate_outbox_rows WHERE seq > ?1 ORDER BY seq LIMIT 1), 0)`, s.confirmed).Scan(&out.Waiting, &out.Rows, &since)
	if err != nil {
		return State{}, sqlError("counting rows", err)
	}
	out.WaitingSince = millis(since)
	if s.revision >= asideRevision {
		pages, err := readAside(ctx, conn)
		if err != nil {
			return State{}, err
		}
		for i := range pages {
			out.Aside += int64(pages[i].Count())
		}
	}
	var seq int
	var name string
	if err := conn.QueryRowContext(ctx, `PRAGMA database_list`).Scan(&seq, &name, &out.Database); err != nil {
		return State{}, sqlError("asking the database", err)
	}
	if info, err := os.Stat(out.Database + "-wal"); err == nil {
		out.LogBytes = info.Size()
	}
	out.Active, err = active(out.Database)
	return out, err
}

func millis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// active reports whether somebody holds the relay's lock. To find out it takes
// the lock for a moment: a relay that wants it just then tries again.
func active(database string) (bool, error) {
	path, err := filepath.EvalSymlinks(database)
	if err != nil {
		return false, sqlError("looking for the database", err)
	}
	f, err := os.Open(path + LockSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, sqlError("asking for the relay's lock", err)
	}
	defer f.Close()
	held, err := filelock.Try(f)
	if err != nil {
		return false, sqlError("asking for the relay's lock", err)
	}
	return !held, nil
}

// Bounds beyond which Doctor complains.
const (
	lateAfter = time.Minute
	longLog   = 256 << 20
)

// Doctor returns everything that is wrong with an outbox. Now is the present.
func Doctor(ctx context.Context, db *sql.DB, now time.Time) ([]relay.Finding, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, sqlError("opening the database", err)
	}
	defer conn.Close()
	s, err := inspect(ctx, conn)
	if err != nil {
		return nil, err
	}
	found := s.findings(now)
	for _, more := range []func(context.Context, *sql.Conn) ([]relay.Finding, error){settingFindings, rowFindings, schemaFindings} {
		f, err := more(ctx, conn)
		if err != nil {
			return nil, err
		}
		found = append(found, f...)
	}
	return found, nil
}

func (s State) findings(now time.Time) []relay.Finding {
	var found []relay.Finding
	if !s.Active {
		found = append(found, relay.Finding{
			Severity: "error", What: "no relay reads this outbox", Fix: "Declare the database under outbox in a node's configuration and run it.",
		})
	}
	if s.Revision < Revision {
		found = append(found, relay.Finding{
			Severity: "warning", What: fmt.Sprintf("the database was prepared by an older version: revision %d of its views and triggers, the newest is %d", s.Revision, Revision),
			Fix: "Run headgate outbox init, beside writers and relays; --dry-run shows what it does.",
		})
	}
	if s.Aside > 0 {
		found = append(found, relay.Finding{
			Severity: "warning", What: fmt.Sprintf("%d row(s) are set aside: the principal is beyond its rate of roots, or its rows wait for the quarantine", s.Aside),
			Fix: "Nothing, if the rate is meant: they go out at that rate, and others are not held up. Else raise roots.rate of the principal, or see what writes so much.",
		})
	}
	if s.Repair != "" {
		found = append(found, relay.Finding{
			Severity: "warning", What: "rows are published again: " + s.Repair, Fix: "Wait; if it lasts, see whether the node and its broker work.",
		})
	}
	if s.Active && s.Waiting > 0 && now.Sub(s.WaitingSince) > lateAfter {
		found = append(found, relay.Finding{
			Severity: "error", What: fmt.Sprintf("%d row(s) wait to be published, the first since %s", s.Waiting, s.WaitingSince.Format(time.RFC3339)),
			Fix: "See headgate doctor and the log of the node " + s.Holder + ".",
		})
	}
	if s.LogBytes > longLog {
		found = append(found, relay.Finding{
			Severity: "warning", What: fmt.Sprintf("the write-ahead log has %d MiB", s.LogBytes>>20), Fix: "End transactions that only read and stay open: they keep the log from being emptied.",
		})
	}
	return found
}

// settingFindings are about what of the file or of this connection is visible.
// Which synchronous mode writers use is not; the relay syncs their commits.
func settingFindings(ctx context.Context, conn *sql.Conn) ([]relay.Finding, error) {
	var found []relay.Finding
	for _, want := range []struct{ pragma, value, fix string }{
		{"journal_mode", "wal", "PRAGMA journal_mode = WAL; it stays with the file."},
		{"encoding", "UTF-8", "Copy the data to a database with PRAGMA encoding = 'UTF-8', and prepare that."},
	} {
		var got string
		if err := conn.QueryRowContext(ctx, "PRAGMA "+want.pragma).Scan(&got); err != nil {
			return nil, sqlError("asking the database", err)
		}
		if got != want.value {
			found = append(found, relay.Finding{Severity: "error", What: want.pragma + " is " + got, Fix: want.fix})
		}
	}
	return found, nil
}

func rowFindings(ctx context.Context, conn *sql.Conn) ([]relay.Finding, error) {
	var found []relay.Finding
	for _, c := range []struct{ severity, sql, fix string }{
		{
			"error", `SELECT 'the row ' || confirmed || ', to which events were published, is gone or another one' FROM headgate_outbox_state s
				WHERE confirmed > 0 AND NOT EXISTS (SELECT 1 FROM headgate_outbox_rows WHERE seq = s.confirmed AND id = s.confirmed_id)`,
			"Restart the node: its relay publishes again what is kept.",
		},
		{
			"error", `SELECT 'a causal token stayed behind, and marks the events of others' FROM headgate_outbox_mark`,
			"DELETE FROM headgate_cause; and find out who commits it with foreign keys off.",
		},
	} {
		what, err := list(ctx, conn, c.sql)
		if err != nil {
			return nil, err
		}
		for _, w := range what {
			found = append(found, relay.Finding{Severity: c.severity, What: w, Fix: c.fix})
		}
	}
	return found, nil
}

// schemaFindings compare what is in the database with what Install made.
func schemaFindings(ctx context.Context, conn *sql.Conn) ([]relay.Finding, error) {
	var found []relay.Finding
	for _, name := range objects() {
		there, err := list(ctx, conn, `SELECT name FROM main.sqlite_master WHERE name = ?`, name)
		if err != nil {
			return nil, err
		}
		if len(there) == 0 {
			found = append(found, relay.Finding{
				Severity: "error", What: name + " is missing", Fix: "Make it as headgate outbox init --dry-run prints it.",
			})
		}
	}
	changed, err := drift(ctx, conn)
	for _, what := range changed {
		found = append(found, relay.Finding{Severity: "error", What: what, Fix: "headgate outbox watch TABLE, or unwatch."})
	}
	return found, err
}

// objects are the names of what Install makes.
func objects() []string {
	var names []string
	for line := range strings.Lines(schema + views) {
		for _, kind := range []string{"CREATE TABLE ", "CREATE VIEW ", "CREATE TRIGGER "} {
			if rest, ok := strings.CutPrefix(line, kind); ok {
				name, _, _ := strings.Cut(rest, " ")
				names = append(names, name)
			}
		}
	}
	return names
}

// Replay writes rows of the outbox anew, in their order and in one transaction,
// so that the relay carries them again: with ids of their own, since the broker
// and the consumers know the old ones, and the id of the first in the extension
// replayof. Rows that are replays are left out unless f names their ids. The new
// events are roots, also where the old ones had a cause: a token counts for its
// delivery, which is over. DryRun only counts. It returns how many there are.
// Errors:
// invalid_argument for a filter that selects nothing.
func Replay(ctx context.Context, db *sql.DB, f relay.ReplayFilter, dryRun bool) (int64, error) {
	if err := f.Check(); err != nil {
		return 0, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return 0, sqlError("opening the database", err)
	}
	defer conn.Close()
	if _, err := readState(ctx, conn); err != nil {
		return 0, err
	}
	where, args := where(f)
	selected := fmt.Sprintf(`SELECT * FROM headgate_outbox_rows WHERE %s ORDER BY seq LIMIT %d`, where, f.Limit)
	var n int64
	if dryRun {
		if err := conn.QueryRowContext(ctx, `SELECT count(*) FROM (`+selected+`)`, args...).Scan(&n); err != nil {
			return 0, sqlError("counting rows", err)
		}
		return n, nil
	}
	err = immediate(ctx, conn, func() error {
		res, err := conn.ExecContext(ctx, `INSERT INTO headgate_outbox_rows (id, type, source, subject, key, attributes, origin, data)
			SELECT `+newID+`, type, source, subject, key, json_set(coalesce(attributes, '{}'), '$.replayof', coalesce(json_extract(attributes, '$.replayof'), id)), origin, data FROM (`+selected+`) ORDER BY seq`, args...)
		if err == nil {
			n, err = res.RowsAffected()
		}
		if err != nil {
			return sqlError("replaying rows", err)
		}
		return nil
	})
	return n, err
}

func where(f relay.ReplayFilter) (string, []any) {
	var parts []string
	var args []any
	add := func(condition string, values ...any) {
		parts = append(parts, condition)
		args = append(args, values...)
	}
	if len(f.IDs) > 0 {
		ids := make([]any, len(f.IDs))
		for i, id := range f.IDs {
			ids[i] = id
		}
		add("id IN (?"+strings.Repeat(", ?", len(ids)-1)+")", ids...)
	} else {
		add("json_extract(attributes, '$.replayof') IS NULL")
	}
	if f.Type != "" {
		add("type = ?", f.Type)
	}
	if f.Key != "" {
		add("key = ?", f.Key)
	}
	if !f.Since.IsZero() {
		add("created >= ?", f.Since.UnixMilli())
	}
	if !f.Until.IsZero() {
		add("created < ?", f.Until.UnixMilli())
	}
	return strings.Join(parts, " AND "), args
}
