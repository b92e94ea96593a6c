package pgrelay

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Times of status messages.
const (
	statusEvery = time.Second             // at least, and four times within the timeout of the server
	statusPause = 20 * time.Millisecond   // between two, however much is confirmed
	statusSize  = 1 + 8 + 8 + 8 + 8 + 1   // PostgreSQL documentation, 55.4 (streaming replication protocol)
	pgEpoch     = 946684800 * 1000 * 1000 // microseconds from 1970 to 2000
)

// encodeStatus writes a standby status update. A zero position would be taken
// for "as far as was written" by careless encoders, so it is an error.
// With ask the server answers at once.
func encodeStatus(written, flushed, applied pglogrepl.LSN, now time.Time, ask bool) ([]byte, error) {
	if written == 0 || flushed == 0 || applied == 0 {
		return nil, errors.New("pgrelay: a status without a position would confirm what was only received")
	}
	b := make([]byte, 0, statusSize)
	b = append(b, pglogrepl.StandbyStatusUpdateByteID)
	b = binary.BigEndian.AppendUint64(b, uint64(written))
	b = binary.BigEndian.AppendUint64(b, uint64(flushed))
	b = binary.BigEndian.AppendUint64(b, uint64(applied))
	b = binary.BigEndian.AppendUint64(b, uint64(now.UnixMicro()-pgEpoch))
	if ask {
		return append(b, 1), nil
	}
	return append(b, 0), nil
}

// statuses tells the server how far everything is done: every second, when the
// server asks, and soon after the position rose. It is the only writer on the
// replication connection once the stream runs.
func (x *session) statuses(ctx context.Context) error {
	tick := time.NewTicker(x.statusEvery)
	defer tick.Stop()
	for {
		if err := x.sendStatus(); err != nil {
			return err
		}
		select {
		case <-x.nudge:
		case <-tick.C:
			continue
		case <-ctx.Done():
			return nil
		}
		// What is confirmed meanwhile goes with it.
		pause := time.NewTimer(statusPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil
		}
	}
}

// sendStatus tells how far everything is done, but never past where
// the last heartbeat was written that the database keeps, except at the end, which
// is noted: so a slot that stands behind it was moved by somebody else.
func (x *session) sendStatus() error {
	flush := pglogrepl.LSN(x.flush.Load())
	if !x.leaving.Load() {
		flush = min(flush, pglogrepl.LSN(x.noted.Load()))
	}
	// A server that decodes a large transaction says nothing by itself: its
	// answer tells how far it has come.
	ask := x.elapsed()-x.movedAt.Load() > int64(x.cfg.Beat)
	b, err := encodeStatus(max(flush, pglogrepl.LSN(x.seen.Load())), flush, flush, x.cfg.Now(), ask)
	if err != nil {
		return err
	}
	msg, err := (&pgproto3.CopyData{Data: b}).Encode(nil)
	if err != nil {
		return err
	}
	if err := x.repl.Frontend().SendUnbufferedEncodedCopyData(msg); err != nil {
		return sqlError("sending a status", err)
	}
	return nil
}
