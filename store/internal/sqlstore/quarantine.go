package sqlstore

import (
	"context"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const (
	quarantineColumns = `qid, kind, reason, state, fingerprint, family, source, event_id, type, root, cause, subscription,
		stream, partition, "offset", principal, message, content_type, created, expires`
	quarantineBulk = ", detail, body"
)

func scanQuarantine(q query) store.QuarantineRecord {
	return store.QuarantineRecord{
		QID: q.ColText(), Kind: store.QuarantineKind(q.ColText()), Reason: q.ColText(), State: q.ColText(),
		Fingerprint: q.ColText(), Family: q.ColText(), Source: q.ColText(), ID: q.ColText(), Type: q.ColText(),
		Root: q.ColText(), Cause: q.ColText(), Subscription: q.ColText(), Stream: q.ColText(),
		Position:  headgate.Position{Partition: uint32(q.ColInt()), Offset: q.colUint()},
		Principal: q.ColText(), Message: q.ColText(), ContentType: q.ColText(), Created: q.colTime(), Expires: q.colTime(),
	}
}

// Put implements store.Quarantine.
func (r quarantine) Put(_ context.Context, rec store.QuarantineRecord) (bool, error) {
	if n := len(rec.Body) + len(rec.Detail); n > store.MaxQuarantineRecord {
		return false, headgate.NewError(headgate.CodeTooLarge, "the record has %d bytes; %d can be kept", n, store.MaxQuarantineRecord)
	}
	q := r.query("INSERT INTO @quarantine (" + quarantineColumns + quarantineBulk +
		") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (qid) DO NOTHING")
	for _, s := range []string{
		rec.QID, string(rec.Kind), rec.Reason, rec.State, rec.Fingerprint, rec.Family, rec.Source, rec.ID, rec.Type,
		rec.Root, rec.Cause, rec.Subscription, rec.Stream,
	} {
		q.Text(s)
	}
	q.Int(int64(rec.Position.Partition))
	q.uint(rec.Position.Offset)
	q.Text(rec.Principal)
	q.Text(rec.Message)
	q.Text(rec.ContentType)
	q.time(rec.Created)
	q.time(rec.Expires)
	q.Blob(rec.Detail)
	q.Blob(rec.Body)
	n, err := q.Change()
	return n > 0, err
}

// Get implements store.Quarantine.
func (r quarantine) Get(_ context.Context, qid string) (store.QuarantineRecord, error) {
	q := r.query("SELECT " + quarantineColumns + quarantineBulk + " FROM @quarantine WHERE qid = ?")
	q.Text(qid)
	if !q.Next() {
		if err := q.Close(); err != nil {
			return store.QuarantineRecord{}, err
		}
		return store.QuarantineRecord{}, notFound("quarantined event", qid)
	}
	rec := scanQuarantine(q)
	rec.Detail, rec.Body = q.ColBlob(), q.ColBlob()
	return rec, q.Close()
}

// condition writes the WHERE clause of a filter and returns its arguments in
// order. The texts form a small closed set: one bit per field. Where an index
// leaves out rows without a value, the clause repeats its condition, since
// the planner must see that the index applies.
func condition(f store.QuarantineFilter) (where string, args []string) {
	fields := [...]struct{ clause, value string }{
		{"event_id = ? AND event_id <> ''", f.ID},
		{"root = ? AND root <> ''", f.Root},
		{"fingerprint = ?", f.Fingerprint},
		{"subscription = ? AND subscription <> ''", f.Subscription},
		{"principal = ?", f.Principal},
		{"type = ?", f.Type},
		{"reason = ?", f.Reason},
		{"kind = ?", string(f.Kind)},
		{"qid < ?", f.After},
	}
	var clauses []string
	for _, field := range fields {
		if field.value != "" {
			clauses, args = append(clauses, field.clause), append(args, field.value)
		}
	}
	if len(clauses) == 0 {
		return "", nil
	}
	return " WHERE " + strings.Join(clauses, " AND "), args
}

func filterLimit(f store.QuarantineFilter) int64 {
	if f.Limit <= 0 {
		return 100
	}
	return int64(min(f.Limit, 1000))
}

// List implements store.Quarantine.
func (r quarantine) List(_ context.Context, f store.QuarantineFilter) ([]store.QuarantineRecord, error) {
	where, args := condition(f)
	q := r.query("SELECT " + quarantineColumns + " FROM @quarantine" + where + " ORDER BY qid DESC LIMIT ?")
	for _, a := range args {
		q.Text(a)
	}
	q.Int(filterLimit(f))
	var all []store.QuarantineRecord
	for q.Next() {
		all = append(all, scanQuarantine(q))
	}
	return all, q.Close()
}

// Groups implements store.Quarantine.
func (r quarantine) Groups(_ context.Context, f store.QuarantineFilter) ([]store.QuarantineGroup, error) {
	where, args := condition(f)
	q := r.query(`SELECT n.fingerprint, n.family, n.kind, n.reason, n.type, n.subscription, n.message, g.count, g.first, g.last, n.qid
		FROM (SELECT count(*) AS count, min(created) AS first, max(created) AS last, ` + r.dialect.NewestQID + ` AS newest
			FROM @quarantine` + where + ` GROUP BY fingerprint ORDER BY count(*) DESC, ` + r.dialect.NewestQID + ` DESC LIMIT ?) AS g
		JOIN @quarantine AS n ON n.qid = g.newest ORDER BY g.count DESC, n.qid DESC`)
	for _, a := range args {
		q.Text(a)
	}
	q.Int(filterLimit(f))
	var all []store.QuarantineGroup
	for q.Next() {
		all = append(all, store.QuarantineGroup{
			Fingerprint: q.ColText(), Family: q.ColText(), Kind: store.QuarantineKind(q.ColText()), Reason: q.ColText(),
			Type: q.ColText(), Subscription: q.ColText(), Message: q.ColText(), Count: int(q.ColInt()),
			First: q.colTime(), Last: q.colTime(), Sample: q.ColText(),
		})
	}
	return all, q.Close()
}

// Count implements store.Quarantine.
func (r quarantine) Count(_ context.Context, kind store.QuarantineKind, principal string, since time.Time) (int, error) {
	sql := "SELECT count(*) FROM @quarantine WHERE "
	switch {
	case principal == "" && kind == "":
	case principal == "":
		sql += "kind = ? AND "
	case kind == "": // all kinds by name, so that the index on (kind, principal, created) serves
		sql += "kind IN ('refused', 'extinguished', 'parked', 'expired') AND principal = ? AND "
	default:
		sql += "kind = ? AND principal = ? AND "
	}
	q := r.query(sql + "created >= ?")
	if kind != "" {
		q.Text(string(kind))
	}
	if principal != "" {
		q.Text(principal)
	}
	q.timeBound(since)
	n := 0
	if q.Next() {
		n = int(q.ColInt())
	}
	return n, q.Close()
}

// Delete implements store.Quarantine.
func (r quarantine) Delete(_ context.Context, kind store.QuarantineKind, qids []string) (int, error) {
	total := 0
	for _, qid := range qids {
		q := r.query("DELETE FROM @quarantine WHERE qid = ? AND kind = ?")
		q.Text(qid)
		q.Text(string(kind))
		n, err := q.Change()
		if err != nil {
			return total, err
		}
		total += n
	}
	return total, nil
}

// Expire implements store.Quarantine.
func (r quarantine) Expire(_ context.Context, now time.Time, limit int) (int, error) {
	q := r.query(`DELETE FROM @quarantine WHERE qid IN
		(SELECT qid FROM @quarantine WHERE expires > ? AND expires < ? ORDER BY expires LIMIT ?)`)
	q.timeBound(time.Time{}) // a record without an end is kept
	q.timeBound(now)
	q.Int(int64(max(limit, 0)))
	return q.Change()
}

// AddOverflow implements store.Quarantine.
func (r quarantine) AddOverflow(_ context.Context, rows []store.QuarantineOverflow) error {
	for _, row := range rows {
		q := r.query(`INSERT INTO @quarantine_overflow AS o (principal, reason, type, count, last) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (principal, reason, type) DO UPDATE SET count = o.count + excluded.count, last = CASE WHEN excluded.last > o.last THEN excluded.last ELSE o.last END`)
		q.Text(row.Principal)
		q.Text(row.Reason)
		q.Text(row.Type)
		q.uint(row.Count)
		q.time(row.Last)
		if err := q.Run(); err != nil {
			return err
		}
	}
	return nil
}

// Overflow implements store.Quarantine.
func (r quarantine) Overflow(context.Context) ([]store.QuarantineOverflow, error) {
	q := r.query("SELECT principal, reason, type, count, last FROM @quarantine_overflow ORDER BY principal, reason, type")
	var all []store.QuarantineOverflow
	for q.Next() {
		all = append(all, store.QuarantineOverflow{
			Principal: q.ColText(), Reason: q.ColText(), Type: q.ColText(), Count: q.colUint(), Last: q.colTime(),
		})
	}
	return all, q.Close()
}
