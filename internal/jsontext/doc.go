// Package jsontext reads JSON texts strictly: RFC 8259 grammar, UTF-8, paired
// surrogates, unique names, bounded depth and numbers. It is the one tokenizer
// behind envelopes and contracts.
//
// # Model
//
// A [Scanner] walks one complete text that lies in memory and hands out tokens
// as offsets into it; nothing is copied. [Check] walks a text once and also
// refuses names that come twice in one object. What is wrong is told by a
// [Fault], which names the byte, the line, the column and the JSON Pointer.
//
// # Invariants
//
//  1. What is accepted is accepted by every conforming parser, and read alike
//     by all of them: no duplicate names, no invalid UTF-8, no lone
//     surrogates, no numbers beyond the limits. (Some parsers keep the first
//     of two equal names, some the last: a check of one does not bind the
//     reader of the other.)
//  2. Time is linear in the length of the text, whatever it holds. A number is
//     judged by the length of its token and by its exponent, never converted.
//  3. Valid input costs no allocation, apart from objects with many members
//     and names with escapes, which may.
//  4. Depth is counted, not recursed: no text can exhaust the stack.
//  5. A fault is a pure function of text and limits.
//
// # Failure
//
// A scanner that met a fault returns the same fault for ever. No function of
// this package panics, except [Unquote] on bytes that are no string token.
//
// # Concurrency
//
// A Scanner belongs to one goroutine. The functions are safe for concurrent
// use as long as nobody writes to the text.
package jsontext
