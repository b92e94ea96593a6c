// Package pgstore keeps Headgate's control state in a PostgreSQL database
// (14 or newer) that several nodes may share. It implements the port in
// package store.
//
// # Model
//
// In each node one goroutine, the writer, owns the only connection that
// writes. It takes every function that waits, runs them one after the other in
// one transaction, commits once, and answers all: one flush of the server's log
// serves the whole group. The transaction begins with an advisory lock that
// every writer of the schema takes, so that the groups of all nodes follow one
// another. Views use a small pool of connections of their own, each View in
// one REPEATABLE READ READ ONLY transaction.
//
// Statements are prepared once per connection. Writes whose result nobody
// needs are not sent one by one: they wait in a queue and travel with the next
// read, or with COMMIT. A group without reads is one exchange with the server.
// A savepoint is sent only for a function whose writes left the queue before
// it ended.
//
// Names are schema-qualified in every statement, and search_path is pinned.
// Strings are bytea, so that they come back byte for byte and sort as Go sorts
// them, whatever the database's encoding and collation; times are nanoseconds,
// which timestamptz cannot hold.
//
// # Invariants
//
//  1. Writers of one schema hold its lock from their first statement to the
//     end of COMMIT. What a function reads in Update is therefore the latest
//     committed state, although the transaction is READ COMMITTED, and outbox
//     numbers rise in the order of commits across all nodes.
//  2. Update answers nil only after the server reported COMMIT, which with
//     synchronous_commit=on means after its log was flushed.
//  3. A function that fails or panics loses its own writes only. When a
//     statement ended the whole transaction, its neighbours run again, each in
//     a transaction of its own.
//  4. Nobody is answered before the group's commit, also a function that
//     failed: it may have decided so upon a neighbour's uncommitted writes.
//  5. Migrations run one transaction per step under the writers' lock: nodes
//     that start together wait for each other.
//  6. A schema that is foreign or newer, a standby, and a server without fsync
//     (unless Config.Relaxed is set) are refused and left as they are, at Open
//     and at every later connection.
//
// # Failure behaviour
//
// A connection that is lost before COMMIT was sent changed nothing: the group
// runs again on a new one, once the server takes it. When it does not,
// the error is unavailable, not applied. A connection that is lost after
// COMMIT was sent and before its answer leaves the outcome unknown, and the
// error says so. Serialization failures and deadlocks (which only foreign
// sessions can cause) run the group again a few times. A node that stops in the
// middle of a group holds up the other nodes' writers for as long as
// Config.IdleTimeout; then the server ends its session.
//
// # Cancellation
//
// A context that ends before an Update's function was started abandons it.
// Later it has no effect: a driver that gave up a statement would have to drop
// the connection under the whole group, so that statements have deadlines of
// their own (Config.StatementTimeout). A context that ends in a View closes
// the connection that the View uses; the pool opens another.
//
// # Concurrency
//
// A Store is safe for concurrent use. A Tx belongs to the function that got
// it; using it afterwards is an error.
package pgstore
