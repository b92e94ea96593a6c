// Package registry keeps the contracts and every other schema that clients
// register: subjects, versions, ids, references, deletion, drafts, levels of
// compatibility, and the set of compiled contracts that the perimeter looks up.
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
// Clients of a registry see the same subjects, and more of them: in contexts
// of their own, and under any name. What they register under the name of an
// event type, in JSON Schema or Avro, is its contract. Ids, versions and
// references as they know them are kept beside the contracts, in the same
// transactions; drafts are contracts alone. The perimeter asks by those ids
// which version a framed payload was written with ([Registry.Named]).
//
// # Invariants
//
//  1. Lookup takes no lock and sees either the set before a change or the set
//     after it.
//  2. Versions of a contract have no gaps, and a number is never used twice,
//     also after a deletion. Subjects that never had a contract start at 1
//     again after a deletion for good.
//  3. Registering the very schema that is in use changes nothing, whoever else
//     does so at the same time. The very schema is one with the same digest:
//     white space, the order of members and the spelling of numbers and
//     strings do not count, the policy does.
//  4. Deletion is soft: a version stays readable, so that old verdicts can be
//     explained.
//  5. One content has one id in a context, and no id is given twice.
//  6. No version is registered that the subject's level of compatibility does
//     not allow, by whichever way it comes, unless in an import.
//  7. A schema that another one refers to is not deleted before it.
//  8. Nothing is fetched: references lead to registered versions.
//  9. What Lookup returns was committed to the store before. Named returns
//     live versions of the subject alone.
//
// # Failure
//
// Errors are [*headgate.Error]; what clients of a registry are refused is a
// [*Fault] with their code. A stored contract that does not compile any
// more does not keep the registry from opening: its subject has no contract,
// so that its events are refused, and [Registry.Broken] says why.
//
// # Concurrency
//
// A Registry is safe for concurrent use. Contracts are compiled outside of
// every lock and transaction, and compared there: a write is done only if the
// subject is as it was when it was compared. Changes that another node makes
// are not seen before the registry is opened again.
package registry
