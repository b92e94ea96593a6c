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
//
// Not found is an *headgate.Error with code not_found.
package store
