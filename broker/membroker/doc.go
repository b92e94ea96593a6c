// Package membroker is the broker in memory: the reference that the port's
// conformance suite is written against, the broker of tests, and of
// `headgate dev --memory`. Nothing survives the process.
//
// # Model
//
// A stream is one slice of events per partition. Publish appends under one
// lock and is therefore never ambiguous by itself; Trim forgets a prefix.
// Events are kept as the pointers that were published: they must not be
// modified afterwards, as for every admitted event.
//
// # Faults
//
// Tests make it misbehave through [Faults], a plan drawn from a seed: publishes
// that are throttled, that answer Unknown with or without having stored, that
// are delayed, deliveries that come twice or out of order between partitions,
// settlements that are lost, and [Broker.Crash], which ends every subscription
// and publish in flight as a broken connection would, while what was stored
// stays. The same seed and the same order of calls give the same faults.
//
// # Invariants
//
//  1. Without faults every invariant of package broker holds.
//  2. A fault never breaks the port's promises, it only uses what they leave
//     open: an event answered Stored is there; one answered Throttled is not.
//
// # Concurrency
//
// All methods may be called from any goroutine, also inside a
// testing/synctest bubble: waiting is on channels and timers only.
package membroker
