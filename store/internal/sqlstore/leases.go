package sqlstore

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const leaseColumns = "resource, epoch, nonce, holder, worker, request, audience, ttl, closing, acquired, expires, until, changed, sealed"

func scanLease(q query) store.Lease {
	return store.Lease{
		Resource: q.ColText(), Epoch: q.ColInt(), Nonce: q.ColBlob(), Holder: q.ColText(), Worker: q.ColText(), Request: q.ColText(),
		Audience: colList[string](q), TTL: time.Duration(q.ColInt()), Closing: q.ColBool(),
		Acquired: q.colTime(), Expires: q.colTime(), Until: q.colTime(), Changed: q.colTime(),
		Sealed: colList[string](q),
	}
}

// Now implements store.Leases.
func (r leases) Now(context.Context) (time.Time, error) { return r.session.Now() }

// Get implements store.Leases.
func (r leases) Get(_ context.Context, resource string) (store.Lease, error) {
	q := r.query("SELECT " + leaseColumns + " FROM @leases WHERE resource = ?" + r.dialect.LeaseLock)
	q.Text(resource)
	if !q.Next() {
		if err := q.Close(); err != nil {
			return store.Lease{}, err
		}
		return store.Lease{}, notFound("lease on", resource)
	}
	l := scanLease(q)
	return l, q.Close()
}

// List implements store.Leases.
func (r leases) List(_ context.Context, f store.LeaseFilter) ([]store.Lease, error) {
	// Every prefix has a successor but those of 0xff alone, which no UTF-8
	// text starts with.
	end, bounded := successor(f.Prefix)
	sql := "SELECT " + leaseColumns + " FROM @leases WHERE resource > ? AND resource >= ?"
	if bounded {
		sql += " AND resource < ?"
	}
	held := !f.HeldAt.IsZero()
	if held {
		sql += " AND holder <> '' AND expires > ?"
	}
	q := r.query(sql + " ORDER BY resource LIMIT ?")
	q.Text(f.After)
	q.Text(f.Prefix)
	if bounded {
		q.Text(end)
	}
	if held {
		q.timeBound(f.HeldAt)
	}
	q.Int(int64(leaseLimit(f.Limit)))
	var all []store.Lease
	for q.Next() {
		all = append(all, scanLease(q))
	}
	return all, q.Close()
}

func leaseLimit(n int) int {
	if n <= 0 {
		return 100
	}
	return min(n, 1000)
}

// Grant implements store.Leases.
func (r leases) Grant(_ context.Context, l store.Lease) error {
	q := r.query("INSERT INTO @leases AS l (" + leaseColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (resource) DO UPDATE SET epoch = excluded.epoch, nonce = excluded.nonce, holder = excluded.holder,
		worker = excluded.worker, request = excluded.request, audience = excluded.audience, ttl = excluded.ttl,
		closing = excluded.closing, acquired = excluded.acquired, expires = excluded.expires, until = excluded.until,
		changed = excluded.changed, sealed = excluded.sealed WHERE excluded.epoch > l.epoch`)
	q.Text(l.Resource)
	q.Int(l.Epoch)
	q.Blob(l.Nonce)
	q.Text(l.Holder)
	q.Text(l.Worker)
	q.Text(l.Request)
	list(q, l.Audience)
	q.Int(int64(l.TTL))
	q.Bool(l.Closing)
	q.time(l.Acquired)
	q.time(l.Expires)
	q.time(l.Until)
	q.time(l.Changed)
	list(q, l.Sealed)
	n, err := q.Change()
	if err != nil {
		return err
	}
	if n == 0 {
		return headgate.NewError(headgate.CodeConflict, "the lease has an epoch of %d or above", l.Epoch)
	}
	return nil
}

// Touch implements store.Leases.
func (r leases) Touch(_ context.Context, resource string, epoch int64, expires, changed time.Time, closing bool) error {
	q := r.query("UPDATE @leases SET expires = ?, changed = ?, closing = ? WHERE resource = ? AND epoch = ?")
	q.time(expires)
	q.time(changed)
	q.Bool(closing)
	q.Text(resource)
	q.Int(epoch)
	n, err := q.Change()
	if err != nil {
		return err
	}
	if n == 0 {
		return headgate.NewError(headgate.CodeConflict, "the lease has another epoch than %d", epoch)
	}
	return nil
}

// Remember implements store.Leases.
func (r leases) Remember(_ context.Context, id, asked []byte, at time.Time) error {
	q := r.query(`INSERT INTO @lease_requests (id, asked, noted) VALUES (?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET asked = excluded.asked, noted = excluded.noted`)
	q.Blob(id)
	q.Blob(asked)
	q.time(at)
	return q.Run()
}

// Remembered implements store.Leases.
func (r leases) Remembered(_ context.Context, id []byte) ([]byte, error) {
	q := r.query("SELECT asked FROM @lease_requests WHERE id = ?")
	q.Blob(id)
	var asked []byte
	if q.Next() {
		asked = q.ColBlob()
	}
	return asked, q.Close()
}

// Forget implements store.Leases.
func (r leases) Forget(_ context.Context, before time.Time, most, limit int) (int, error) {
	q := r.query("SELECT noted FROM @lease_requests ORDER BY noted DESC LIMIT 1 OFFSET ?")
	q.Int(int64(max(most, 0)))
	if q.Next() {
		if full := q.colTime().Add(1); full.After(before) {
			before = full
		}
	}
	if err := q.Close(); err != nil {
		return 0, err
	}
	q = r.query("DELETE FROM @lease_requests WHERE id IN (SELECT id FROM @lease_requests WHERE noted < ? ORDER BY noted LIMIT ?)")
	q.timeBound(before)
	q.Int(int64(max(limit, 0)))
	return q.Change()
}
