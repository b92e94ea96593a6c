// Package confluent is the registry's face for clients of a Confluent schema
// registry, below /registry/ of the HTTP API.
//
// # Model
//
// The face translates: paths, bodies and codes are those that the clients
// know, subjects and schemas are the registry's own. A JSON schema that is
// registered here under the name of an event type is that type's contract.
//
// # Invariants
//
//  1. An error body has two members, error_code and message, and no answer has
//     members that the clients' documentation does not name: some clients fail
//     on others.
//  2. A setting that is not enforced is refused; null and empty values of such
//     settings are ignored.
//  3. The caller is known, and its right checked, before a body is read.
//  4. The text of a schema is answered byte for byte as it was registered.
//
// # Failure
//
// Refusals of the registry keep their code. Failures of the store are 50001,
// and 50002 when they took too long; their text is for the log of the node and
// not for clients.
//
// # Concurrency
//
// Calls are served at the same time, 64 at once; others wait.
package confluent
