// Package condition evaluates expressions over one event: the when of a
// subscription, the key of a type, and the {…} parts of templates. The
// language is CEL; docs/conditions.md is its page for users.
//
// # Model
//
// A [Condition] yields true or false, a [Value] yields text. Both are compiled
// once and evaluated over a [Scope], which is one event and what was parsed of
// it. The data is parsed when the first expression touches it, once per scope:
// conditions over attributes alone never pay for it.
//
// # Invariants
//
//  1. Integers keep every digit: as int or uint where they fit 64 bits, else
//     as a string, on which arithmetic is an error. Nothing is rounded.
//  2. An expression is bounded when it is compiled (length, nodes, depth,
//     regular expressions) and each evaluation by a cost limit, so that no
//     event can make a condition expensive.
//  3. Expressions see the event and nothing else: no clock, no other event.
//     The same event gives the same answer, and the same error text.
//
// # Failure
//
// What does not compile is an invalid_argument with line and column. What
// cannot be evaluated (a missing field, a wrong kind, the cost limit) is an
// error, never a silent false; the caller treats it as a non-match and shows
// the reason. All errors are *headgate.Error.
//
// # Concurrency
//
// Everything is safe for concurrent use; compiled expressions are immutable.
package condition
