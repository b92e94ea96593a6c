// Package quarantine keeps what was refused, extinguished, expired or parked,
// with everything known about it, grouped by fault.
//
// # Model
//
// A record comes in by one of two ways. [Quarantine.Refused] records what the
// perimeter refused: evidence, worth keeping within a quota. [Quarantine.Put]
// records a delivery that a subscription could not handle: the only copy of
// work that is still owed, stored in the transaction that settles the
// delivery. Every record has a QID that rises with time, a kind, a stable
// reason, a fingerprint that groups it with others of the same fault (see
// [Fingerprint]), the payload byte for byte, and a [Detail] with the rest.
//
// # Invariants
//
//  1. A record that came by Put is whole, and durable exactly when the
//     settlement is: both are one transaction. It is never dropped for lack of
//     room: at the bound Put fails with quarantine_full and the lane waits.
//  2. Every refusal is either kept as a record or counted in [Quarantine.Overflow];
//     none is both, and none is neither (but see Failure).
//  3. A refusal never waits longer than Config.RefusalWait for its record, and
//     never fails because of it.
//  4. One principal's refusals never cost another's: quotas are per principal.
//  5. Memory is bounded whatever is refused: the queue of records by count and
//     bytes, the quotas and counters by number of keys.
//  6. No text of a record holds control characters or more than its limit;
//     payload stands in Body alone.
//  7. A fingerprint's version is part of it; old records are never re-hashed.
//
// # Failure
//
// When the store is slow or unavailable, refusals are counted instead of kept.
// Counters are flushed to the store once a second and at the end of Run and
// Close; a crash loses what was counted since the last flush. A record whose
// write outlasts that wait may still be stored; its caller was told no QID.
// After a restart the quota of the running hour is counted anew from the
// store, so that a restart does not refill it.
//
// # Concurrency
//
// A Quarantine is safe for concurrent use. Refusals are written by one
// goroutine that exists only while there are any; Close waits for it.
package quarantine
