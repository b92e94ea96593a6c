// Package lease grants leases whose epochs the storage itself checks. Two
// workers may both believe that they hold a lease; only the newest one can
// change fenced state.
//
// # Model
//
// A resource is a name such as "ticket/42". A grant of its lease has an epoch,
// a random nonce, a holder (a principal) and an end. The store keeps one row
// per resource that was ever leased. Every grant and every end of one
// (release, revoke) raises the epoch to max(previous + 1, store's clock in
// microseconds). A signed token carries resource, epoch and nonce; whoever
// writes under the lease sends it along, and whoever stores the write checks
// it in the same transaction: [Service.Guard] for what Headgate stores.
//
// Ending a lease by time is a matter of liveness: who died makes room. The
// epoch is the matter of safety: what was superseded stays superseded, also
// when every clock lies.
//
// # Invariants
//
//  1. Epochs of a resource rise strictly. None is given twice, also after rows
//     were lost or an old backup was restored: the clock is their floor, and
//     the nonce tells two grants of one epoch apart.
//  2. Guard passes a fence only while epoch and nonce are the stored ones, the
//     gate is open and the lease has not run out, as the transaction sees it
//     that the guarded write commits in.
//  3. A lease that ended, however, never passes Guard again: "stale" is final,
//     and so may be remembered (see [Service.Superseded]).
//  4. A lease is granted only when it is free, released or has run out by the
//     store's clock. No clock of a holder or a node takes part.
//  5. A renewal moves the end of the lease and nothing else. It never brings a
//     superseded lease back, and none that is being revoked.
//  6. Several resources are granted together or not at all, so that no two
//     calls can wait for each other.
//  7. Of the waiting calls of one node none overtakes another that could be
//     served, and none keeps a free resource from others for long: see the
//     type ticket. Those of several nodes compete.
//  8. A request id names one request: repeating it while the lease lasts returns
//     the same grant, and afterwards conflict, never another grant. Another
//     request under it is conflict, too. The store remembers that, across
//     restarts: the rows until another request is granted, and a table for an
//     hour after that, or the latest 65,536 such ids. A request whose grant
//     stands waits for nobody.
//  9. While its gate is closed a grant passes no guard and is not renewed. Its
//     holder may finish: [Service.Finish] ends it with its last write.
//  10. A request that names targets to seal is answered with a grant only when
//     each of them knows of it, and the grant stands. When none of the calls that
//     seal it together succeeds, the last of them gives it back, provided that the
//     one that was granted it is among them. A call that repeats an earlier one
//     ends nothing: somebody may work under the lease.
//  11. A target that a lease was sealed at is told of its end once that is
//     committed, and never before: see the type endings. Nobody waits for it but
//     who revokes. A sealed lease that ran out is ended after another TTL.
//
// # Failure
//
// An *headgate.Error says what happened: lease_held (somebody has it; retry
// after), lease_lost (yours was superseded; stop), lease_closing (being
// revoked; finish and release), lease_expired (ran out, not superseded; renew),
// seal_failed (a target could not be told; the leases were given back,
// or, with the outcome unknown, kept for another call of the request),
// stale_fence (a write came too late), fence_conflict (another grant of the
// same epoch), fence_invalid and fence_foreign (not a token, or not for you).
// While the store is down nothing is granted or renewed and no guard passes.
//
// # Concurrency
//
// A Service is safe for concurrent use. Its waiting calls hold no lock and no
// transaction.
package lease
