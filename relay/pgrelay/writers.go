package pgrelay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/relay"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

// writers are transactions that had written to the outbox, and had not ended,
// after the slot was set to where it stands. Nearly all of them commit behind that
// and come in the stream. But one whose commit the log tells already counts as
// open until its standby has answered, and for a moment in any case: if the slot
// stands behind that commit, the stream does not have it and no pass has seen it.
// Which of the two one is can only be told once it has ended. A repair waits for
// them a little; with those that stay the stream begins, and the repair ends when
// each was found in the stream, or has ended without a row.
//
// Nothing is handed on that may depend on one that was not found: of a
// transaction in the stream it is known that all of them were open when it was
// committed, or what follows is held until it is known what they were.
type writers struct {
	open   map[uint32]bool // by the low half of their numbers
	seen   pglogrepl.LSN   // all of open had not ended when the log had come to here
	ended  map[uint32]bool // not found in the stream yet
	until  pglogrepl.LSN   // where they have come if they do
	held   []step
	size   int64
	reason string // as it is noted
}

// Whoever writes holds a lock of the table, and one of its own number, until
// others see what it wrote, and longer. Subtransactions have numbers, too; the oldest is the
// transaction's.
const openWriters = `
	SELECT DISTINCT ON (o.virtualtransaction) t.transactionid::text::bigint
	FROM pg_locks o JOIN pg_locks t ON t.virtualtransaction = o.virtualtransaction AND t.locktype = 'transactionid' AND t.mode = 'ExclusiveLock' AND t.granted
	WHERE o.locktype = 'relation' AND o.mode = 'RowExclusiveLock' AND o.granted AND o.database = (SELECT oid FROM pg_database WHERE datname = current_database())
	  AND (o.relation = 'headgate.outbox'::regclass OR o.relation IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'headgate.outbox'::regclass))
	ORDER BY o.virtualtransaction, age(t.transactionid) DESC`

// A transaction has ended once others see what it wrote: a snapshot says that. Its
// locks do not, which it holds for a while longer, as long as it has files to
// remove: a heartbeat of that while sees what it wrote. The upper half of a number
// is that by which it is nearest to the snapshot's.
const stillOpen = `
	SELECT n FROM unnest($1::bigint[]) n, (SELECT s, pg_snapshot_xmax(s)::text::bigint AS most FROM pg_current_snapshot() s) c
	WHERE NOT pg_visible_in_snapshot((n + ((most - n + 2147483648) >> 32 << 32))::text::xid8, s)`

// openPrefix begins the reason of a repair that waits for writers.
const openPrefix = "what these transactions wrote is not known to be in the log, and they have not ended: "

// transactions asks for numbers of transactions.
func (x *session) transactions(ctx context.Context, sql string, args ...any) (map[uint32]bool, error) {
	x.sqlMu.Lock()
	defer x.sqlMu.Unlock()
	rows, _ := x.sql.Query(ctx, sql, args...) // an error is that of the rows
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, sqlError("asking who writes", err)
	}
	all := make(map[uint32]bool, len(numbers))
	for _, n := range numbers {
		all[uint32(n)] = true
	}
	return all, nil
}

func (x *session) stillOpen(ctx context.Context, of map[uint32]bool) (map[uint32]bool, error) {
	return x.transactions(ctx, stillOpen, numbers(of))
}

// numbers are those of a set, in order.
func numbers(set map[uint32]bool) []int64 {
	all := make([]int64, 0, len(set))
	for n := range set {
		all = append(all, int64(n))
	}
	slices.Sort(all)
	return all
}

// settleEvery is how often it is looked whether writers have ended.
const settleEvery = 20 * time.Millisecond

// settle waits, for one beat at most, until all have ended that write now, and
// returns those that have not. The slot stands where the repair begins: who writes
// later is in the stream.
func (x *session) settle(ctx context.Context) (map[uint32]bool, error) {
	open, err := x.transactions(ctx, openWriters)
	if err != nil || len(open) == 0 {
		return nil, err
	}
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	for end := x.elapsed() + int64(x.cfg.Beat); len(open) > 0 && x.elapsed() < end; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if open, err = x.stillOpen(ctx, open); err != nil {
			return nil, err
		}
	}
	return open, nil
}

// awaitWriters notes that the repair waits for them.
func (x *session) awaitWriters(ctx context.Context, open map[uint32]bool) error {
	const shown = 20
	names := make([]string, 0, shown)
	for _, n := range numbers(open)[:min(len(open), shown)] {
		names = append(names, strconv.FormatInt(n, 10))
	}
	reason := openPrefix + strings.Join(names, ", ")
	if len(open) > shown {
		reason += fmt.Sprintf(" and %d more", len(open)-shown)
	}
	x.cfg.Log.WarnContext(ctx, "outbox is read from the log, but its repair waits for transactions that have not ended", "slot", x.slot, "reason", reason)
	if err := x.setRepair(ctx, reason); err != nil {
		return err
	}
	x.writers = &writers{open: open, reason: reason}
	return nil
}

// step is a change of the stream, and of which transaction.
type step struct {
	change relay.Change
	xid    uint32
	final  pglogrepl.LSN // of its commit
}

// deliver hands on what the stream brings, in its order. While the repair waits
// for writers, what may depend on one of them is held back.
func (x *session) deliver(ctx context.Context, d *decoder, c relay.Change) error {
	w := x.writers
	if w == nil {
		return x.push(ctx, c)
	}
	for next := []step{{c, d.xid, d.final}}; len(next) > 0; {
		s := next[0]
		known, err := x.judge(ctx, w, &s)
		switch {
		case err != nil:
			return err
		case !known:
			err = w.hold(s)
		case len(w.held) > 0: // it goes first
			next = slices.Concat(w.held, next)
			w.held, w.size = nil, 0
			continue
		default:
			err = x.push(ctx, s.change)
		}
		if err != nil {
			return err
		}
		next = next[1:]
	}
	if len(w.open) > 0 || len(w.ended) > 0 {
		return nil
	}
	x.writers = nil
	_, err := x.endRepair(ctx, w.reason)
	return err
}

// judge reports whether a change does not depend on a writer of whom it is not
// known what it was.
func (x *session) judge(ctx context.Context, w *writers, s *step) (bool, error) {
	begins := s.change.Kind == relay.Begin
	if begins {
		w.found(s.xid)
		if len(w.ended) == 0 && len(w.open) > 0 && s.final > w.seen {
			if err := x.look(ctx, w); err != nil {
				return false, err
			}
			w.found(s.xid)
		}
	}
	if len(w.ended) > 0 && (begins && s.final > w.until || s.change.Kind == relay.Idle && s.change.Position >= relay.Position(w.until)) {
		if err := x.without(ctx, w); err != nil {
			return false, err
		}
	}
	return len(w.ended) == 0, nil
}

// found notes that the stream has a transaction.
func (w *writers) found(xid uint32) {
	delete(w.open, xid)
	delete(w.ended, xid)
}

// look finds out who has ended. That the log had come to seen before, and until
// after, is what counts: the order of the statements is. Who is not seen by then
// is seen by no heartbeat up to seen, since its snapshot was taken before.
func (x *session) look(ctx context.Context, w *writers) error {
	ctx, cancel := context.WithTimeout(ctx, 2*x.cfg.Beat)
	defer cancel()
	before, err := x.logEnd(ctx)
	if err != nil {
		return err
	}
	open, err := x.stillOpen(ctx, w.open)
	if err != nil {
		return err
	}
	w.seen = before
	if len(open) == len(w.open) {
		return nil
	}
	w.ended = w.open
	w.open = open
	for n := range open {
		delete(w.ended, n)
	}
	w.until, err = x.logEnd(ctx)
	return err
}

// logEnd is behind every record that was written so far.
func (x *session) logEnd(ctx context.Context) (pglogrepl.LSN, error) {
	x.sqlMu.Lock()
	defer x.sqlMu.Unlock()
	var text string
	if err := x.sql.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text`).Scan(&text); err != nil {
		return 0, sqlError("asking where the log ends", err)
	}
	return pglogrepl.ParseLSN(text)
}

// without deals with those that have ended and that the stream does not have: most
// were rolled back. Of one that was not the table is read, as by a session that
// begins anew, in the order of the numbers.
func (x *session) without(ctx context.Context, w *writers) error {
	x.waiting.Store(true) // to look at the whole table may take long
	defer func() {
		x.moved() // the log was not at fault
		x.waiting.Store(false)
	}()
	table, err := x.beside(ctx)
	if err != nil {
		return err
	}
	defer leave(table)
	var wrote bool
	err = table.QueryRow(ctx, `SELECT EXISTS (SELECT FROM headgate.outbox WHERE xid::xid::text::bigint = ANY ($1))`, numbers(w.ended)).Scan(&wrote)
	if err != nil {
		return sqlError("looking for rows that the log does not have", err)
	}
	if wrote {
		return errors.New("pgrelay: a transaction has ended that was told before the slot and could not be seen: the table is read again")
	}
	w.ended = nil
	return nil
}

// heldChanges bounds what is held beside its bytes.
const heldChanges = 1 << 16

// hold keeps a change until it is known who has ended.
func (w *writers) hold(s step) error {
	w.size += sizeOf(&s.change)
	if w.size > queueBytes || len(w.held) >= heldChanges {
		return errors.New("pgrelay: too much of the log is held for transactions that have ended: the table is read again")
	}
	w.held = append(w.held, s)
	return nil
}
