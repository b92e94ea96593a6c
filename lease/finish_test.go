package lease

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// finished ends a grant with its holder's last write.
func (r *rig) finished(token string) (row store.Lease, err error) {
	f, err := r.Read(r.t.Context(), token, "")
	if err != nil {
		return row, err
	}
	err = r.st.Update(r.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		if row, err = r.Finish(ctx, tx, &f); err != nil {
			return err
		}
		return tx.Outbox.Append(ctx, []store.OutboxRow{{Stream: "s", Event: []byte(f.String())}})
	})
	if err == nil {
		r.Ended(&row)
	}
	return row, err
}

// events are what was committed.
func (r *rig) events() (n int) {
	r.t.Helper()
	err := r.st.View(r.t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
		n, err = tx.Outbox.Count(ctx)
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// The last write of a holder and the end of its grant are one: open gate or
// closed, and never under what is not the current grant.
func TestFinish(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*rig, Grant) (*rig, string) // what happens to the lease; the store and token to finish with
		code   headgate.Code
	}{
		"current": {func(r *rig, g Grant) (*rig, string) { return r, g.Token }, ""},
		"being revoked": {func(r *rig, g Grant) (*rig, string) {
			_, _, leave, err := r.shut(r.t.Context(), "r")
			leave()
			want(r.t, "closing the gate", err, "")
			return r, g.Token
		}, ""},
		"released": {func(r *rig, g Grant) (*rig, string) {
			want(r.t, "release", r.Release(r.t.Context(), worker("a"), "r", g.Token), "")
			return r, g.Token
		}, headgate.CodeStaleFence},
		"run out": {func(r *rig, g Grant) (*rig, string) {
			r.pass(10 * time.Second)
			return r, g.Token
		}, headgate.CodeLeaseExpired},
		"taken": {func(r *rig, g Grant) (*rig, string) {
			r.pass(10 * time.Second)
			r.acquire("b", "r")
			return r, g.Token
		}, headgate.CodeStaleFence},
		"lost with the store": {func(r *rig, g Grant) (*rig, string) {
			other := newRig(r.t, memory(r.t))
			other.ring.Store(r.ring.Load())
			return other, g.Token
		}, headgate.CodeStaleFence},
		"of another grant of the epoch": {func(r *rig, g Grant) (*rig, string) {
			f, err := r.Read(r.t.Context(), g.Token, "")
			want(r.t, "read", err, "")
			f.Nonce = []byte("0123456789abcdef")
			token, err := sign(&f, r.ring.Load().keys[0].private)
			want(r.t, "sign", err, "")
			return r, token
		}, headgate.CodeFenceConflict},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, memory(t))
			r, token := c.before(r, r.acquire("a", "r"))
			before := r.stats.Released.Load()
			row, err := r.finished(token)
			want(t, name, err, c.code)
			if c.code != "" {
				if n := r.events(); n != 0 {
					t.Errorf("%d events were committed", n)
				}
				return
			}
			f, err := r.Read(t.Context(), token, "")
			if err != nil || row.Epoch <= f.Epoch || row.Holder != "" || r.events() != 1 || r.stats.Released.Load() != before+1 {
				t.Errorf("%s ended as %+v with %d events: %v", f.String(), row, r.events(), err)
			}
			_, err = r.finished(token)
			want(t, "a second last write", err, headgate.CodeStaleFence)
			want(t, "a write afterwards", r.write(token), headgate.CodeStaleFence)
			if again := r.acquire("b", "r"); again.Epoch <= row.Epoch {
				t.Errorf("epoch %d was given after %d", again.Epoch, row.Epoch)
			}
		})
	}
}
