// Package compat decides whether two versions of a schema can live side by
// side: whether a reader that holds one of them can take what a writer with
// the other one writes.
//
// # Model
//
// Backward compatible means: what the earlier version allowed, the new one
// reads. Forward compatible means the reverse, full means both; the transitive
// levels ask it of all earlier versions and not of the last alone. Either way
// the question is the same one of an ordered pair (writer, reader), and the
// engine knows no other.
//
// For JSON Schema the engine shows that every value which the writer's schema
// allows is allowed by the reader's, keyword by keyword. What it cannot show
// is a [Difference] with the id of a rule; a [Policy] says which rules are
// forgiven. For Avro the specification's resolution rules decide.
//
// # Invariants
//
//  1. The answer depends on the two schemas and the policy alone: never on
//     time, load or the order of a map. Work is counted, not timed, and a pair
//     that is too complex to compare within the count is refused, always.
//  2. Under [Logical] a pair is compatible only if every value of the writer
//     passes the reader. Branches of oneOf count as alternatives of which one
//     fits; that no second one fits is not shown.
//  3. What one policy forgives, every more lenient one forgives.
//  4. A schema is compatible with itself.
//  5. Nothing is fetched: references lead to the documents that were handed in.
//
// # Failure
//
// There are no errors: schemas that cannot be read or compared are
// incompatible, with a rule that says so.
//
// # Concurrency
//
// All functions are safe for concurrent use; nothing is kept between calls.
package compat
