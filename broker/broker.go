package broker

import (
	"context"
	"time"

	"github.com/headgate/headgate"
)

// Broker stores streams of events and hands them out. Implementations are safe
// for concurrent use.
type Broker interface {
	Publisher
	Subscriber
	// Caps says what the driver can and cannot do. It is constant.
	Caps() Caps
	// Own makes the streams of this broker belong to the owner when they are
	// nobody's, or from's, and returns whose they are. Of several that call it
	// at once one wins; calling it again changes nothing. Streams that belong to
	// another are refused with streams_foreign. Without an owner it only asks;
	// the answer's Owner is empty when they are nobody's.
	//
	// The streams' guards (leases, gas, progress) are in one store, so whoever
	// publishes or hands out calls Own first, and again every few seconds, and
	// ends when it is refused. What another process publishes in between is
	// stored. The owner lasts as long as the streams.
	Own(ctx context.Context, owner, from string) (Ownership, error)

	// Ensure creates missing streams and compares existing ones with their
	// specification. It never alters an existing stream: differences come
	// back as drift, and the caller decides. Calling it twice changes nothing.
	Ensure(ctx context.Context, streams []StreamSpec) ([]Drift, error)
	// Stat describes every partition of the stream, in order.
	Stat(ctx context.Context, stream string) ([]PartitionStat, error)
	// Trim removes events of one partition below the offset, at least up to
	// the driver's own unit of storage and never an event at or above it.
	Trim(ctx context.Context, stream string, partition uint32, below uint64) error
	// Close waits for publishes in flight, ends all subscriptions and releases
	// what the driver holds. When ctx ends first, in-flight publishes answer
	// Unknown.
	Close(ctx context.Context) error
}

// Publisher appends events to streams.
type Publisher interface {
	// Publish stores the events durably and returns one result for each, in
	// input order. It returns when the outcome of all is known, or when ctx
	// ends (those still open are then Unknown). The events must not be
	// modified until then. An error instead of results means that nothing was
	// attempted (unknown stream, closed driver).
	//
	// Within one call nothing of a key is stored behind an event of that key
	// that was not: once one is Rejected or Throttled, those of its key behind
	// it are not stored either. They answer [HeldBack], or share its Throttled.
	// Behind one that is Unknown they are Unknown or Throttled, and none of
	// them is in the stream unless the first is, before it. An event that was
	// in the stream before the call is a Duplicate wherever it stands, and
	// counts as stored. So a caller who needs order repeats from the first
	// event of each key that is neither Stored nor Duplicate, and it is kept.
	Publish(ctx context.Context, stream string, events []*headgate.Event) ([]Result, error)
	// Known returns the position at which an event of this source and id was
	// stored, when it is still in the dedupe window.
	Known(stream, source, id string) (headgate.Position, bool)
}

// Subscriber reads streams.
type Subscriber interface {
	// Subscribe starts reading every partition of a stream. The caller closes
	// the subscription.
	Subscribe(ctx context.Context, spec SubscribeSpec) (Subscription, error)
	// Browse returns up to limit stored events of one partition from the
	// offset on, without claims. It returns none at the end of the partition,
	// and starts at the first event kept when from was trimmed.
	Browse(ctx context.Context, stream string, from headgate.Position, limit int) ([]Stored, error)
}

// Subscription is one reader of a stream. Receive and Settle may be called
// concurrently with each other.
type Subscription interface {
	// Receive returns between 1 and limit deliveries, waiting until there is
	// one. It returns ctx's error when ctx ends, and an error that wraps
	// ErrClosed after Close. Deliveries of one partition come in order, but
	// for those that were settled with Retry. A *GapError reports events lost
	// to damaged storage; the subscription goes on behind them.
	Receive(ctx context.Context, limit int) ([]Delivery, error)
	// Settle ends deliveries. An unknown or already settled position is
	// ignored. It never blocks on the network longer than ctx allows; an
	// error means that the settlements may be forgotten, so that the events
	// may be handed out again by a later subscription.
	Settle(ctx context.Context, settlements []Settlement) error
	// Close ends the subscription. Deliveries not settled are given up.
	Close() error
}

// Unreadable stands for an owner that cannot be read. No other is named so.
const Unreadable = "unreadable"

// Ownership says whose streams they are.
type Ownership struct {
	// Owner is empty when they are nobody's, and Unreadable when the driver
	// cannot read whose they are.
	Owner string
	Since time.Time // by the clock of the node that took them
}

// StreamSpec describes a stream. Zero values mean defaults.
type StreamSpec struct {
	Name       string // lower-case letters, digits, "-" and "_"
	Partitions int    // default 4; cannot change once events are stored
	MaxBytes   int64  // per partition; 0 means without limit. A full stream answers Throttled
}

// Drift is one difference between a stream and its specification.
type Drift struct {
	Stream, Setting, Want, Have string
	// Unsafe drift voids a guarantee; a node refuses to start on it.
	Unsafe bool
}

// SubscribeSpec describes a reader.
type SubscribeSpec struct {
	Name   string // for the driver's own bookkeeping and diagnostics
	Stream string
	// From holds the first offset to read, per partition. A partition that is
	// missing is read from its first event.
	From map[uint32]uint64
	// Buffer bounds the deliveries that the driver keeps ready and unsettled
	// per partition; default 1024. A driver stops reading beyond it.
	Buffer int
}

// Stored is one event in a stream.
type Stored struct {
	Position headgate.Position
	Event    *headgate.Event // shared: do not modify
	Time     time.Time       // when the broker stored it
}

// Delivery is one event handed to a subscription.
type Delivery struct {
	Stored
	// Attempt is how often this subscription handed the event out, from 1; 0
	// when the driver cannot tell. It is a hint: the router counts for itself.
	Attempt int
}

// Act says how a delivery ends.
type Act uint8

// The acts.
const (
	// Ack: settled for good.
	Ack Act = iota + 1
	// Retry: hand it out again after Settlement.After.
	Retry
	// Drop: it is safe elsewhere; never hand it out again.
	Drop
)

// Settlement ends one delivery.
type Settlement struct {
	Position headgate.Position
	Act      Act
	After    time.Duration // with Retry; at least this long
}

// Outcome is what became of one published event.
type Outcome uint8

// The outcomes.
const (
	// Stored durably.
	OutcomeStored Outcome = iota + 1
	// Duplicate: the id was stored before, at Result.Position.
	OutcomeDuplicate
	// Rejected for good: repeating it is useless.
	OutcomeRejected
	// Throttled: not stored; may succeed later.
	OutcomeThrottled
	// Unknown: it may have been stored. Repeat with the same id.
	OutcomeUnknown
)

// String returns the lower-case name.
func (o Outcome) String() string {
	switch o {
	case OutcomeStored:
		return "stored"
	case OutcomeDuplicate:
		return "duplicate"
	case OutcomeRejected:
		return "rejected"
	case OutcomeThrottled:
		return "throttled"
	case OutcomeUnknown:
		return "unknown"
	}
	return "invalid"
}

// Result is the outcome of one published event.
type Result struct {
	Outcome  Outcome
	Position headgate.Position // with Stored and Duplicate
	Err      error             // an *headgate.Error with the other outcomes
}

// PartitionStat describes one partition.
type PartitionStat struct {
	Partition uint32
	// First is the offset of the first event kept, Next the offset that the
	// next event will get: Next events were ever stored, Next-First are kept.
	First, Next uint64
	Bytes       int64     // on disk, as far as the driver can tell
	FirstTime   time.Time // when the first event kept was stored; zero if none
}

// Durability says what a Stored outcome survives.
type Durability string

// The levels of durability.
const (
	// DurabilityMemory: nothing survives the process.
	DurabilityMemory Durability = "memory"
	// DurabilityProcess survives a crash of the process, not of the host.
	DurabilityProcess Durability = "process"
	// DurabilityFsync survives power loss of the host.
	DurabilityFsync Durability = "fsync"
	// DurabilityQuorum survives the loss of a minority of hosts.
	DurabilityQuorum Durability = "quorum"
)

// Caps states what a driver can do. The conformance suite fails a driver that
// claims too much, and one that claims too little.
type Caps struct {
	Durability Durability
	// Words describes the durability for an operator, in one sentence.
	Words string
	// MaxEventBytes is the largest encoded event that is accepted.
	MaxEventBytes int
	// DedupeWindow is how long a published id is remembered at most, and
	// DedupeIDs how many ids per stream at least.
	DedupeWindow time.Duration
	DedupeIDs    int
	// DedupeSurvivesRestart: the window is rebuilt when the driver starts.
	DedupeSurvivesRestart bool
}
