// Package fencesqlite makes an SQLite database refuse the writes of superseded
// lease holders, with the semantics of package fencepg.
//
// # Model
//
// SQLite has one writer at a time. [DB.Tx] begins as that writer, compares the
// fence with the newest that the database was told of, and writes; a takeover
// ([DB.Seal]) is a writer, too, so that none fits between check and commit.
//
// [FenceTable] adds triggers to a table, so that nobody can forget the fence.
// SQLite has no settings of a transaction: the fence lies in a table while the
// transaction runs. It cannot be left behind, since its row refers, deferred,
// to a row that never exists: COMMIT fails until it is gone.
//
// # Invariants
//
//  1. After a seal has committed no write under an older grant does.
//  2. A row of a fenced table changes only while its resource's fence is set,
//     whoever writes.
//  3. No committed state of the database holds a fence that is set.
//  4. Rows of the fence table never go, and epochs never fall.
//
// # Failure
//
// Refusals are *headgate.Error with the codes of fencepg. A superseded fence
// is refused before it queues for the writer.
//
// What it does not stop: a connection with foreign keys off that commits the
// fence row on purpose (it is cleared by the next fenced transaction), one
// with recursive_triggers off that uses REPLACE to remove another resource's
// row by a second unique key, and whoever drops the triggers. The file must
// lie on a local disk of one host.
//
// # Concurrency
//
// A [DB] is safe for concurrent use. Writers wait in SQLite's way: give the
// connections a busy timeout.
package fencesqlite
