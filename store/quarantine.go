package store

import (
	"context"
	"time"

	"github.com/headgate/headgate"
)

// QuarantineKind says how an event came into quarantine.
type QuarantineKind string

// The kinds.
const (
	// KindRefused: the perimeter refused it; it never entered a stream.
	KindRefused QuarantineKind = "refused"
	// KindExtinguished: a causal limit ended it, at the perimeter or in the
	// router.
	KindExtinguished QuarantineKind = "extinguished"
	// KindParked: a subscription could not handle it.
	KindParked QuarantineKind = "parked"
	// KindExpired: it passed its expiry time before it was handled.
	KindExpired QuarantineKind = "expired"
	// KindMended: its payload was mended at the gate, and it was admitted; the
	// record keeps the original.
	KindMended QuarantineKind = "mended"
)

// QuarantineRecord is one quarantined event with the columns that lists and
// groups need. What else is known stands in Detail.
type QuarantineRecord struct {
	QID  string // rises with time
	Kind QuarantineKind
	// Reason is a stable code: an error code for refusals, handler_permanent,
	// handler_exhausted, handler_crash, expired_ttl, … for deliveries.
	Reason       string
	State        string // quarantined; later triaged, proposed, …
	Fingerprint  string // of the fault; the group
	Family       string // coarser group
	Source, ID   string // of the event; may be empty for a refusal
	Type         string
	Root         string // empty if unknown
	Cause        string // direct cause's event id, empty for roots
	Subscription string // of a delivery
	Stream       string
	Position     headgate.Position
	Principal    string // who published
	Message      string // one line, clipped and escaped
	Body         []byte // payload or request bytes, verbatim
	ContentType  string
	Detail       []byte // JSON: report, attempts, headers, telemetry
	Created      time.Time
	Expires      time.Time // zero: never
}

// QuarantineFilter selects records. Empty fields select all.
type QuarantineFilter struct {
	Kind                                                         QuarantineKind
	Reason, Type, Subscription, Principal, Root, ID, Fingerprint string
	// After starts the list behind the record with this QID; records come
	// newest first, so that they are older than it.
	After string
	Limit int // default 100, at most 1000
}

// QuarantineGroup sums up the records of one fingerprint.
type QuarantineGroup struct {
	Fingerprint, Family                 string
	Kind                                QuarantineKind
	Reason, Type, Subscription, Message string // of the newest record
	Count                               int
	First, Last                         time.Time
	Sample                              string // newest QID
}

// QuarantineOverflow counts what was refused beyond a quota and not kept.
type QuarantineOverflow struct {
	Principal, Reason, Type string
	Count                   uint64
	Last                    time.Time
}

// MaxQuarantineRecord bounds Body and Detail of a record together, in bytes: an
// engine that runs out of memory over one takes the node with it.
const MaxQuarantineRecord = 32 << 20

// Quarantine keeps quarantined events.
type Quarantine interface {
	// Put adds a record; one with the same QID is kept as it is, and the
	// result says whether it was new. Beyond MaxQuarantineRecord: too_large.
	Put(ctx context.Context, r QuarantineRecord) (bool, error)
	// Get returns a record, or not_found.
	Get(ctx context.Context, qid string) (QuarantineRecord, error)
	// List returns records, newest first, without Body and Detail.
	List(ctx context.Context, f QuarantineFilter) ([]QuarantineRecord, error)
	// Groups returns the groups of what the filter selects, largest first,
	// those of the same size by their newest record. Limit counts groups.
	Groups(ctx context.Context, f QuarantineFilter) ([]QuarantineGroup, error)
	// Count returns how many records of a kind there are of a principal since
	// a time; an empty principal or kind counts all.
	Count(ctx context.Context, kind QuarantineKind, principal string, since time.Time) (int, error)
	// Delete deletes the records of a kind with the given QIDs, and returns how
	// many there were.
	Delete(ctx context.Context, kind QuarantineKind, qids []string) (int, error)
	// Expire deletes records whose Expires is before now, at most limit, and
	// returns how many.
	Expire(ctx context.Context, now time.Time, limit int) (int, error)
	OverflowCounters
}

// OverflowCounters count refusals that are not kept.
type OverflowCounters interface {
	// AddOverflow adds to the counters of what was not kept; Last becomes the
	// latest.
	AddOverflow(ctx context.Context, rows []QuarantineOverflow) error
	// Overflow returns the counters, ordered by principal, reason and type.
	Overflow(ctx context.Context) ([]QuarantineOverflow, error)
}
