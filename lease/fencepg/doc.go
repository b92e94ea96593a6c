// Package fencepg makes a PostgreSQL database refuse the writes of superseded
// lease holders: the user's own tables, in the user's own transactions.
//
// # Model
//
// [Install] puts functions into a database. An application calls
// headgate.fence(resource, epoch, nonce), or headgate.fence(token), first in a
// transaction; [Tx] and [SQLTx] do so without a round trip of their own. The
// function locks the row of the lease under this epoch until the transaction
// ends. Whoever raises the epoch waits for it, and a guard that comes later
// waits for them. Both are thereby in one order, which is the order of their
// commits in the database's log.
//
// The row is that of the node's own lease table when its store lies in the
// same database ([Node]); nothing is copied then. Else it is a row of a table
// that the new holder raises before it reads anything ([DB.Seal]).
//
// [FenceTable] adds triggers to a table, so that nobody can forget the call: a
// statement without a good fence fails, also from psql, COPY, MERGE, TRUNCATE,
// a cascade, a partition written directly and a session that replicates.
//
// # Invariants
//
//  1. A transaction that passed a guard and did not roll back to a savepoint
//     before it commits before any transaction that raises the epoch.
//  2. After the epoch was raised no guard of a lower epoch passes, at every
//     isolation level. Under repeatable read and serializable the first answer
//     may be 40001; its repetition is refused.
//  3. Renewals neither wait for guarded transactions nor hold them up.
//  4. A statement on a fenced table asks anew: what a rolled back savepoint
//     or another transaction left behind counts for nothing.
//  5. A missing fence, also an empty or NULL one, is an error, never a pass.
//  6. Applications have no right on any table of this package. Functions run
//     with the rights of the tables' owner and look nothing up in the caller's
//     search path; what evaluates columns of fenced tables runs with the
//     writer's rights, as a cast may be the code of the table's owner.
//
// # Failure
//
// SQLSTATEs of class HG are refusals that no repetition changes: HG001 stale,
// HG002 fence missing, HG003 wrong place, HG004 other resource, HG005 lease
// ran out, HG006 other grant of the same epoch, HG007 lease is being revoked.
// [Error] maps them to Headgate's codes.
//
// A holder that is paused or cut off within a transaction keeps its successor
// waiting. [Tx] bounds every transaction by the server's own timeouts, of what
// is left of the lease at most.
//
// What it does not stop: a superuser, the owner of a fenced table who drops
// the trigger, and a guard without triggers whose savepoint is rolled back.
//
// # Concurrency
//
// A [DB] is safe for concurrent use.
package fencepg
