package sim

import (
	"bytes"
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/store"
)

// broken names a variant that must be caught; empty is the real thing.
type broken string

const (
	guardIgnoresEpoch  broken = "the guard compares neither epoch nor nonce"
	guardBefore        broken = "the guard is asked before the transaction of the write"
	guardIgnoresGate   broken = "the guard ignores the gate"
	guardIgnoresEnd    broken = "the guard ignores the end of the lease"
	renewalRevives     broken = "a renewal brings a superseded grant back"
	ackBeforeSync      broken = "commits are answered before they are synced"
	takeoverKeepsEpoch broken = "a takeover does not raise the epoch"
	endChangesNothing  broken = "the end of a lease changes nothing"
	requestIDIgnored   broken = "request ids are ignored"
	sealForgotten      broken = "targets are said to be sealed and are not"
	verifierForgets    broken = "the users' database forgets its epochs when it restarts"
	gateStaysOpen      broken = "a revocation does not close the gate"
	endsAreNotMended   broken = "the end of a lease is not mended when the clock goes back"
)

// variants are all of them, each with what must be said of it.
var variants = []struct {
	broken
	fault string
}{
	{guardIgnoresEpoch, "is committed under"},
	{guardBefore, "is committed under"},
	{guardIgnoresGate, "through the closed gate"},
	{guardIgnoresEnd, "after the end of"},
	{renewalRevives, "the epoch of"},
	{ackBeforeSync, "is lost"},
	{takeoverKeepsEpoch, "is given twice"},
	{endChangesNothing, "was ended, and"},
	{requestIDIgnored, "is granted"},
	{sealForgotten, "was sealed"},
	{verifierForgets, "is committed behind one of"},
	{gateStaysOpen, "through the closed gate"},
	{endsAreNotMended, "is not served"},
}

// believing is the role of leases for a guard that misses something.
type believing struct {
	store.Leases
	change func(*store.Lease)
}

func (b believing) Get(ctx context.Context, resource string) (store.Lease, error) {
	l, err := b.Leases.Get(ctx, resource)
	b.change(&l)
	return l, err
}

// guarded commits an event under a fence.
func guarded(ctx context.Context, d *actor, l *life, f *lease.Fence, id string) error {
	st := &session{database: d.w.db, life: l}
	check := func(ctx context.Context, tx *store.Tx) error { return l.s.Guard(ctx, tx, f) }
	blind := func(change func(*store.Lease)) func(context.Context, *store.Tx) error {
		return func(ctx context.Context, tx *store.Tx) error {
			other := *tx
			other.Leases = believing{tx.Leases, change}
			return l.s.Guard(ctx, &other, f)
		}
	}
	switch d.w.broken {
	case guardIgnoresEpoch:
		check = blind(func(l *store.Lease) { l.Epoch, l.Nonce = f.Epoch, f.Nonce })
	case guardIgnoresGate:
		check = blind(func(l *store.Lease) { l.Closing = false })
	case guardIgnoresEnd:
		check = blind(func(l *store.Lease) { l.Expires = l.Expires.AddDate(1, 0, 0) })
	case guardBefore:
		if err := st.View(ctx, check); err != nil {
			return err
		}
		d.some(0, 100*time.Millisecond)
		check = func(context.Context, *store.Tx) error { return nil }
	}
	return st.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := check(ctx, tx); err != nil {
			return err
		}
		return tx.Outbox.Append(ctx, []store.OutboxRow{{Event: []byte(eventOf("publish", f, id))}})
	})
}

// revive is a renewal that writes the grant of its token, whatever came since.
func revive(ctx context.Context, d *actor, l *life, token string) (lease.Renewed, error) {
	f, err := l.s.Read(ctx, token, "")
	if err != nil {
		return lease.Renewed{}, err
	}
	err = (&session{database: d.w.db, life: l}).Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		row, err := tx.Leases.Get(ctx, f.Resource)
		if err != nil {
			return err
		}
		now, err := tx.Leases.Now(ctx)
		if err != nil {
			return err
		}
		row.Epoch, row.Nonce, row.Holder, row.Expires, row.Changed = f.Epoch, bytes.Clone(f.Nonce), f.Holder, now.Add(row.TTL), now
		if forcing, ok := tx.Leases.(leases); ok {
			forcing.force(row)
		}
		return nil
	})
	if err != nil {
		return lease.Renewed{}, headgate.NewError(headgate.CodeLeaseLost, "not revived")
	}
	return lease.Renewed{Resource: f.Resource, Epoch: f.Epoch, Token: token}, nil
}
