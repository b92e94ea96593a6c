// Package natsbroker is the broker on NATS JetStream: with a server inside
// this process (the default) or with outside servers, by the same code.
//
// # Model
//
// Each partition of a stream is a JetStream stream of its own, whose messages
// are frames: 1 to N events, their ids, the offset of the first one, and a
// checksum (see frame.go). One goroutine for each partition gathers whatever
// publishes wait into a frame and stores it, so that one sync of the disk
// serves many events and a lone event waits for nobody.
//
// A frame is published with the sequence that it expects to follow. It can
// therefore be stored once at most, and an attempt whose answer was lost is
// resolved exactly: it is repeated, and if the server says that the sequence
// is taken, the message there is compared. Another writer on the same
// partition is noticed in the same way; both continue, each behind the other.
//
// Readers keep no state on the server. They ask for frames by sequence, find
// an offset by binary search over frame headers, read only what is known to be
// acknowledged, and take frames that this process just wrote from memory. With
// the embedded server an idle reader costs nothing.
//
// # Invariants
//
//  1. Stored is answered after the server's acknowledgement; with the embedded
//     server and durability fsync the frame is synced by then, and so is the
//     name of the file that holds it.
//  2. Within a partition the base of a frame is the end of the one before, as
//     long as nothing was damaged or removed from outside.
//  3. Readers never see a frame before it is acknowledged to its writer.
//  4. A digest is pending, or in the window, or neither; never stored twice
//     within the window by one driver. Across nodes that is best effort: a
//     node learns of another's ids when it loses a race for a sequence.
//  5. Trim never removes the last frame: it carries the count on.
//  6. The last record of the stream PREFIX_OWNER names the owner of the
//     streams; it is appended on condition of the one before.
//  7. Memory is bounded: 8 MiB of waiting events a partition, one fetch and
//     the window a reader, 1 MiB of recent frames a partition, 2 MiB of
//     frames in all that are kept decoded for several readers, about 40 bytes
//     for each remembered id.
//
// # Failure
//
// A lost connection holds the writers up; Publish answers Unknown when its ctx
// ends first. A full stream and a nearly full disk answer Throttled. A message
// that is no intact frame is reported (Config.Damaged, the log, a counter) and
// skipped; when the next frame shows that events are missing, Receive returns
// a [broker.GapError]. What the driver cannot see: damage to the server's own
// files that makes it drop the end of a stream at start.
//
// A data folder is used by one process at a time. Frames are for Headgate's
// nodes; nothing but them may write to the broker streams.
//
// # Concurrency
//
// All methods may be called from any goroutine.
package natsbroker
