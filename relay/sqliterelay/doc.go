// Package sqliterelay reads the outbox of an SQLite database: the driver of
// package relay for SQLite, over any driver of database/sql.
//
// # Model
//
// [Install] prepares a database: the view headgate_outbox, which writers insert
// into, and the table behind it, whose numbers rise and never come again. SQLite
// has one writer at a time, so that the order of the numbers is the order of the
// commits, and whatever is behind the last number read was committed after it:
// a cursor is enough, and lies in the same file as the rows.
//
// A session holds a lock on a file beside the database and raises the epoch in
// headgate_outbox_state. It reads when a writer of its own process wakes it
// ([Source.Wake]) or when SQLite says that another connection committed
// (PRAGMA data_version, every 20 ms, which reads no table). It syncs the
// write-ahead log before it hands rows out. What the relay confirms is written
// to the state at most every 100 ms.
//
// # Invariants
//
//  1. A row is handed out only after it is durable, whatever the writer's
//     synchronous mode.
//  2. The confirmed place rises only by what the relay confirmed, and only while
//     the row there is the one that was read.
//  3. The row at the confirmed place is never deleted. With its id it proves that
//     the rows before it are those that were published: in a database that was
//     restored or tampered with it is another one, and everything that is kept
//     is published again rather than something skipped.
//  4. Rows are deleted only below the confirmed place, by the relay, a bounded
//     number at a time. The file is never vacuumed.
//  5. While nothing is committed, no statement reads or writes a table.
//
// # Failure
//
// A database that is replaced or restored underneath ends the session; the next
// one goes by what the file says itself. A writer's turn that does not come
// keeps the cursor where it is, so that more is repeated after a crash; reading
// and publishing go on. The lock ends with the process; the next relay looks
// for it every 100 ms.
//
// The file must lie on a local disk of one host. A program that writes the
// database and runs its relay in one process must use one SQLite library for
// both (see [Config.Connect]). A connection with synchronous = OFF may lose a
// commit that was published, since it does not sync what it moves out of the
// log; SQLite does not promise an intact file then, either.
//
// # Concurrency
//
// A Source is used by one relay; Wake is safe at any time. Install, Inspect,
// Doctor, Replay, Watch and Unwatch are safe beside a running relay.
package sqliterelay
