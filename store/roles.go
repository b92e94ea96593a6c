package store

import (
	"context"
	"time"

	"github.com/headgate/headgate"
)

// Settings keeps the node's own small values: token keys, the boot counter,
// what must agree with stored data.
type Settings interface {
	// Get returns the value, or not_found.
	Get(ctx context.Context, key string) ([]byte, error)
	// Put adds or replaces a value.
	Put(ctx context.Context, key string, value []byte) error
	// Delete removes a value; a missing one is ignored.
	Delete(ctx context.Context, key string) error
	// List returns all values whose key starts with prefix.
	List(ctx context.Context, prefix string) (map[string][]byte, error)
}

// Contract is one registered version of a contract. Versions of a subject
// count from 1, go on after a soft deletion and are never reused.
type Contract struct {
	Subject string
	Version int
	Type    string // json or avro; empty means json, as in rows of old
	Digest  string // of schema, policy and engine version
	Schema  []byte // as registered, byte for byte
	Policy  []byte // JSON of the policy that it was compiled under
	Draft   bool   // inferred from a payload
	Deleted bool   // softly: kept for explanations, never used for checks
	Created time.Time
	By      string // principal
}

// Contracts keeps the registered contracts.
type Contracts interface {
	// Put adds a version; its number must be one above the highest ever used
	// for the subject, else conflict.
	Put(ctx context.Context, c Contract) error
	// Get returns one version, deleted or not; version 0 means the latest that
	// is not deleted.
	Get(ctx context.Context, subject string, version int) (Contract, error)
	// Versions returns all versions of a subject, deleted ones included, in
	// order; empty for an unknown subject.
	Versions(ctx context.Context, subject string) ([]Contract, error)
	// Latest returns the latest version that is not deleted of every subject,
	// ordered by subject.
	Latest(ctx context.Context) ([]Contract, error)
	// Delete marks one version (0: all) as deleted, and returns how many it
	// marked.
	Delete(ctx context.Context, subject string, version int) (int, error)
}

// Principal is a stored principal.
type Principal struct {
	headgate.Principal
	// Managed names what owns the record: "config" or "api".
	Managed string
	Created time.Time
}

// Token is one bearer token of a principal; only its hash is kept.
type Token struct {
	ID        string // public part, selects the row
	Principal string
	Hash      []byte    // SHA-256 of the secret part
	Expires   time.Time // zero: never
	Created   time.Time
}

// Principals keeps principals and their tokens.
type Principals interface {
	// Put adds or replaces a principal by name.
	Put(ctx context.Context, p Principal) error
	// Get returns a principal, or not_found.
	Get(ctx context.Context, name string) (Principal, error)
	// List returns all principals, ordered by name.
	List(ctx context.Context) ([]Principal, error)
	// Delete removes a principal and its tokens, or fails with not_found.
	Delete(ctx context.Context, name string) error
	// PutToken adds or replaces a token by id. Its principal must exist, else
	// not_found.
	PutToken(ctx context.Context, t Token) error
	// Token returns a token by id, or not_found.
	Token(ctx context.Context, id string) (Token, error)
	// Tokens returns the tokens of a principal, oldest first.
	Tokens(ctx context.Context, principal string) ([]Token, error)
	// DeleteToken removes a token; a missing one is ignored.
	DeleteToken(ctx context.Context, id string) error
}

// Subscription is a stored subscription. Its specification is the router's.
type Subscription struct {
	Name    string
	Spec    []byte // JSON
	Paused  bool
	Managed string // "config" or "api"
	Created time.Time
	Updated time.Time
}

// Subscriptions keeps the subscriptions.
type Subscriptions interface {
	// Put adds or replaces a subscription by name.
	Put(ctx context.Context, s Subscription) error
	// Get returns a subscription, or not_found.
	Get(ctx context.Context, name string) (Subscription, error)
	// List returns all subscriptions, ordered by name.
	List(ctx context.Context) ([]Subscription, error)
	// Delete removes a subscription with its progress and exceptions. It fails
	// with not_found when there is none of the name, and still removes what
	// progress and exceptions of that name there are.
	Delete(ctx context.Context, name string) error
}

// GasAccount is the account of one root beyond the grants that nodes hold.
type GasAccount struct {
	Root    string
	Total   int // events that may ever be admitted under the root
	Debited int // handed out so far, grants included; never above Total
	Updated time.Time
}

// Gas keeps what was handed out of each root's budget. It can never hand out
// more than an account's total.
type Gas interface {
	// Debit takes up to want units from the root's account and returns how
	// many it got, 0 when the account is empty. A missing account is opened
	// with the total and with granted units (at most all) already taken; an
	// account that exists keeps its own total.
	Debit(ctx context.Context, root string, total, granted, want int, now time.Time) (int, error)
	// Get returns the account, or not_found when nothing was debited yet.
	Get(ctx context.Context, root string) (GasAccount, error)
	// Raise adds units to an account's total (a person's decision). A missing
	// account is opened with total and granted as in Debit.
	Raise(ctx context.Context, root string, total, granted, add int, now time.Time) (GasAccount, error)
	// Prune deletes accounts last touched before the time, at most limit, and
	// returns how many. Every Debit touches its account, to the minute. A
	// pruned root that publishes again starts with a new account: choose a
	// time beyond which no token of a root can be valid.
	Prune(ctx context.Context, before time.Time, limit int) (int, error)
}

// OutboxRow is one admitted event that waits for its publication: the node
// outbox. It was committed together with the settlement that emitted it.
type OutboxRow struct {
	Seq    int64 // set by Append; rises
	Stream string
	Event  []byte // internal/eventcodec
}

// Outbox keeps events between their commit and their publication.
type Outbox interface {
	// Append adds rows and sets their Seq, which is never given twice.
	Append(ctx context.Context, rows []OutboxRow) error
	// Pending returns up to limit rows with Seq above after, in order.
	Pending(ctx context.Context, after int64, limit int) ([]OutboxRow, error)
	// Delete removes rows; missing ones are ignored.
	Delete(ctx context.Context, seqs []int64) error
	// Count returns how many rows there are. It may read them all.
	Count(ctx context.Context) (int, error)
}

// IndexRow is what the event index keeps of one admitted event.
type IndexRow struct {
	ID        string
	Source    string
	Stream    string
	Position  headgate.Position
	Type      string
	Subject   string
	Root      string
	Causes    string // headgate.JoinCauses
	TTL, Hop  int
	Origin    headgate.Origin
	Principal string
	Contract  string // subject@version
	Recorded  time.Time
}

// Index keeps where events are and how they hang together. It is asynchronous
// and can be rebuilt from the streams.
type Index interface {
	// Put adds rows; one that exists (stream, position) is replaced.
	Put(ctx context.Context, rows []IndexRow) error
	// ByID returns the rows with the event id: one, unless several sources
	// used the same id; none for an unknown one.
	ByID(ctx context.Context, id string) ([]IndexRow, error)
	// ByRoot returns up to limit rows of a root in the order of admission
	// (recorded time, then stream and position), starting after the first skip.
	ByRoot(ctx context.Context, root string, skip, limit int) ([]IndexRow, error)
	// Cursor returns the next offset to index of a partition; 0 at first.
	Cursor(ctx context.Context, stream string, partition uint32) (uint64, error)
	// SetCursor keeps the next offset to index of a partition.
	SetCursor(ctx context.Context, stream string, partition uint32, next uint64) error
	// Prune deletes rows of a partition below the offset, lowest first, at
	// most limit, and returns how many.
	Prune(ctx context.Context, stream string, partition uint32, below uint64, limit int) (int, error)
	// Reset empties the index and its cursors.
	Reset(ctx context.Context) error
}
