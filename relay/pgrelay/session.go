package pgrelay

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/relay"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// session is one lead. It implements [relay.Session].
type session struct {
	src *Source
	cfg Config

	slot     string
	server   int // version, as 170005
	revision int // of what is installed
	systemID string
	timeline int
	epoch    int64

	repl *pgconn.PgConn // the lock and the stream

	sqlMu sync.Mutex // one statement at a time
	sql   *pgx.Conn

	repairing bool
	snapshot  *string // what a repair goes back to; nil: the whole table
	advanced  atomic.Bool
	missed    map[int64]uint64 // rows set aside that cannot be seen, and the transactions before which they were written
	proven    chan relay.Mark  // a proven repair
	sends     *sending         // as of the last heartbeat, or what the database has of the last proof; the reader's
	writers   *writers         // for whom the repair waits while the stream runs; the reader's

	secret   [32]byte     // of the heartbeats, which it alone can tell
	sent     atomic.Int64 // heartbeats of this session
	returned int64        // the last of them that came back; the reader's
	strange  bool         // something only looked like one, which was told; the reader's

	changes chan relay.Change
	queued  atomic.Int64  // bytes of rows that were read and that the relay has not dealt with
	room    chan struct{} // queued fell
	taken   int64         // bytes of the last batch; the receiver's
	waiting atomic.Bool   // the reader waits for the relay to take changes

	flush   atomic.Uint64 // confirmed, to be told
	noted   atomic.Uint64 // where the last heartbeat was written, as it is kept in the database
	leaving atomic.Bool   // all that is confirmed is told, and then noted
	seen    atomic.Uint64 // received
	nudge   chan struct{} // tell now
	base    time.Time     // what elapsed counts from
	renewed atomic.Int64  // elapsed when the epoch was renewed
	movedAt atomic.Int64  // elapsed when the log last moved on, or nothing was owed
	flowing atomic.Bool   // the stream runs

	ahead     atomic.Int64 // of the database's clock before this node's, in nanoseconds
	roundTrip atomic.Int64 // of the last heartbeat
	log       atomic.Pointer[relay.LogStatus]
	why       atomic.Pointer[string] // of the repair under way

	statusEvery time.Duration

	ctx  context.Context // of the session's goroutines; ends with the session
	fail context.CancelCauseFunc
	work sync.WaitGroup
}

// elapsed is the time since the session opened, by the monotonic clock: a
// process that was stopped, or a clock that was set back, must not extend it.
func (x *session) elapsed() int64 { return int64(x.cfg.Now().Sub(x.base)) }

// moved notes that the log goes on. Between two heartbeats it does, however
// long a transaction is that stands before the second.
func (x *session) moved() { x.movedAt.Store(x.elapsed()) }

// begin starts what runs beside Receive.
func (x *session) begin(ctx context.Context) {
	x.ctx, x.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	x.proven = make(chan relay.Mark, 1)
	x.moved()
	x.work.Go(func() { x.end(x.read(x.ctx)) })
	x.work.Go(func() { x.end(x.beats(x.ctx)) })
	x.work.Go(func() { x.upkeep(x.ctx) })
}

// end fails the session for the first reason.
func (x *session) end(err error) {
	if err == nil {
		err = errors.New("pgrelay: the session ended")
	}
	x.fail(err)
}

// queueBytes bounds the rows between the reader and the relay. A larger one goes
// alone.
const queueBytes = 16 << 20

// sizeOf is what a change counts for in the queue.
func sizeOf(c *relay.Change) int64 {
	if c.Row == nil {
		return 0
	}
	n := len(c.Row.Raw) + len(c.Row.Cause) + 512
	if e := c.Row.Event; e != nil {
		n += len(e.Data)
	}
	return int64(n)
}

// Receive implements [relay.Session]. Whoever asks for the next batch has dealt
// with the last.
func (x *session) Receive(ctx context.Context) ([]relay.Change, error) {
	x.queued.Add(-x.taken)
	x.taken = 0
	select {
	case x.room <- struct{}{}:
	default:
	}
	var first relay.Change
	select {
	case first = <-x.changes:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-x.ctx.Done():
		return nil, context.Cause(x.ctx)
	}
	batch := append(make([]relay.Change, 0, 1+len(x.changes)), first)
	for len(batch) < cap(batch) {
		batch = append(batch, <-x.changes)
	}
	for i := range batch {
		x.taken += sizeOf(&batch[i])
	}
	return batch, nil
}

// push hands a change to the relay. Only the reader calls it. Commits are told
// by the clock of this node: what is compared with them is.
func (x *session) push(ctx context.Context, c relay.Change) error {
	if c.Kind == relay.Insert {
		c.Row.Committed = c.Row.Committed.Add(-time.Duration(x.ahead.Load()))
	}
	size := sizeOf(&c)
	if x.fits(size) {
		x.queued.Add(size)
		select {
		case x.changes <- c:
			return nil
		default:
			x.queued.Add(-size)
		}
	}
	x.waiting.Store(true)
	defer func() {
		x.moved() // the log was not at fault
		x.waiting.Store(false)
	}()
	for !x.fits(size) {
		select {
		case <-x.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	x.queued.Add(size)
	select {
	case x.changes <- c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fits reports whether a row of that size has room in the queue.
func (x *session) fits(size int64) bool {
	queued := x.queued.Load()
	return queued == 0 || queued+size <= queueBytes
}

// Confirm implements [relay.Session].
func (x *session) Confirm(pos relay.Position) {
	for {
		old := x.flush.Load()
		if uint64(pos) <= old {
			return
		}
		if x.flush.CompareAndSwap(old, uint64(pos)) {
			break
		}
	}
	x.tell()
}

func (x *session) tell() {
	select {
	case x.nudge <- struct{}{}:
	default:
	}
}

// Lead implements [relay.Session]: by this machine's monotonic clock the epoch
// was renewed within two beats, while others wait for three.
func (x *session) Lead() error {
	if x.ctx.Err() != nil {
		return context.Cause(x.ctx)
	}
	if x.elapsed()-x.renewed.Load() > int64(2*x.cfg.Beat) {
		return errors.New("pgrelay: the lead was not renewed in time")
	}
	return nil
}

// Close implements [relay.Session].
func (x *session) Close(ctx context.Context) error {
	var err error
	if x.flowing.Load() && x.Lead() == nil {
		err = x.handOver(ctx)
	}
	x.fail(errors.New("pgrelay: the session was closed"))
	x.disconnect()
	x.work.Wait()
	return err
}

// handOver waits until the slot stands where everything is confirmed, and
// writes that down: the next relay can tell whether anybody moved it.
func (x *session) handOver(ctx context.Context) error {
	target := pglogrepl.LSN(x.flush.Load())
	if target == 0 {
		return nil
	}
	x.leaving.Store(true)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		x.tell()
		// Whoever has the connection may wait for a network that is silent.
		if x.sqlMu.TryLock() {
			slot, err := readSlot(ctx, x.sql, x.slot)
			x.sqlMu.Unlock()
			switch {
			case err != nil:
				return err
			case slot == nil:
				return errors.New("pgrelay: the slot is gone")
			case slot.confirmed >= target:
				return x.noteStop(ctx, slot.confirmed)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-x.ctx.Done():
			return context.Cause(x.ctx)
		}
	}
}

// noteStop ends the stream first: until then the slot may still move.
func (x *session) noteStop(ctx context.Context, at pglogrepl.LSN) error {
	x.flush.Store(uint64(at)) // no later position may be told
	x.sqlMu.Lock()
	defer x.sqlMu.Unlock()
	_, err := x.sql.Exec(ctx, `
		UPDATE headgate.relay_state SET stopped_lsn = r.confirmed_flush_lsn
		FROM pg_replication_slots r WHERE slot = $1 AND r.slot_name = $1 AND epoch = $2`, x.slot, x.epoch)
	if err != nil {
		return sqlError("noting the end", err)
	}
	return nil
}

// disconnect closes both connections without waiting for the server.
func (x *session) disconnect() {
	now, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if x.repl != nil {
		_ = x.repl.Conn().Close() // a reader may use it: only the socket is closed
	}
	if x.sql != nil {
		x.sqlMu.Lock()
		_ = x.sql.Close(now) // the server ends the session either way
		x.sqlMu.Unlock()
	}
}
