// Package router turns stored events into deliveries: subscriptions, lanes per
// key, claims, attempts, retries, parking, and the publication of what
// consumers emit.
//
// # Model
//
// A subscription gets the events of every partition of the streams that may hold
// its types, from the floors that the store keeps. For one subscription an event
// is, at any moment, in exactly one of these places:
//
//	           read                 dispatch              settle
//	pending ─────────► in memory ─────────────► in flight ───────► done, counted
//	   ▲                  │                        │ fails           ▲
//	   │ restart          │ key blocked            ▼                 │ settled, parked,
//	   └──────────────    └────────────────► exception row ──────────┘ expired, …
//	                                         (retry, attempt, held)
//
// Progress is one row per subscription and partition: a floor below which
// everything is done, a bitmap of what is done above it, and counts of how the
// done events ended. An event whose first attempt failed, or that must wait
// behind a failing event of its key, moves to an exception row: its bit is set,
// so that the floor moves on, and it is counted only when its exception ends.
// The first dispatch of an event writes nothing.
//
// All changes of one subscription pass through one committer, which saves what
// has gathered in one store transaction and only then lets memory follow and
// tells the broker; a tide holds the committers of those it saves. What
// consumers emit is in the same transaction, as rows of the node outbox, which a
// pump publishes in order.
//
// # Feeds
//
// One feed reads a stream for all subscriptions that stand near its end, its
// members. It finds those that take an event by an index over the types, and
// queues the event for them; a member takes in by itself what is queued, and
// evaluates its condition then. It waits for nobody:
//
//	        near the end, with room: join
//	alone ─────────────────────────────────► joining ── has read up to the
//	  ▲    reads by itself, held back by        │        feed's place ──► member
//	  │    its own buffers alone                │                           │
//	  └─────────────────────────────────────────┴───────────────────────────┘
//	        queue full: out, what is queued is taken in first
//
// What a member is not handed is not for it, so that the feed's place implies
// its progress. It is told with the next event, when somebody asks, when it
// ends, and by tides, which save the progress of many members in one
// transaction every 5 to 30 seconds.
//
// # Invariants
//
//  1. Start ≤ Floor, and the number of done events equals the sum of the counts
//     plus the number of exceptions, in the store and in memory (see
//     [Router.Conservation]).
//  2. Nothing is told to a caller or to the broker before the store has it;
//     with dedupe window or none, settlements without children are excepted.
//  3. An event is counted exactly once, in the transaction that ends it.
//  4. A parked, expired or extinguished event's quarantine record is in the
//     transaction that ends it. A full quarantine makes the event wait.
//  5. An attempt after the first is in the store before it is dispatched. So is
//     the first one of any event that an unclean stop may have interrupted:
//     an event that kills the node runs out of attempts.
//  6. Under the orders strict and release at most one event of a key and stream
//     is in flight, and always the first; the next one goes only when the end
//     of the one before is committed. One key never stops another.
//  7. A child is published at least once after its settlement was committed,
//     and never if it was not.
//  8. Memory is bounded: by twice Config.Buffer per partition for events, and
//     per stream for what a feed has queued, beside the window of a reader of
//     its own; by 250,000 exceptions per subscription, which stop its reading,
//     loudly.
//  9. A feed never waits for a subscription and takes no lock that one holds
//     while it works, evaluates, saves or calls. The
//     queue of a member is whole up to where the feed stands, or, when it is
//     out, up to where it was put out. What is in it is in the order of offsets,
//     and what the feed says of its place stands behind what it handed out
//     before.
//
// # Leases
//
// Where a subscription asks for it, each delivery is worked on under a lease,
// which lasts a little longer than the claim. Its settlement is guarded by it,
// and ends it, in one transaction. When the lease is superseded on this node
// the claim ends at once and the delivery goes back to its queue; that attempt
// does not count.
//
// # Endings
//
// An event that reaches a matching subscription without a header was not
// admitted by the perimeter: it ends as discarded. One with a header and no
// hops left ends as extinguished. One that passed its expirytime, or the
// subscription's expire, before its dispatch ends as expired. All three leave a
// quarantine record. One that retention removed before the subscription read
// it, which only a forced trim does, ends as trimmed.
//
// # Failure
//
// While the store is down nothing settles and nothing is retried: settlements
// of pull consumers answer unavailable and their claims stay; everything else
// is repeated until it succeeds. Progress that only stepped over the events of
// others may be a tide old after a crash; they are read again. When the outcome
// of a transaction is unknown the progress rows are read again, and decide.
// While the broker is down reading waits; what is in memory goes on. A shutdown
// is not an attempt. After an unclean stop, events that had been dispatched come
// again with their attempt above that of the tokens given out before, which are
// superseded.
//
// # Concurrency
//
// A Router is safe for concurrent use. Changing a subscription stops and starts
// it, which waits for its handlers: a handler must not change its own
// subscription.
//
// # Files
//
// router.go, lifecycle.go, restore.go: what runs. spec.go, start.go,
// subscriptions.go: what users configure. item.go, sub.go, progress.go: state.
// feed.go, typeindex.go, member.go, tide.go: the shared feeds; alone.go: reading
// without one; intake.go: from either into lanes. dispatch.go, claims.go,
// inactive.go, leases.go, handler.go, settle.go, acks.go: to consumers and back.
// retry.go, tombstone.go: what failed. commit.go, clock.go, outbox.go: what is
// saved, timed and published. conserve.go, explain.go, trim.go: what operators
// ask.
package router
