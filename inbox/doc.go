// Package inbox notes which events a consumer has handled, in the database that
// it writes to, so that each event has its effect once however often it is
// delivered.
//
// # Model
//
// [Receive] notes an event inside the caller's own transaction, through a [Tx]
// that an adapter makes of it: inboxpgx for pgx, inboxsql for database/sql, on
// PostgreSQL and SQLite. Effect and note commit together or not at all. Package
// unit does it with fence guard, cause and outbox in one call.
//
// An effect outside of the database (a tool, a payment) is claimed instead:
// [Tx.Claim] in one transaction, the effect with the event's id as idempotency
// key, [Tx.Finish] in another. What it gave is stored and returned to later
// deliveries.
//
// An event is named by consumer, source and id. The consumer is whatever the
// effects belong to, such as a subscription's name; it must not change while
// its events may still come again. The database must be prepared by
// headgate inbox init.
//
// # Invariants
//
//  1. Of all transactions that receive the same event, one at most commits with
//     true, at every isolation level.
//  2. A second transaction waits until the first has ended, and receives only
//     if that was rolled back.
//  3. At any time one claim of an event at most can finish; a claim that was
//     taken over never does.
//  4. A result once stored is never changed.
//  5. An event that may have been forgotten (recorded before what was dropped)
//     is refused, never taken for new, unless [Receipt.AllowOld] says so.
//  6. Only the database's clock ends claims and drops rows.
//
// # Failure
//
// A database that cannot answer is an error, never "new". After an error the
// transaction must be rolled back.
//
// # What it does not do
//
// It keeps no position of each key. The router hands out events of a key one
// after another, an event's second attempt finds the first one's note, and a
// worker that was superseded is refused by its lease's epoch; a position would
// cost every transaction an update of the same row, and positions begin anew
// when an event is released from quarantine or a stream is rebuilt.
//
// # Concurrency
//
// A Tx is as safe as its transaction.
package inbox
