// Package broker is the port to what stores and hands out events: streams cut
// into partitions, each an ordered log. Drivers live in subpackages
// (membroker, natsbroker, …) and pass the conformance suite in brokertest.
//
// # Model
//
// A stream has a fixed number of partitions. Publish appends events; an event
// with a key always goes to the partition that its key hashes to, so that
// events of one key keep their order. Within a partition every stored event
// has an offset, counted from 0 without gaps (see headgate.Position): how a
// driver groups events into messages of its own is never visible.
//
// A subscription reads every partition of a stream from given offsets. The
// truth of what was settled is the router's, in the store; a driver keeps only
// what it needs to hand each event out again until it was acknowledged within
// the life of the subscription.
//
// # Invariants
//
//  1. Stored means durable in the sense of Caps.Durability, never less.
//  2. Outcomes are per event: one bad event never fails those of other keys.
//  3. Unknown is an outcome. Repeating the call with the same (source, id) is
//     safe: within the dedupe window the answer is Duplicate with the first
//     position.
//  4. Events of one key, published by one call or by calls that follow each
//     other, keep their order in the partition. Of one call nothing is stored
//     behind an event of the same key that was not; see [Publisher].
//  5. An event handed out is handed out again, after the delay asked for, if
//     it was settled with Retry, and by a new subscription if it was not
//     settled at all. Ack and Drop are final within one subscription.
//  6. The streams of a broker belong to one owner at a time; see Broker.Own.
//  7. Trim never removes an event at or above the offset it is given.
//
// This package may change without a major version; implement it in this
// module, with the suite, or not at all.
package broker
