package sim

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/lease"
)

// users is a database of the users' beside a service that verifies tokens. It
// keeps the highest epoch of each resource as package fencetable does: the row
// is locked from the check to the end of the transaction, shared by writes of
// its own epoch, alone by one that raises it.
type users struct {
	w     *world
	host  int
	ctx   context.Context
	up    bool
	life  int
	rows  map[string]*row
	order map[string][]int64 // committed writes
	acked map[string]bool
	there map[string]bool
	keys  map[string]ed25519.PublicKey
	name  string // of the issuer
}

type row struct {
	epoch  int64
	nonce  []byte
	shared int  // transactions of the epoch
	alone  bool // one that raises it
}

func newUsers(ctx context.Context, w *world, host int) *users {
	return &users{
		w: w, host: host, ctx: ctx, up: true, rows: map[string]*row{}, order: map[string][]int64{},
		acked: map[string]bool{}, there: map[string]bool{}, keys: map[string]ed25519.PublicKey{},
	}
}

func (u *users) at() int { return u.host }

func (u *users) present() (context.Context, func() bool, bool) {
	at := u.life
	return u.ctx, func() bool { return u.life != at }, u.up
}

// crash rolls back what is under way; what was committed stays.
func (u *users) crash(a *actor) {
	a.say("the users' database crashes")
	u.life++
	u.up = false
	for _, r := range u.rows {
		r.shared, r.alone = 0, false
	}
	if u.w.broken == verifierForgets {
		u.rows = map[string]*row{}
	}
}

// verify reads a token as the service would, with the keys that it knows, or
// after reading them from a node.
func (u *users) verify(token string) (lease.Fence, error) {
	for {
		v := lease.Verifier{Keys: u.keys, Issuer: u.name, Audience: "data"}
		f, err := v.Verify(token)
		if err == nil || u.keys[lease.KeyIDOf(token)] != nil {
			return f, err
		}
		known := len(u.keys)
		for _, n := range u.w.nodes {
			if n.life == nil {
				continue
			}
			name, keys := n.life.s.Keys()
			u.name = name
			for _, k := range keys {
				u.keys[k.ID] = k.Key
			}
		}
		if len(u.keys) == known {
			return f, err
		}
	}
}

var errCrashed = &headgate.Error{Code: headgate.CodeUnavailable, Outcome: headgate.Unknown, Detail: "the users' database crashed"}

// lock is the check: it passes the row's epoch and raises it to a higher one
// once no other transaction has the row.
func (u *users) lock(ctx context.Context, a *actor, f *lease.Fence) (*row, error) {
	at := u.life
	for tries := 0; ; tries++ {
		r := u.rows[f.Resource]
		if r == nil {
			r = &row{}
			u.rows[f.Resource] = r
		}
		switch {
		case r.alone || f.Epoch > r.epoch && r.shared > 0:
		case f.Epoch < r.epoch:
			return nil, headgate.NewError(headgate.CodeStaleFence, "epoch %d of %s was superseded by %d", f.Epoch, f.Resource, r.epoch)
		case f.Epoch > r.epoch:
			r.alone = true
			return r, nil
		case !bytes.Equal(r.nonce, f.Nonce):
			return nil, headgate.NewError(headgate.CodeFenceConflict, "another grant of epoch %d", f.Epoch)
		default:
			r.shared++
			return r, nil
		}
		a.some(50*time.Microsecond, time.Millisecond)
		if u.life != at {
			return nil, errCrashed
		}
		if tries > 2000 || ctx.Err() != nil {
			return nil, unavailable(headgate.NotApplied, "the row is locked for long")
		}
	}
}

// unlock ends a transaction, committed or not.
func (r *row) unlock(f *lease.Fence, committed bool) {
	if !r.alone {
		r.shared--
		return
	}
	r.alone = false
	if committed {
		r.epoch, r.nonce = f.Epoch, f.Nonce
	}
}

// write is one fenced transaction of a worker.
func (u *users) write(ctx context.Context, a *actor, token, id string) (struct{}, error) {
	var none struct{}
	f, err := u.verify(token)
	if err != nil {
		return none, err
	}
	at := u.life
	r, err := u.lock(ctx, a, &f)
	if err != nil {
		return none, err
	}
	a.some(100*time.Microsecond, pick[time.Duration](a, 1, 1, 10, 100)*2*time.Millisecond) // the work, and the sync
	if u.life != at {
		return none, errCrashed
	}
	r.unlock(&f, true)
	u.w.judge.usersWrite(a, &f, u.order[f.Resource])
	u.order[f.Resource] = append(u.order[f.Resource], f.Epoch)
	u.there[id] = true
	a.wait(0)
	u.acked[id] = true // the answer may be lost all the same
	return none, nil
}

// seals are the targets of a life of a node.
func (u *users) seals(n *node, l *life) map[string]lease.Target {
	seal := func(name string) lease.Target {
		one := func(ctx context.Context, f lease.Fence) error {
			a := actorOf(ctx).seals[name]
			defer u.w.beat.Add(1)
			a.some(100*time.Microsecond, 2*time.Millisecond)
			switch {
			case l.dead:
				return errNoAnswer
			case u.w.broken == sealForgotten:
				return nil
			case !u.up || u.w.faults.cut(n.host, u.host):
				a.some(20*time.Millisecond, 300*time.Millisecond)
				return errNoAnswer
			}
			at := u.life
			r, err := u.lock(ctx, a, &f)
			if err != nil {
				return err
			}
			a.some(50*time.Microsecond, time.Millisecond)
			if u.life != at {
				return errCrashed
			}
			r.unlock(&f, true)
			a.some(100*time.Microsecond, 2*time.Millisecond)
			if u.w.faults.cut(u.host, n.host) || l.dead {
				return errNoAnswer
			}
			return nil
		}
		return lease.Target{Seal: func(ctx context.Context, s lease.Sealing) ([]headgate.BlockingSession, error) {
			return nil, one(ctx, s.Fence)
		}}
	}
	// Under the second name it is the same database: what is sealed twice is
	// sealed.
	return map[string]lease.Target{"data": seal("data"), "more": seal("more")}
}

// check compares what was answered with what is there.
func (u *users) check() (faults []string) {
	for id := range u.acked {
		if !u.there[id] {
			faults = append(faults, fmt.Sprintf("the users' write %s was answered and is gone", id))
		}
	}
	return faults
}
