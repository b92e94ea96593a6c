// Package sqlitestore keeps Headgate's control state in one SQLite database
// beside the node. It implements the port in package store.
//
// # Model
//
// One goroutine, the writer, owns the only connection that writes. It takes
// every function that waits, runs them one after the other in one transaction
// (each in a savepoint of its own), commits once, and answers all: one fsync
// serves the whole group. Readers use a small pool of connections of their
// own, each View in one snapshot of the write-ahead log. A third party, the
// checkpointer, moves the log into the database in the background.
//
// Statements are prepared once per connection; no call parses SQL.
//
// # Invariants
//
//  1. One process per database: an exclusive lock on a file beside it is held
//     from Open to Close.
//  2. Update answers nil only after COMMIT returned, which with
//     synchronous=FULL means after the log was fsynced.
//  3. A function that fails or panics loses its own writes only. When SQLite
//     had to give up the whole transaction, its neighbours run again, each in
//     a transaction of its own.
//  4. Nobody is answered before the group's commit, also a function that
//     failed: it may have decided so upon a neighbour's uncommitted writes.
//  5. The write-ahead log is bounded (see maxLogPages), also under readers
//     that never pause: when it is full, new Views wait, up to two seconds,
//     until it is emptied. Only a View that does not end can hold it longer.
//  6. A database that is foreign, damaged or of a newer schema is refused at
//     Open and left as it is.
//
// # Failure behaviour
//
// A full disk refuses the writes (disk_full, not applied). A disk that fails
// within COMMIT leaves the outcome unknown, and the error says so. A power cut
// loses nothing that was answered, unless Config.Relaxed is set.
//
// # Concurrency
//
// A Store is safe for concurrent use. A Tx belongs to the function that got
// it; using it afterwards is an error.
package sqlitestore
