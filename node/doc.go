// Package node assembles a Headgate node: Config → Node. It opens what the
// configuration names, in order, runs it, and drains it in reverse order.
//
// # Model
//
//	store → principals, registry, topology → broker → quarantine, causal
//	      → perimeter → router → index → HTTP
//
// Drivers are handed in by the command as values ([Drivers]): this package
// imports none, and nothing registers itself.
//
// # Invariants
//
//  1. Open returns only a node on which every guard works: unsafe drift of a
//     stream, a contract that does not compile, a subscription that cannot be
//     read are errors, not warnings.
//  2. A node runs on streams that belong to its store alone: it makes them so
//     before it creates or reads one, and ends when another store adopted them.
//  3. Run serves no request before the router runs, and answers none with
//     success after the broker closed.
//  4. Draining stops the door first, then deliveries, then what they write to.
//
// # Failure
//
// The first component that fails ends the others, and Run returns its error.
package node
