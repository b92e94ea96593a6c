package relay

import (
	"context"
	"time"

	"github.com/headgate/headgate"
)

// Source is the log of one database that holds an outbox. Drivers implement it.
type Source interface {
	// Open waits until this process leads, that is until no other relay reads
	// the same log, and starts a session. It returns ctx's error when ctx ends
	// first.
	Open(ctx context.Context) (Session, error)
}

// Session reads a log as its only reader. Receive is called by one goroutine,
// Confirm and Prove by another.
type Session interface {
	// Receive returns the next changes in the order of the log, at least one,
	// and waits until there are any.
	Receive(ctx context.Context) ([]Change, error)
	// Confirm says that everything before the position is done, so that the
	// source may forget it. Positions never fall. It does not block.
	Confirm(Position)
	// Prove keeps durably that everything before the mark is done. Positions
	// behind the mark are confirmed only after it returned nil.
	Prove(ctx context.Context, m Mark) error
	// Lead returns an error when this session may have been superseded, so that
	// nothing more may be submitted. It does not block.
	Lead() error
	// Close confirms what there is to confirm, waits until the source has
	// taken it, and ends the session. When ctx ends first it ends at once.
	Close(ctx context.Context) error
}

// Position is a place in a log. Greater is later; 0 is none.
type Position uint64

// Mark is a point in the log that the source wants proven, made after the session
// began. Its content is the source's.
type Mark struct {
	Number int64
	Text   string
}

// Kind says what a change is.
type Kind uint8

// The kinds of change.
const (
	// Begin opens a transaction. Transactions do not overlap.
	Begin Kind = iota + 1
	// Insert is one row of the open transaction.
	Insert
	// Beat is a mark, inside or outside of a transaction.
	Beat
	// Commit ends the open transaction. Position is where the next one may
	// begin, or 0 when nothing is to be confirmed for it.
	Commit
	// Idle says that the log holds nothing more for us before Position.
	Idle
	// Stage is a mark in the midst of what the session before had in flight: unlike
	// Beat it says nothing of what may be read again.
	Stage
	// Present says that the log was read to where it ended when the session
	// began. Before it, or the first mark, nothing that was set aside is read
	// again: what the session before had in flight may stand before it.
	Present
)

// Change is one step of a log.
type Change struct {
	Kind     Kind
	Row      *Row
	Mark     Mark
	Position Position
}

// Row is one event as a committed transaction wrote it.
type Row struct {
	// Seq is its number in the outbox, by which it can be read again; never for
	// confirming.
	Seq int64
	// Role is the database role that wrote it.
	Role string
	// Cause is the causal token that the transaction had set; empty for a root.
	Cause string
	// Origin is the class of a root when the database wrote the row by itself
	// (change); empty means the principal's.
	Origin headgate.Origin
	// Written is when the row was written, by the clock of the database;
	// Committed when its transaction was committed, by the clock of the node.
	Written, Committed time.Time
	// Event is the event. The relay submits copies of it.
	Event *headgate.Event
	// Err is why the row holds no event; Raw is what it holds then.
	Err *headgate.Error
	Raw []byte
}

// size is what the row counts for while it is in flight.
func (r *Row) size() int {
	n := len(r.Raw) + len(r.Cause) + 512
	if r.Event != nil {
		n += len(r.Event.Data)
	}
	return n
}
