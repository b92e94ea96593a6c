package pgrelay

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/headgate/headgate/relay"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// read repairs what has to be, then streams until the connection ends.
func (x *session) read(ctx context.Context) error {
	if x.repairing {
		if err := x.repair(ctx); err != nil {
			return err
		}
	}
	err := pglogrepl.StartReplication(ctx, x.repl, x.slot, 0, pglogrepl.StartReplicationOptions{
		Mode:       pglogrepl.LogicalReplication,
		PluginArgs: x.src.pluginArgs(),
	})
	if err != nil {
		return sqlError("starting the stream", err)
	}
	if err := x.sameSlot(ctx); err != nil {
		return err
	}
	x.seen.Store(x.flush.Load())
	x.moved()
	x.flowing.Store(true)
	x.work.Go(func() { x.end(x.statuses(ctx)) })
	d := decoder{relations: map[uint32]*relation{}}
	for {
		msg, err := x.repl.ReceiveMessage(context.Background()) // the socket is closed to end it
		if err != nil {
			return streamError(ctx, err)
		}
		switch m := msg.(type) {
		case *pgproto3.CopyData:
			if err := x.take(ctx, &d, m.Data); err != nil {
				if errors.Is(err, errForm) {
					x.src.asText.Store(true)
				}
				return err
			}
		case *pgproto3.ErrorResponse:
			return x.refused(ctx, pgconn.ErrorResponseToPgError(m))
		case *pgproto3.NoticeResponse:
			if skipped(m) {
				e := pgconn.ErrorResponseToPgError((*pgproto3.ErrorResponse)(m))
				e.Code = undefinedObject
				return x.refused(ctx, e)
			}
		}
	}
}

// pluginArgs are those of the server's decoder. In binary form a payload has half
// the bytes.
func (s *Source) pluginArgs() []string {
	args := []string{"proto_version '1'", "publication_names '" + Publication + "'", "messages 'true'"}
	if !s.asText.Load() {
		args = append(args, "binary 'true'")
	}
	return args
}

// undefinedObject is the SQLSTATE of a publication that does not exist where the
// server reads.
const undefinedObject = "42704"

// undefinedFunction is the SQLSTATE of a value that has no binary form: of a type
// without a send function, or made of one. It may be of any table in the
// publication, also of one that is none of ours.
const undefinedFunction = "42883"

// skipped reports whether the server leaves rows out, for want of the
// publication where it reads: since PostgreSQL 18 that is a warning, ahead of
// what follows, where it was an error before. Words are translated, names are
// not.
func skipped(m *pgproto3.NoticeResponse) bool {
	return m.Code == "55000" && strings.Contains(m.Message, Publication) // object_not_in_prerequisite_state
}

// sameSlot fails unless the slot, which nobody can drop any more, stands where
// this session has left it: where a status may start.
func (x *session) sameSlot(ctx context.Context) error {
	x.sqlMu.Lock()
	defer x.sqlMu.Unlock()
	slot, err := readSlot(ctx, x.sql, x.slot)
	if err != nil {
		return err
	}
	if slot == nil {
		return slotGone(x.slot)
	}
	if x.advanced.Load() { // since the repair ended; its reason is noted
		return errors.New("pgrelay: the slot was advanced before the stream began; the table is read again")
	}
	left := pglogrepl.LSN(x.flush.Load())
	if slot.confirmed == left {
		return nil
	}
	reason := movedReason(slot.confirmed, left)
	if err := x.setRepair(ctx, reason); err != nil {
		return err
	}
	return errors.New("pgrelay: " + reason)
}

// refused is why the server does not send the log. It looks for the publication
// as of each row, so that one made after the slot stops at the rows between for
// ever: those are read from the table.
func (x *session) refused(ctx context.Context, e *pgconn.PgError) error {
	if e.Code == undefinedFunction && !x.src.asText.Swap(true) {
		return fmt.Errorf("pgrelay: the stream is read as text from now on: %w", sqlError("reading the log", e))
	}
	if untold(e) {
		return x.untoldInLog(ctx)
	}
	if e.Code != undefinedObject {
		return sqlError("reading the log", e)
	}
	x.sqlMu.Lock()
	defer x.sqlMu.Unlock()
	var there bool
	if err := x.sql.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1)`, Publication).Scan(&there); err != nil || !there {
		return errors.Join(sqlError("reading the log", e), err)
	}
	const reason = "the publication is younger than the slot: what was written before it is not in the stream"
	if err := x.setRepair(ctx, reason); err != nil {
		return err
	}
	return errors.New("pgrelay: " + reason)
}

func streamError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return sqlError("reading the log", err)
}

// take handles one message of the stream.
func (x *session) take(ctx context.Context, d *decoder, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	switch data[0] {
	case pglogrepl.PrimaryKeepaliveMessageByteID:
		k, err := pglogrepl.ParsePrimaryKeepaliveMessage(data[1:])
		if err != nil {
			return err
		}
		if k.ServerWALEnd != d.told { // at first it lies before the slot's position
			d.told = k.ServerWALEnd
			x.moved()
		}
		x.seen.Store(max(x.seen.Load(), uint64(k.ServerWALEnd)))
		if k.ReplyRequested {
			x.tell()
		}
		if d.open {
			return nil // it may lie behind rows of the transaction
		}
		return x.deliver(ctx, d, relay.Change{Kind: relay.Idle, Position: relay.Position(k.ServerWALEnd)})
	case pglogrepl.XLogDataByteID:
		w, err := pglogrepl.ParseXLogData(data[1:])
		if err != nil {
			return err
		}
		x.seen.Store(max(x.seen.Load(), uint64(w.ServerWALEnd)))
		x.moved()
		c, err := d.decode(w.WALData)
		if err != nil || c.Kind == 0 {
			return err
		}
		if c.Kind == relay.Beat {
			now := x.ours(ctx, &c.Mark)
			if now == nil {
				return nil
			}
			if err := x.sendsAll(ctx, now); err != nil {
				return err
			}
		}
		return x.deliver(ctx, d, c)
	}
	return nil
}

// beatPrefix names our messages in the log.
const beatPrefix = "headgate.beat"

// beatBytes is what a heartbeat has at most: its snapshot may name every
// transaction that was open.
const beatBytes = 4 << 20

// beat is the content of a heartbeat.
type beat struct {
	Slot     string  `json:"slot"`
	Beat     int64   `json:"beat"`
	Snapshot string  `json:"snapshot"`
	Nth      int64   `json:"nth"` // of the session's heartbeats
	Token    string  `json:"token"`
	At       int64   `json:"at"` // elapsed in the session
	Sending  sending `json:"sending"`
}

// snapshotText is the form of a pg_snapshot.
var snapshotText = regexp.MustCompile(`^[0-9]{1,20}:[0-9]{1,20}:[0-9,]*$`)

// token returns what tells the nth heartbeat of this session from a message that
// somebody else wrote: every login of the database may write messages of any
// prefix and content. It is of use once, and says nothing about the next.
func (x *session) token(nth int64) string {
	mac := hmac.New(sha256.New, x.secret[:])
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(nth)))
	return hex.EncodeToString(mac.Sum(nil))
}

// ours fills in a mark from its message, if this session wrote it, and returns
// what was sent when it did; nil: it did not. Heartbeats of
// earlier sessions prove nothing that the next own one does not, and pass by as
// everything else that bears the prefix. Only the reader calls it.
func (x *session) ours(ctx context.Context, m *relay.Mark) *sending {
	var b beat
	own := len(m.Text) <= beatBytes && json.Unmarshal([]byte(m.Text), &b) == nil && b.Slot == x.slot &&
		b.Nth > x.returned && b.Nth <= x.sent.Load() && hmac.Equal([]byte(b.Token), []byte(x.token(b.Nth)))
	if !own || b.Beat <= 0 || !snapshotText.MatchString(b.Snapshot) {
		if !x.strange {
			x.strange = true
			x.cfg.Log.DebugContext(ctx, "heartbeats in the log that are not this session's are passed over", "slot", x.slot)
		}
		return nil
	}
	x.returned = b.Nth
	x.roundTrip.Store(x.elapsed() - b.At)
	*m = relay.Mark{Number: b.Beat, Text: proofOf(b.Snapshot, &b.Sending)}
	return &b.Sending
}

// proofOf is the text of a mark: the snapshot, and what was sent as of it.
func proofOf(snapshot string, s *sending) string {
	if s == nil {
		return snapshot
	}
	return snapshot + " " + s.text()
}

// decoder reads pgoutput, protocol version 1 (PostgreSQL documentation, 55.9).
type decoder struct {
	relations map[uint32]*relation
	open      bool
	committed time.Time
	xid       uint32        // of the last transaction
	final     pglogrepl.LSN // of its commit
	told      pglogrepl.LSN // by the last keepalive
}

func (d *decoder) decode(data []byte) (relay.Change, error) {
	if len(data) > 0 && pglogrepl.MessageType(data[0]) == pglogrepl.MessageTypeInsert {
		return d.insert(data[1:])
	}
	msg, err := pglogrepl.Parse(data)
	if err != nil {
		return relay.Change{}, fmt.Errorf("pgrelay: a message of the log cannot be read: %w", err)
	}
	switch m := msg.(type) {
	case *pglogrepl.BeginMessage:
		d.open, d.committed, d.xid, d.final = true, m.CommitTime, m.Xid, m.FinalLSN
		return relay.Change{Kind: relay.Begin}, nil
	case *pglogrepl.CommitMessage:
		d.open = false
		return relay.Change{Kind: relay.Commit, Position: relay.Position(m.TransactionEndLSN)}, nil
	case *pglogrepl.RelationMessage:
		d.relations[m.RelationID] = relationOf(m)
	case *pglogrepl.LogicalDecodingMessage:
		if m.Prefix == beatPrefix && m.Transactional {
			return relay.Change{Kind: relay.Beat, Mark: relay.Mark{Text: string(m.Content)}}, nil
		}
	}
	return relay.Change{}, nil
}

// insert reads a row: relation, 'N', and the tuple. It is read here, since a
// general reader copies each value twice.
func (d *decoder) insert(data []byte) (relay.Change, error) {
	if len(data) < 5 || data[4] != 'N' {
		return relay.Change{}, errTuple
	}
	id := binary.BigEndian.Uint32(data)
	rel := d.relations[id]
	if rel == nil {
		return relay.Change{}, fmt.Errorf("pgrelay: a row of the unknown relation %d", id)
	}
	if !rel.ours {
		return relay.Change{}, nil
	}
	var s streamed
	if err := s.take(rel, data[5:]); err != nil {
		return relay.Change{}, err
	}
	return relay.Change{Kind: relay.Insert, Row: rowOf(&s, d.committed)}, nil
}
