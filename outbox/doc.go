// Package outbox writes events inside the caller's database transaction, so
// that a change and its events commit together or not at all.
//
// # Model
//
// [Emit] inserts events through a [Tx], which an adapter makes of the caller's
// own transaction: outboxpgx for pgx, outboxsql for database/sql. The relay of
// a node reads what was committed from the database's log. The database must be
// prepared by headgate outbox init.
//
// A [Writer] with a [Checker] checks contract and size before the insert, so
// that a bad event fails the caller's own transaction with the full report.
// Cause and rights are judged by the relay as of the commit, since only nodes
// hold the keys of causal tokens; what is refused there is kept in quarantine.
//
// # Invariants
//
//  1. Either all events of one call are inserted, or none and the error says so.
//  2. An event has an id before it is inserted, so that no retry and no crash
//     can give it another one.
//  3. This package sees to no commit: what becomes of the transaction is the
//     caller's.
//
// # Failure
//
// After an error of the database the transaction is aborted, as PostgreSQL has
// it: roll back. An error of the checker leaves the transaction as it was.
// Order within one key is the order of commits when the transactions of that
// key exclude each other: lock the row that the key stands for first.
//
// # Concurrency
//
// A Writer is safe for concurrent use; a Tx is as safe as its transaction.
package outbox
