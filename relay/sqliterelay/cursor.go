package sqliterelay

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/headgate/headgate/relay"
)

// Confirm implements [relay.Session].
func (x *session) Confirm(pos relay.Position) {
	x.mu.Lock()
	n := 0
	for n < len(x.unsettled) && x.unsettled[n].seq <= int64(pos) {
		n++
	}
	if n > 0 {
		x.confirmed = x.unsettled[n-1]
		x.unsettled = x.unsettled[n:]
		if len(x.unsettled) == 0 {
			x.unsettled = nil // give the array back after a burst
		}
	}
	x.mu.Unlock()
	select {
	case x.nudge <- struct{}{}:
	default:
	}
}

// due returns what the database is to be told; ok is false when it knows.
func (x *session) due() (to place, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.confirmed, x.confirmed.seq > x.told.seq
}

// cursor moves the confirmed place in the database, at most once in
// cursorEvery, and deletes what is older than it has to be. It is the only one
// that writes once the session began.
func (x *session) cursor(ctx context.Context) {
	defer close(x.ended)
	clean := time.NewTimer(0)
	defer clean.Stop()
	for {
		select {
		case <-x.nudge:
			if err := x.save(ctx); err != nil {
				if ctx.Err() == nil {
					x.fail(err)
				}
				return
			}
		case <-clean.C:
			clean.Reset(x.clean(ctx))
		case <-ctx.Done():
			return
		}
		pause := time.NewTimer(cursorEvery) // what is confirmed meanwhile goes with the next
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// save tells the database how far everything is done. While somebody else
// writes it waits, and more is read again after a crash.
func (x *session) save(ctx context.Context) error {
	return patient(ctx, func() error {
		to, ok := x.due()
		if !ok {
			return nil
		}
		x.cfg.fault("before cursor")
		err := x.move(ctx, to)
		x.cfg.fault("after cursor")
		return err
	})
}

// patient runs fn again while only another writer is in the way, until ctx
// ends. SQLite gives its turn to whoever asks at the right moment, and its own
// busy handler soon asks only every 100 ms: beside a program that writes
// without a pause it would get none for seconds.
func patient(ctx context.Context, fn func() error) error {
	for pause := 100 * time.Microsecond; ; pause = min(pause*2, 2*time.Millisecond) {
		err := fn()
		if err == nil || !busy(err) {
			return err
		}
		wait := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return err
		}
	}
}

// busy reports whether only another writer was in the way. The words are
// SQLite's, the same with every driver.
func busy(err error) bool {
	return strings.Contains(err.Error(), "locked") || strings.Contains(err.Error(), "busy") || strings.Contains(err.Error(), "SQLITE_BUSY")
}

// move moves the confirmed place, provided that the row there is the one that
// was read.
func (x *session) move(ctx context.Context, to place) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	res, err := x.write.ExecContext(ctx, `UPDATE headgate_outbox_state
		SET confirmed = ?, confirmed_id = ?, confirmed_at = ?,
		    repair = CASE WHEN repair_until > ? THEN repair END, repair_until = CASE WHEN repair_until > ? THEN repair_until END
		WHERE epoch = ? AND identity = ? AND EXISTS (SELECT 1 FROM headgate_outbox_rows WHERE seq = ? AND id = ?)`,
		to.seq, to.id, x.cfg.Now().UnixMilli(), to.seq, to.seq, x.epoch, x.identity, to.seq, to.id)
	if err != nil {
		return sqlError("moving the confirmed place", err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return sqlError("moving the confirmed place", err)
	}
	if n == 0 {
		return errSuperseded
	}
	x.mu.Lock()
	x.told = to
	x.mu.Unlock()
	return nil
}

// How much one round of cleaning deletes at most, in statements that leave the
// writer's turn to others in between.
const (
	cleanRows  = 500
	cleanTimes = 20
	cleanEvery = time.Second // while there is more
)

// clean deletes rows that were published and are older than they have to be,
// and says when it wants to be called again. The row at the confirmed place
// stays, as the proof of that place. The file keeps its size: SQLite uses the
// room again.
func (x *session) clean(ctx context.Context) time.Duration {
	cutoff := x.cfg.Now().Add(-x.cfg.Retain).UnixMilli()
	most, cancel := context.WithTimeout(ctx, busyWait) // the cursor must not wait longer for this
	defer cancel()
	for range cleanTimes {
		x.mu.Lock()
		told := x.told.seq
		x.mu.Unlock()
		var n int64
		err := patient(most, func() error {
			x.writing.Lock()
			defer x.writing.Unlock()
			res, err := x.write.ExecContext(ctx, `DELETE FROM headgate_outbox_rows
				WHERE seq < ? AND seq < (SELECT min(seq) FROM headgate_outbox_rows) + ? AND created < ?`+x.butAside(), told, cleanRows, cutoff)
			if err == nil {
				n, err = res.RowsAffected()
			}
			return err
		})
		if err != nil {
			return x.postpone(ctx, err)
		}
		if n == 0 {
			return x.nextClean(ctx, told)
		}
	}
	return cleanEvery
}

// butAside is the condition that spares what waits to be read again.
func (x *session) butAside() string {
	if x.revision < asideRevision {
		return ""
	}
	return ` AND seq < coalesce((SELECT min(page) * 4096 FROM headgate_outbox_aside), 9223372036854775807)`
}

func (x *session) postpone(ctx context.Context, err error) time.Duration {
	if !busy(err) && ctx.Err() == nil {
		x.cfg.Log.WarnContext(ctx, "outbox rows are not deleted; it is tried again within a minute", "database", x.path, "error", err)
		return time.Minute
	}
	return cleanEvery
}

// nextClean is when the oldest row but the confirmed one is old enough, whether
// it is published yet or not: nothing is asked before.
func (x *session) nextClean(ctx context.Context, told int64) time.Duration {
	oldest := x.cfg.Now().UnixMilli()
	x.writing.Lock()
	defer x.writing.Unlock()
	err := x.write.QueryRowContext(ctx, `SELECT coalesce((SELECT created FROM headgate_outbox_rows WHERE seq <> ? ORDER BY seq LIMIT 1), ?)`, told, oldest).Scan(&oldest)
	if err != nil {
		return x.postpone(ctx, err)
	}
	return max(time.UnixMilli(oldest).Add(x.cfg.Retain).Sub(x.cfg.Now())+time.Millisecond, cleanEvery)
}

// Close implements [relay.Session].
func (x *session) Close(ctx context.Context) error {
	x.stop()
	<-x.ended
	var err error
	if x.Lead() == nil {
		err = x.save(ctx)
	}
	x.disconnect()
	return err
}
