// Package perimeter is the only door to a stream: the admission pipeline that
// every event passes, whoever hands it in.
//
// # Model
//
// A [Submission] is one or more events that one principal hands in together.
// Each event goes through the stages in this order and stops at the first that
// refuses it:
//
//	principal   who hands it in is known and may publish at all
//	envelope    size, attributes, id, source, times
//	right       this type, by this principal
//	cause       tokens, TTL, breadth, loops, rate of roots, origin; gas is reserved
//	fence       the lease that the type demands, or that came along, is current
//	contract    the payload against its compiled contract; its frame is taken off
//	stamp       ordering key; the header, which only this package writes
//
// What passed is published, one call per stream, and answered only after the
// broker's durable acknowledgement. What passed under a fence takes another
// way: its guard and the event are committed in one transaction of the store,
// to the node outbox, which publishes in the order of the commits. The commit
// is what decides; the answer waits for the position, and says pending when it
// does not come in time.
//
// # Invariants
//
//  1. Nothing reaches a stream without a verdict of every stage.
//  2. One result per item, in order; one bad item never fails its neighbours.
//     Accepted, duplicate, refused and unknown results add up to the items.
//  3. Gas that was reserved is given back when the event is refused, throttled
//     or a duplicate, and charged when it is stored or may have been: exactly
//     one of the two happens, also when ctx ends.
//  4. An id that the stream knows is answered as a duplicate with its first
//     position and header: it is never charged, and no stage from cause on
//     refuses it. Within one submission the first of equal ids wins, whatever
//     the later ones hold.
//  5. The header comes from here alone. What a client sent in its attributes is
//     dropped and told to Observer.Ignored, and so are refused causal tokens.
//  6. A refusal is recorded in quarantine before it is answered, within one wait
//     (quarantine.Config.RefusalWait) for the whole submission. Failures of
//     the node (throttled, unavailable, unknown) are no refusals and are not
//     recorded.
//  7. In a submission that is InOrder nothing is admitted behind an item of the
//     same key that was not: it is held back, without a trace.
//  8. A payload is stored as it was sent, unless its contract asks for lossless
//     repairs. Then the original is in quarantine before the event is stored,
//     and the event's attribute mended names the record; what cannot be kept is
//     refused.
//
// # Failure
//
// A broker that throttles, a full disk or a stream that cannot be reached come
// back as retryable errors per item. When the outcome of a publish is not
// known the error says so (unknown_outcome): sending it again with the same id
// is safe while the broker remembers the id (broker.Caps.DedupeWindow). When
// ctx ends before anything was published, the rest is answered as canceled and
// not applied.
//
// # Concurrency
//
// A Perimeter has no state of its own and is safe for concurrent use. The
// events of a submission belong to the perimeter from the call on: it fills in
// their attributes in place, and the broker may share them afterwards.
package perimeter
