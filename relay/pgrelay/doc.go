// Package pgrelay reads the outbox of a PostgreSQL database from its log: the
// driver of package relay for PostgreSQL 15 and newer.
//
// # Model
//
// [Install] prepares a database: schema headgate with the insert-only table
// outbox, the functions that writers call, a publication, and then a logical
// slot. A session takes an advisory lock on its replication connection, which
// the server keeps for exactly as long as that connection lives, and raises the
// epoch in headgate.relay_state. It streams by pgoutput, protocol version 1,
// from where the slot stands; the server alone decides where that is.
//
// Every [Config.Beat] the session renews its epoch and puts a message with its
// snapshot into the log. When the message comes back and everything before it
// is done, the snapshot is proven: each row that is visible in it reached the
// broker. Every login of the database may write such a message, so that each
// bears a code by a secret of its session: others pass by, also those of the
// sessions before. When the slot is lost, was made anew, or had to be given up, the rows
// that are not visible in the proven snapshot are read from the table instead
// (repair), and the stream goes on behind them.
//
// # Invariants
//
//  1. Publication before slot; the slot is made after the reason for a repair is
//     durable, and the reason is cleared only when a repair that began after
//     that is proven.
//  2. Rows are never compared by their position in the log.
//  3. A status message always carries three positions of its own, and the flush
//     position never falls.
//  4. The reader never waits for the broker to answer the server: statuses are
//     written by another goroutine.
//  5. A session that cannot renew its epoch submits nothing more.
//  6. Nothing is decided by comparing clocks of two machines: leads are judged
//     by the monotonic clock of whoever judges, and commits are told by the
//     node's clock.
//  7. Between reader and relay, and in each query of a repair, rows are bounded by
//     their bytes.
//  8. Names without a schema are the server's: no search path is trusted.
//  9. A partition stays while it holds rows that are set aside.
//  10. Partitions are kept up on a connection of their own; no statement of the
//     session waits for locks of the table but a repair.
//  11. A row that the server leaves out of the stream is told by it, as an error or
//     as a warning, and ends the session before anything behind it is proven.
//
// # Failure
//
// A lost connection, a superseded epoch or a log that stands still while a
// heartbeat is owed end the session; [relay.Relay] opens the next. When the log that the slot
// holds back becomes a danger to the database ([Config.WALBudget], or the
// server's own max_slot_wal_keep_size), the slot is advanced and the rows are
// taken from the table when the broker is back.
//
// # Concurrency
//
// A Source is used by one relay. Install, Inspect and Replay are safe beside a
// running relay.
package pgrelay
