package pgstore

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const leaseColumns = "resource, epoch, nonce, holder, worker, request, audience, ttl, closing, acquired, expires, until, changed"

func scanLease(q *query) store.Lease {
	return store.Lease{
		Resource: q.colText(), Epoch: q.colInt(), Nonce: q.colBlob(), Holder: q.colText(), Worker: q.colText(), Request: q.colText(),
		Audience: colList[string](q), TTL: time.Duration(q.colInt()), Closing: q.colBool(),
		Acquired: q.colTime(), Expires: q.colTime(), Until: q.colTime(), Changed: q.colTime(),
	}
}

// Now implements store.Leases: the server's clock, in its microseconds.
func (r leases) Now(context.Context) (time.Time, error) {
	q := r.query("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
	var now time.Time
	if q.next() {
		now = time.UnixMicro(q.colInt()).UTC()
	}
	return now, q.close()
}

// Get implements store.Leases.
func (r leases) Get(_ context.Context, resource string) (store.Lease, error) {
	sql := "SELECT " + leaseColumns + " FROM @leases WHERE resource = ?"
	if r.writes {
		// Our own writers stand in line anyway. This holds off statements that
		// others run on the table.
		sql += " FOR KEY SHARE"
	}
	q := r.query(sql)
	q.text(resource)
	if !q.next() {
		if err := q.close(); err != nil {
			return store.Lease{}, err
		}
		return store.Lease{}, notFound("lease on", resource)
	}
	l := scanLease(&q)
	return l, q.close()
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
	if f.Held {
		sql += " AND holder <> ''"
	}
	q := r.query(sql + " ORDER BY resource LIMIT ?")
	q.text(f.After)
	q.text(f.Prefix)
	if bounded {
		q.text(end)
	}
	q.int(int64(leaseLimit(f.Limit)))
	var all []store.Lease
	for q.next() {
		all = append(all, scanLease(&q))
	}
	return all, q.close()
}

func leaseLimit(n int) int {
	if n <= 0 {
		return 100
	}
	return min(n, 1000)
}

// guardWait is what a caller is told to wait for fenced writes to end.
const guardWait = 20 * time.Millisecond

// Grant implements store.Leases. A fenced write that is in flight on the
// database holds the row, and with it the epoch, until it has ended. Waiting
// for it here would keep every writer of every node waiting, so that the
// answer is unavailable at once, for the caller to try again.
func (r leases) Grant(_ context.Context, l store.Lease) error {
	q := r.query(`SELECT (SELECT epoch FROM @leases WHERE resource = ?1),
		(SELECT epoch FROM @leases WHERE resource = ?1 FOR UPDATE SKIP LOCKED)`)
	q.text(l.Resource)
	var stored uint64
	var exists, free bool
	if q.next() {
		stored, exists = q.colOptional()
		_, free = q.colOptional()
	}
	if err := q.close(); err != nil {
		return err
	}
	if exists && int64(stored) >= l.Epoch {
		return headgate.NewError(headgate.CodeConflict, "the lease has an epoch of %d or above", l.Epoch)
	}
	if exists && !free {
		return &headgate.Error{Code: headgate.CodeUnavailable, Detail: "a fenced write under the lease is in flight", RetryAfter: guardWait, Err: store.ErrGuarded}
	}
	q = r.query("INSERT INTO @leases (" + leaseColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (resource) DO UPDATE SET epoch = excluded.epoch, nonce = excluded.nonce, holder = excluded.holder,
		worker = excluded.worker, request = excluded.request, audience = excluded.audience, ttl = excluded.ttl,
		closing = excluded.closing, acquired = excluded.acquired, expires = excluded.expires, until = excluded.until,
		changed = excluded.changed`)
	q.text(l.Resource)
	q.int(l.Epoch)
	q.blob(l.Nonce)
	q.text(l.Holder)
	q.text(l.Worker)
	q.text(l.Request)
	list(&q, l.Audience)
	q.int(int64(l.TTL))
	q.bool(l.Closing)
	q.time(l.Acquired)
	q.time(l.Expires)
	q.time(l.Until)
	q.time(l.Changed)
	return q.run()
}

// Touch implements store.Leases.
func (r leases) Touch(_ context.Context, resource string, epoch int64, expires, changed time.Time, closing bool) error {
	q := r.query("UPDATE @leases SET expires = ?, changed = ?, closing = ? WHERE resource = ? AND epoch = ?")
	q.time(expires)
	q.time(changed)
	q.bool(closing)
	q.text(resource)
	q.int(epoch)
	n, err := q.change()
	if err != nil {
		return err
	}
	if n == 0 {
		return headgate.NewError(headgate.CodeConflict, "the lease has another epoch than %d", epoch)
	}
	return nil
}
