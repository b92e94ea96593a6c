// Package index answers questions about the past: where one event is, what its
// causal tree looks like, and why it went where it went.
//
// # Model
//
// [Index.Run] follows every stream that is not declared without an index. For
// each stored event it writes one row of attributes (which SQL stores keep in
// chunks of rows), and in the same store transaction how far it came, so that a
// crash at any point neither skips nor doubles an event. It wakes up when the
// broker hands something out, and is idle otherwise. Payloads stay in the
// broker: they are read when asked for.
//
// Nothing waits for the index. It lags behind under load, every answer says by
// how much, and [Index.Wait] waits for it. All of it can be rebuilt from the
// streams.
//
// # Invariants
//
//  1. A row is written in the transaction that moves the cursor past its event;
//     the cursor of a partition never falls but by [Index.Rebuild].
//  2. A tree holds every row of its root once. An event hangs below its first
//     cause; if that is not there (retention took it, or it belongs to another
//     root) it hangs below the root.
//  3. Every edge of a tree goes to a greater hop, so that no combination of ids
//     makes a cycle.
//  4. Answers are bounded: nodes of a tree, rows read for it, cuts.
//
// # Failure
//
// A fault of the broker or the store stops following that stream; it starts
// again from the stored cursor after a pause that doubles up to five seconds.
// What retention removed before it was read is not in the index.
//
// # Concurrency
//
// Everything is safe for concurrent use. Run may be called once at a time.
package index
