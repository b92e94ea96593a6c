package perimeter

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/causal"
	"github.com/headgate/headgate/lease"
	"github.com/headgate/headgate/store"
)

const extinguished = store.KindExtinguished

// Stage names a stage of the pipeline, in results and records.
type Stage = string

// The stages, in their order. Outcomes of the broker are told as of the stamp.
const (
	StagePrincipal Stage = "principal"
	StageEnvelope  Stage = "envelope"
	StageRight     Stage = "right"
	StageCause     Stage = "cause"
	StageFence     Stage = "fence"
	StageContract  Stage = "contract"
	StageStamp     Stage = "stamp"
)

// Submission is a set of events that one principal hands in together.
type Submission struct {
	Principal *headgate.Principal // authenticated; nil is refused
	Door      string              // http, router, …
	RequestID string
	Items     []Item
	// Tokens are the causal tokens that came with the events: all parents of
	// every event. Causes are parents that never left the node, and come
	// first. At most MaxParents together; without any, every event is a root.
	Tokens []string
	Causes []*causal.Cause
	Origin headgate.Origin // of roots; empty means the principal's class
	// Fences are the lease tokens that came with the events, which are all
	// written under every one of them. Held are fences that never left the
	// node, and come first; they are guarded by who commits the events.
	Fences []string
	Held   []*lease.Fence
	// Received is when the last byte was read; zero means when Admit or
	// Prepare was called. From here on the verdict's time is measured.
	Received time.Time
	// AsOf is when the events were committed to the database that they come
	// from: their tokens are judged as of then. Zero means now.
	AsOf time.Time
	// InOrder keeps the order of each key: nothing of it is admitted behind an
	// item that was refused, or is not stored for whatever reason. What stands
	// there is answered as held_back, and leaves no trace: no gas, no rate, no
	// record. The caller deals with the first one of each key (repeats it, or
	// keeps it elsewhere) and hands in the others again. Where an item cannot
	// be admitted now but may be later (throttled, unavailable, over the rate),
	// judging ends with it: then all items behind it, of whatever key, are held
	// back, but for those judged before. A second item of one id is held back
	// too, until what became of the first is known. Only that an id is taken by
	// another principal may come out once others of the key are stored.
	//
	// The order is that of keys over all streams of the submission. What is
	// committed to the node outbox, under a fence, counts as stored.
	InOrder bool
	// Unrecorded leaves the refusals to the caller, who keeps them himself:
	// Results say which there are, and no record is made here.
	Unrecorded bool
}

// Item is one event as a door decoded it.
type Item struct {
	// Event is modified in place: missing attributes are filled in, and the
	// header is overwritten. It must not be shared with anything else, and
	// after an unknown outcome only a copy of it may be submitted again.
	Event *headgate.Event
	Raw   []byte // what it was decoded from; may be nil
	// RawType is the media type of Raw, for the record of what could not be
	// decoded.
	RawType string
	Ignored []string        // header attributes that the client sent
	Err     *headgate.Error // the door could not decode it: refused at envelope
}

// Result is what became of one item.
type Result struct {
	// Event is the event as admitted, or the one first admitted for a
	// duplicate (shared: do not modify). For a duplicate that the stream no
	// longer holds, and for a refusal, it is the item's own event, without a
	// header; nil when it could not be decoded.
	Event     *headgate.Event
	Stream    string
	Position  headgate.Position // zero after Prepare, but for duplicates
	Contract  headgate.ContractRef
	Duplicate bool
	// Mended is the quarantine record that keeps the payload as it was sent,
	// where the contract has its payloads mended; "" else.
	Mended string
	// Pending: the event is committed and will be published; it has no position
	// yet.
	Pending bool
	Err     *headgate.Error // nil: admitted, or a duplicate
	Stage   Stage           // where it was refused
	QID     string          // quarantine record of a refusal; "" if only counted
}
