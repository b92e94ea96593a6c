package pgstore

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

	// newestQID is the greatest QID of a group. Before version 18 the server
	// has no max of byte strings; that of their hexadecimal form is the same.
	newestQID = `decode(max(encode(qid, 'hex') COLLATE "C"), 'hex')`
)

func scanQuarantine(q *query) store.QuarantineRecord {
	return store.QuarantineRecord{
		QID: q.colText(), Kind: store.QuarantineKind(q.colText()), Reason: q.colText(), State: q.colText(),
		Fingerprint: q.colText(), Family: q.colText(), Source: q.colText(), ID: q.colText(), Type: q.colText(),
		Root: q.colText(), Cause: q.colText(), Subscription: q.colText(), Stream: q.colText(),
		Position:  headgate.Position{Partition: uint32(q.colInt()), Offset: q.colUint()},
		Principal: q.colText(), Message: q.colText(), ContentType: q.colText(), Created: q.colTime(), Expires: q.colTime(),
	}
}

// Put implements store.Quarantine.
func (r quarantine) Put(_ context.Context, rec store.QuarantineRecord) (bool, error) {
	q := r.query("INSERT INTO @quarantine (" + quarantineColumns + quarantineBulk +
		") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (qid) DO NOTHING")
	for _, s := range []string{
		rec.QID, string(rec.Kind), rec.Reason, rec.State, rec.Fingerprint, rec.Family, rec.Source, rec.ID, rec.Type,
		rec.Root, rec.Cause, rec.Subscription, rec.Stream,
	} {
		q.text(s)
	}
	q.int(int64(rec.Position.Partition))
	q.uint(rec.Position.Offset)
	q.text(rec.Principal)
	q.text(rec.Message)
	q.text(rec.ContentType)
	q.time(rec.Created)
	q.time(rec.Expires)
	q.blob(rec.Detail)
	q.blob(rec.Body)
	n, err := q.change()
	return n > 0, err
}

// Get implements store.Quarantine.
func (r quarantine) Get(_ context.Context, qid string) (store.QuarantineRecord, error) {
	q := r.query("SELECT " + quarantineColumns + quarantineBulk + " FROM @quarantine WHERE qid = ?")
	q.text(qid)
	if !q.next() {
		if err := q.close(); err != nil {
			return store.QuarantineRecord{}, err
		}
		return store.QuarantineRecord{}, notFound("quarantined event", qid)
	}
	rec := scanQuarantine(&q)
	rec.Detail, rec.Body = q.colBlob(), q.colBlob()
	return rec, q.close()
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
		q.text(a)
	}
	q.int(filterLimit(f))
	var all []store.QuarantineRecord
	for q.next() {
		all = append(all, scanQuarantine(&q))
	}
	return all, q.close()
}

// Groups implements store.Quarantine.
func (r quarantine) Groups(_ context.Context, f store.QuarantineFilter) ([]store.QuarantineGroup, error) {
	where, args := condition(f)
	q := r.query(`SELECT n.fingerprint, n.family, n.kind, n.reason, n.type, n.subscription, n.message, g.count, g.first, g.last, n.qid
		FROM (SELECT count(*) AS count, min(created) AS first, max(created) AS last, ` + newestQID + ` AS newest
			FROM @quarantine` + where + ` GROUP BY fingerprint ORDER BY count(*) DESC, ` + newestQID + ` DESC LIMIT ?) AS g
		JOIN @quarantine AS n ON n.qid = g.newest ORDER BY g.count DESC, n.qid DESC`)
	for _, a := range args {
		q.text(a)
	}
	q.int(filterLimit(f))
	var all []store.QuarantineGroup
	for q.next() {
		all = append(all, store.QuarantineGroup{
			Fingerprint: q.colText(), Family: q.colText(), Kind: store.QuarantineKind(q.colText()), Reason: q.colText(),
			Type: q.colText(), Subscription: q.colText(), Message: q.colText(), Count: int(q.colInt()),
			First: q.colTime(), Last: q.colTime(), Sample: q.colText(),
		})
	}
	return all, q.close()
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
		q.text(string(kind))
	}
	if principal != "" {
		q.text(principal)
	}
	q.timeBound(since)
	n := 0
	if q.next() {
		n = int(q.colInt())
	}
	return n, q.close()
}

// Expire implements store.Quarantine.
func (r quarantine) Expire(_ context.Context, now time.Time, limit int) (int, error) {
	q := r.query(`DELETE FROM @quarantine WHERE qid IN
		(SELECT qid FROM @quarantine WHERE expires > ? AND expires < ? ORDER BY expires LIMIT ?)`)
	q.timeBound(time.Time{}) // a record without an end is kept
	q.timeBound(now)
	q.int(int64(max(limit, 0)))
	return q.change()
}

// AddOverflow implements store.Quarantine.
func (r quarantine) AddOverflow(_ context.Context, rows []store.QuarantineOverflow) error {
	for _, row := range rows {
		q := r.query(`INSERT INTO @quarantine_overflow AS o (principal, reason, type, count, last) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (principal, reason, type) DO UPDATE SET count = o.count + excluded.count, last = greatest(o.last, excluded.last)`)
		q.text(row.Principal)
		q.text(row.Reason)
		q.text(row.Type)
		q.uint(row.Count)
		q.time(row.Last)
		if err := q.run(); err != nil {
			return err
		}
	}
	return nil
}

// Overflow implements store.Quarantine.
func (r quarantine) Overflow(context.Context) ([]store.QuarantineOverflow, error) {
	q := r.query("SELECT principal, reason, type, count, last FROM @quarantine_overflow ORDER BY principal, reason, type")
	var all []store.QuarantineOverflow
	for q.next() {
		all = append(all, store.QuarantineOverflow{
			Principal: q.colText(), Reason: q.colText(), Type: q.colText(), Count: q.colUint(), Last: q.colTime(),
		})
	}
	return all, q.close()
}
