// Package unit handles a delivery in one transaction of the consumer's own
// database: fence guard, inbox, the handler's writes and the events that it
// emits commit together or not at all.
//
// # Model
//
// [Do] runs a function in a transaction of a [DB], which an adapter makes of
// the user's connection pool: unitpgx, unitsql (PostgreSQL), unitsqlite. Before
// the function, the transaction passes the guard of the delivery's lease, where
// there is one, and notes the event in the inbox; a delivery that was handled
// before does not run the function. Events that the function emits are children
// of the delivery.
//
// [DoBatch] handles many deliveries in one transaction, all or none.
//
// [Once] is for an effect outside of the database. It claims the event, does
// the effect under a key that stays the same, and records what it gave.
//
// Packages unit/worker and unit/handler bring deliveries of a node here, and
// settle them by what came of it.
//
// # Invariants
//
//  1. The function's writes and emitted events are committed for one delivery
//     of an event at most, however often it is delivered, to however many
//     workers, and wherever one of them dies.
//  2. Of a worker whose lease was superseded nothing is committed, and nothing
//     is repeated.
//  3. A nil error means that the event's writes are committed, now or before.
//  4. An effect of Once runs again only while no outcome of it is recorded, and
//     always under the same key. Two workers are at it at the same time only if
//     one of them goes on after its claim, and its context, have ended.
//
// # Failure
//
// The function may run several times: transactions that the database asks to
// repeat (40001, 40P01) are repeated, [Attempts] in all. So it must have no
// effect but through the transaction. A COMMIT whose answer was lost is
// unavailable with an unknown outcome: the next delivery finds out. Every other
// error leaves nothing behind.
//
// # Concurrency
//
// All functions are safe for concurrent use. Two deliveries of one event wait
// for each other in the database.
package unit
