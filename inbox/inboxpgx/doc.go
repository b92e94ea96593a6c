// Package inboxpgx is the inbox in a PostgreSQL database: its installation, and
// the adapter for transactions of pgx.
//
// # Model
//
// [Install] makes schema headgate_inbox, which belongs to whoever installs, and
// functions in schema headgate that run with the owner's rights. A consuming
// role needs headgate_consumer and no right on any table; it can neither read,
// alter nor delete what was received. Roles with headgate_consumer trust one
// another: each can note any consumer's event.
//
// Rows lie in generations, each a table of its own that is dropped whole. A new
// generation begins only when no transaction that received is open, so that the
// unique index of the present one is enough against concurrent duplicates; see
// schema.sql. [Maintain] begins generations and drops old ones; somebody must
// call it now and then (package unit/worker does).
//
// # Failure
//
// Refusals are *headgate.Error; the SQLSTATEs are in docs/inbox.md. Under
// repeatable read and serializable a transaction that is older than the present
// generation, or that meets an uncommitted duplicate, fails with 40001: run it
// again.
//
// Nothing is kept in sessions: it works through PgBouncer in transaction mode.
//
// # Concurrency
//
// Everything here is safe for concurrent use, a Tx as safe as its transaction.
package inboxpgx
