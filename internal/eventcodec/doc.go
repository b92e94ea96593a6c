// Package eventcodec is the binary form in which Headgate stores one event,
// header included: in frames of the NATS driver and in the node outbox.
//
// # Model
//
// A record is
//
//	version  1 byte, 1
//	length   uvarint, bytes of the body
//	body     mask uvarint, then every field whose bit is set, in bit order
//
// Strings and byte strings are a uvarint length and the bytes. Times are
// seconds since 1970 (zigzag varint), nanoseconds (uvarint) and the zone's
// offset from UTC in seconds (zigzag varint), so that the instant and the
// written offset survive while the zone's name does not. A field whose bit is
// clear has its zero value; Data tells nil from empty.
//
// # Invariants
//
//  1. Decode(Append(nil, e)) equals e, but for zone names and monotonic clock
//     readings in times.
//  2. Decoding never panics, whatever the bytes, and allocates no more than a
//     small multiple of the input.
//  3. A record of another version, one that was cut off and one with bytes
//     left over inside its body are errors that wrap [ErrMalformed].
//
// Records carry no checksum: what stores them (a frame, a database page) has
// one of its own.
//
// # Concurrency
//
// The functions keep no state. A decoded event shares memory with its input;
// [headgate.Event] values are read-only once admitted, so that many readers
// may share it.
package eventcodec
