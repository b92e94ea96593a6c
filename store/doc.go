// Package store is the port to Headgate's control state: contracts,
// principals, subscriptions, delivery progress and exceptions, the node
// outbox, the quarantine, gas, and the event index. Events themselves live in
// the broker. Drivers live in subpackages (sqlitestore, …) and pass the
// conformance suite in storetest.
//
// # Model
//
// A Store runs functions in transactions. Inside one, a [Tx] gives one small
// interface per role. What a function wrote through it is committed whole or
// not at all, and durable (fsynced, where the driver can) when Update returns
// nil.
//
// # Invariants
//
//  1. Update is serialisable: no two functions of one store interleave their
//     effects.
//  2. Drivers may commit several functions together (group commit); the
//     failure of one never fails its neighbours.
//  3. A function may run more than once, or run and be rolled back although it
//     returned nil: it must have no effect outside its Tx. It must not block
//     on anything but the Tx: every other writer waits for it.
//  4. A nil error from Update means durable; an *headgate.Error with outcome
//     unknown means that the commit may have happened.
//  5. Nobody learns the result of a function before what it saw is durable,
//     also not of one that failed upon what a neighbour wrote.
//  6. View sees one snapshot: everything that was acknowledged before it
//     began, and nothing uncommitted. Writing in it is an error.
//
// # Values
//
// Strings and byte strings come back byte for byte, whatever they hold (NUL,
// invalid UTF-8, nothing); nil stays nil and empty stays empty. Times come
// back in UTC to the nanosecond, the zero time as itself; offsets and counters
// reach up to 2^63-1. What a driver cannot keep it refuses with
// invalid_argument, it never changes it. A limit of 0 or below selects nothing
// where no default is named.
//
// # Failure behaviour
//
// Not found is an *headgate.Error with code not_found; a lost race or a
// broken rule is conflict. A function that panics fails with internal and
// loses its writes. A call whose context ends before its function was started
// fails with canceled, not applied, and wraps the context's error; calls after
// Close fail with draining. disk_full and unavailable are not applied.
//
// # Concurrency
//
// A Store is safe for concurrent use. A Tx is not, and dies with its function.
package store
