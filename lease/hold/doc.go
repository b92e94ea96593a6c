// Package hold keeps a lease for as long as its work lasts: it renews it in
// the background and ends the work's context in time.
//
// # Model
//
// A [Keeper] is where leases come from: a node over HTTP (client.Client) or
// the lease service of this process. [Acquire] returns a context that lives
// while the lease does, and a [Lease] whose token goes with every write.
//
// # Invariants
//
//  1. The context ends, with a cause, before the lease can have run out: at
//     the time when the last confirmed request was sent, plus what the answer
//     said was left, minus a margin. That is counted on this process's
//     monotonic clock; no wall clock takes part, and no network is needed.
//  2. Once the context has ended for a lost lease it stays ended, also when a
//     late renewal succeeds.
//  3. Renewals are tried about every third of the TTL, with jitter, and again
//     until the deadline when they fail for a passing reason. A final refusal
//     (lost, closing, held for too long, no right) ends the context at once.
//  4. With Opts.Progress a worker that does not report progress loses its
//     lease: code that hangs must not keep it.
//
// A context that ended does not stop a worker that does not look at it. That
// is what the token is for: what such a worker still writes is refused where
// it is stored.
//
// # Failure
//
// context.Cause gives an *headgate.Error: lease_lost, lease_closing,
// lease_expired (the deadline passed without a confirmed renewal; its detail
// says why), or context.Canceled after Release. Nothing is logged.
//
// # Concurrency
//
// A Lease is safe for concurrent use. Its only goroutine ends with Release, or
// with the context that Acquire was given.
package hold
