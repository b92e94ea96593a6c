// Package headgate is the vocabulary of Headgate, an event backbone for fleets
// of AI agents: the event and its CloudEvents encodings, the cause that the
// perimeter stamps on it, the verdict of a contract check, the closed table of
// errors, and the observer. It imports the standard library and the tokenizer
// of internal/jsontext, which imports no more; every other package of the
// module may import it.
//
// # Model
//
// An [Event] is a CloudEvents 1.0 event. Its context attributes belong to the
// producer; its [Header] belongs to the perimeter, the only door to a stream.
// Data is bytes: nothing in this package interprets it, so numbers stay exact.
// A [Decoder] reads events from the structured, binary and batched modes of
// CloudEvents and from NDJSON; [AppendStructured], [AppendLine], [AppendBatch]
// and [SetBinary] write them.
//
// # Invariants
//
//  1. Data is kept byte for byte from the producer to the handler, in every
//     encoding that can carry it. (The JSON encodings do not carry white space
//     around a JSON value, NDJSON no line breaks inside one.)
//  2. Unknown extension attributes survive a round trip through every encoding.
//  3. A Header is never read from what a client sent; decoders report the
//     header attributes they ignored (see [Decoded]).
//  4. Every error that leaves a package of this module is an [*Error] or wraps
//     one: its [Code] is from a closed table that fixes outcome, retryability
//     and HTTP status.
//
// # Failure
//
// Decoders take hostile bytes: size, depth, counts and time are bounded, and no
// input makes them panic. A bad event of a batch or a bad line is refused alone.
//
// # Concurrency
//
// Events are plain values. Once admitted, an event is shared between
// subscriptions and must not be modified.
package headgate
