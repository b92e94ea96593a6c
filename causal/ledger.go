package causal

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const (
	ledgerShards = 64
	// ledgerRoots bounds the roots with children that a node remembers. A
	// forgotten root strands what the node held of it.
	ledgerRoots = 1 << 18
	// firstSlice and lastSlice are how many units one debit asks for, doubling
	// from the first to the last.
	firstSlice, lastSlice = 8, 64
	// emptyFor is how long an account that was found empty is not asked
	// again: a storm of refused events must not become a storm of queries. A
	// person may have raised it meanwhile.
	emptyFor = time.Second
)

// ledger keeps this node's balances of gas.
//
// The grant of a root that this boot admitted is not written anywhere: it is
// whole as long as the root has no entry and never had one. An entry once
// dropped must never come back with its grant, so dropping raises the shard's
// mark, and own roots below the mark have no grant.
type ledger struct {
	store  store.Store
	now    func() time.Time
	boot   uint64
	serial atomic.Uint64
	room   int // entries per shard and generation
	shards []ledgerShard
}

// ledgerShard holds entries in two generations: the older one is dropped whole
// when the younger is full, and an entry in use moves to the younger.
type ledgerShard struct {
	mu                   sync.Mutex
	young, old           map[accountKey]*account
	youngSerial, oldSeal uint64 // greatest own serial that ever entered
	mark                 uint64 // own serials below it have no grant
}

func newLedger(s store.Store, now func() time.Time, boot uint64) *ledger {
	return &ledger{
		store: s, now: now, boot: boot,
		room: ledgerRoots / 2 / ledgerShards, shards: make([]ledgerShard, ledgerShards),
	}
}

// open names the account of a new root. Its grant less the root itself is at
// once at the disposal of this boot.
func (l *ledger) open() accountKey { return accountKey{boot: l.boot, serial: l.serial.Add(1)} }

func (l *ledger) shard(k accountKey) *ledgerShard {
	return &l.shards[(k.boot^k.serial*0x9e3779b97f4a7c15)>>32%uint64(len(l.shards))]
}

// account returns the entry of a root, made if need be.
func (l *ledger) account(root string, lin *lineage) *account {
	k := lin.account
	s := l.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.young[k]; a != nil {
		return a
	}
	a := s.old[k]
	if a != nil {
		delete(s.old, k)
	} else {
		a = &account{name: accountName(root, k), total: lin.total, granted: lin.granted, slice: firstSlice, left: lin.total - lin.granted}
		a.balance = s.grant(l.boot, lin)
	}
	s.insert(l, k, a)
	return a
}

// grant returns what is left of a root's grant on this node when the root has
// no entry.
func (s *ledgerShard) grant(boot uint64, lin *lineage) int {
	if lin.account.boot != boot || lin.account.serial < s.mark {
		return 0
	}
	return lin.granted - 1
}

func (s *ledgerShard) insert(l *ledger, k accountKey, a *account) {
	if len(s.young) >= l.room {
		if len(s.old) > 0 {
			s.mark = max(s.mark, s.oldSeal+1)
		}
		s.old, s.oldSeal = s.young, max(s.oldSeal, s.youngSerial)
		s.young, s.youngSerial = nil, 0
	}
	if s.young == nil {
		s.young = make(map[accountKey]*account)
	}
	s.young[k] = a
	if k.boot == l.boot {
		s.youngSerial = max(s.youngSerial, k.serial)
	}
}

// local returns the units of a root that this node holds.
func (l *ledger) local(lin *lineage) int {
	s := l.shard(lin.account)
	s.mu.Lock()
	a := s.young[lin.account]
	if a == nil {
		a = s.old[lin.account]
	}
	if a == nil {
		defer s.mu.Unlock()
		return s.grant(l.boot, lin)
	}
	s.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.balance
}

// accountName is the key of an account in the store: the root's id, clipped,
// for people; the boot and the number in it make it unique.
func accountName(root string, k accountKey) string {
	const clip = 64
	if len(root) > clip {
		root = root[:clip]
	}
	return strings.ToValidUTF8(root, "") + "@" + strconv.FormatUint(k.boot, 16) + "." + strconv.FormatUint(k.serial, 36)
}

// account is what this node holds of one root.
type account struct {
	name           string
	total, granted int

	mu      sync.Mutex
	balance int       // units debited and not yet taken
	slice   int       // size of the next debit
	left    int       // in the store, as last seen
	empty   time.Time // until when the store need not be asked
	waiting int       // takers that wait for the debit in flight
	flight  *flight   // nil when no debit is in flight
}

// flight is one debit that all takers of the moment share.
type flight struct {
	done chan struct{}
	err  error // set before done is closed
}

var errEmpty = errors.New("causal: the account is empty")

// take takes one unit, from the balance or by a debit from the store. It
// returns errEmpty, ctx's error, or the store's.
func (l *ledger) take(ctx context.Context, a *account) error {
	a.mu.Lock()
	for {
		switch {
		case a.balance > 0:
			a.balance--
			a.mu.Unlock()
			return nil
		case l.now().Before(a.empty):
			a.mu.Unlock()
			return errEmpty
		case a.flight == nil:
			if err := l.debit(ctx, a); err != nil {
				a.mu.Unlock()
				return err
			}
		default:
			if err := a.wait(ctx); err != nil {
				a.mu.Unlock()
				return err
			}
		}
	}
}

// wait waits for the debit in flight. It is called and returns with a locked.
// The end of another taker's context is not an error for this one.
func (a *account) wait(ctx context.Context) error {
	f := a.flight
	a.waiting++
	a.mu.Unlock()
	var err error
	select {
	case <-f.done:
		if f.err != nil && !isCanceled(f.err) {
			err = f.err
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	a.mu.Lock()
	a.waiting--
	return err
}

// debit fetches a slice. It is called and returns with a locked, and lets go of
// it while the store works. What a transaction in doubt may have debited is
// lost.
func (l *ledger) debit(ctx context.Context, a *account) error {
	f := &flight{done: make(chan struct{})}
	a.flight = f
	want := a.want()
	a.mu.Unlock()

	var got, left int
	now := l.now()
	err := l.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		var err error
		if got, err = tx.Gas.Debit(ctx, a.name, a.total, a.granted, want, now); err != nil {
			return err
		}
		row, err := tx.Gas.Get(ctx, a.name)
		left = row.Total - row.Debited
		return err
	})

	a.mu.Lock()
	a.flight, f.err = nil, err
	close(f.done)
	if err != nil {
		return err
	}
	a.left = left
	if got <= 0 {
		a.empty = now.Add(emptyFor)
		return nil
	}
	a.balance += got
	a.slice = min(2*a.slice, lastSlice)
	return nil
}

// want sizes a debit: larger as the root goes on, smaller near its end, where
// other nodes need a share, and never less than what waits here.
func (a *account) want() int {
	return max(1+a.waiting, min(a.slice, a.left/4))
}

func (a *account) giveBack() {
	a.mu.Lock()
	a.balance++
	a.mu.Unlock()
}

func isCanceled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || headgate.CodeOf(err) == headgate.CodeCanceled
}

// Account is the gas of one root as this node knows it.
type Account struct {
	Root string
	// Total is the root's gas. Debited is what left the store's account, the
	// grant included; Local what this node still holds of it.
	Total, Debited, Local int
	// Known is false when nothing is known, as no event of the root is left.
	Known bool
}

// Left returns how many events the root may still have, as far as this node
// can tell: what other nodes hold is not in it.
func (a Account) Left() int { return a.Total - a.Debited + a.Local }

// Gas returns the account of the root that the event belongs to; any event of
// the tree will do. Errors: invalid_argument for an event without lineage, and
// those of the store.
func (e *Engine) Gas(ctx context.Context, ev *headgate.Event) (Account, error) {
	lin, err := parseLineage(ev.Header.Lineage)
	if err != nil {
		return Account{}, headgate.NewError(headgate.CodeInvalidArgument, "the event carries no lineage: %v", err)
	}
	acct := Account{Root: ev.Header.RootID, Total: lin.total, Debited: lin.granted, Known: true}
	err = e.cfg.Store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		row, err := tx.Gas.Get(ctx, accountName(acct.Root, lin.account))
		if headgate.CodeOf(err) == headgate.CodeNotFound {
			return nil
		}
		acct.Total, acct.Debited = row.Total, row.Debited
		return err
	})
	if err != nil {
		return Account{}, err
	}
	acct.Local = e.ledger.local(&lin)
	return acct, nil
}
