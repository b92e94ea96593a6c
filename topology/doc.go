// Package topology is the table of declared streams and event types: one
// lookup from an event type to its stream and its limits.
//
// # Model
//
// The most specific pattern wins, whatever the order of declaration: the type
// itself before "a.b.*" before "a.*" before "*". So a type finds the stream it
// belongs to ([DefaultStream] if none takes it), and so it finds its limits.
//
// # Invariants
//
//  1. Every event type has exactly one stream and one set of limits; Lookup
//     never fails and its answer never changes.
//  2. Memory is bounded whatever types are asked for: types are hostile input.
//  3. New reports every problem of a declaration at once. A pattern belongs to
//     one stream.
//
// # Concurrency
//
// A Table is immutable but for a cache of answers, and safe for concurrent use.
package topology
