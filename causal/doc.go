// Package causal holds causes: the tokens that agents carry, the hops that are
// left, the gas of a root, the breadth of a delivery, loops on a causal path
// and the right to start roots.
//
// # Model
//
// An event without a cause is a root; every other event is a child of the
// deliveries that caused it. The engine judges each event before it is stored
// ([Engine.Reserve]) and computes its header; nothing in that header comes from
// a client. What a client holds is a token ([Engine.Mint]), an opaque string
// with a MAC over everything the engine needs to know of one delivery.
//
// A root's lineage names the boot of the node that admitted it and a number
// within that boot. The two together are the root's account of gas: event ids
// are chosen by clients, so an account by id could be drained by whoever knows
// the id. The admitting node holds a grant of the first [GrantSize] units.
// Nothing is kept in memory for it: as long as the node has never met the root
// again and never forgot a younger one, the grant is whole. Everything beyond
// the grant is debited from the store in slices, before use.
//
// A path is kept as the set of its (principal, type) hashes with how often each
// occurred, the latest last. With several parents the counts are merged by
// their maximum, which is exactly the greatest count on any single path: a loop
// is seen through every parent, not only through the first.
//
// # Invariants
//
//  1. The events ever admitted under one root, the root included, never exceed
//     its gas: not with many emitters, several nodes, restarts or crashes.
//     Units are lost by a crash; they are never made.
//  2. A child has fewer hops left than each of its parents, and at least 1.
//  3. No change to a valid token verifies; a token verifies only for the
//     principal that it was minted for, until it expires.
//  4. A path's count of a pair is never below the true one; it is exact while
//     the ancestors hold at most 24 different pairs.
//  5. The lineage in a header and the token have a constant bound, whatever the
//     depth.
//  6. A guard that cannot check refuses: without the store, gas beyond the
//     local balance answers unavailable.
//
// # Failure
//
// Breadth counters, root rates and local balances live in memory. A restart
// forgets the counters (the gas still caps the tree) and strands the balances.
// A debit whose commit is in doubt counts as spent. Memory is bounded by
// constants; forgetting under pressure strands gas, or restarts a breadth
// counter, and never adds gas.
//
// # Concurrency
//
// Everything is safe for concurrent use. Emitters under one root share one
// debit; nobody holds a lock while waiting for the store, and roots are debited
// one after another, so that joins cannot deadlock. [Engine.Run] keeps keys
// fresh and old accounts out of the store; without it the engine still judges
// correctly, with the keys it opened with.
package causal
