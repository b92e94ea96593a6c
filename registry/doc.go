// Package registry keeps the contracts: subjects, versions, deletion, drafts,
// and the set of compiled contracts that the perimeter looks up.
//
// # Model
//
// A subject is the name of an event type; its versions count from 1. The
// latest version that is not deleted is in use: payloads are checked against
// it. The store keeps every version with the policy that it was compiled
// under; the compiled contracts in use lie in a map that is replaced whole
// when one of them changes.
//
// A draft is a version that was inferred from a payload, in development. The
// first explicit registration of its subject takes its place: the draft is
// then deleted like any other version.
//
// # Invariants
//
//  1. Lookup takes no lock and sees either the set before a change or the set
//     after it.
//  2. Versions of a subject have no gaps, and a number is never used twice,
//     also after a deletion.
//  3. Registering the very schema that is in use changes nothing, whoever else
//     does so at the same time. The very schema is one with the same digest:
//     white space, the order of members and the spelling of numbers and
//     strings do not count, the policy does.
//  4. Deletion is soft: a version stays readable, so that old verdicts can be
//     explained.
//  5. What Lookup returns was committed to the store before.
//
// # Failure
//
// Errors are [*headgate.Error]. A stored contract that does not compile any
// more does not keep the registry from opening: its subject has no contract,
// so that its events are refused, and [Registry.Broken] says why.
//
// # Concurrency
//
// A Registry is safe for concurrent use. Contracts are compiled outside of
// every lock and transaction. Changes that another node makes are not seen
// before the registry is opened again.
package registry
