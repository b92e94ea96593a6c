// Package pgblock finds whose transactions keep a session of PostgreSQL from a
// row, and ends those sessions where the role may.
//
// # Model
//
// One session, the waiter, waits for a row in a statement of its own. Another
// one looks: [Look] follows the waiter's lock to the transactions that hold
// the row, also through others that stand before it in the row's queue.
// [Session.End] ends one of them.
//
// # Invariants
//
//  1. Only who holds the row is named: not who waits for it, too, and not who
//     is behind any other lock.
//  2. A session is ended only while it is in the transaction that was seen.
//  3. Rights are the server's to judge. Where it refuses, Lacks says what
//     would be needed.
//
// # Failure
//
// Errors are the server's or the connection's, unchanged.
//
// # Concurrency
//
// Functions use the connection that they are given and nothing else.
package pgblock
