// Package principal authenticates: it knows the principals and their bearer
// tokens, and says who a request comes from.
//
// # Model
//
// A principal has any number of tokens. The directory makes most of them:
//
//	hg_<id>_<secret>
//
// The id is public and selects the token; the secret has 256 bits and is kept
// only as its SHA-256. Tokens that the operator chose (configuration,
// environment) are adopted: their id is derived from the token by a hash of
// its own, so that they are found in the same way.
//
// Everything is held in memory in one immutable picture. A change is written
// to the store first and then replaces the picture whole.
//
// # Invariants
//
//  1. No secret is stored, logged or put into an error.
//  2. Authenticate takes no lock and reads no store. A change is in force for
//     every Authenticate that begins after the changing call returned.
//  3. Every failure of Authenticate is the same error. What it does for an
//     unknown id does not differ from what it does for a wrong secret: the
//     same hashes and the same constant-time comparisons.
//  4. Only a human can be an approver, and an agent is never operator,
//     approver or admin, whatever a record says.
//  5. The last enabled admin can be neither disabled nor deleted nor, but by
//     the configuration, stripped of the role.
//  6. A token that was revoked never becomes valid again, also when a
//     configuration still names it. What was disabled stays so until Enable.
//
// # Failure behaviour
//
// When the store fails, nothing changes and its error comes back. When the
// outcome of a write is unknown the directory reads the store anew; if even
// that fails, the principal concerned is refused until [Directory.Reload]
// succeeds.
//
// # Concurrency
//
// A Directory is safe for concurrent use. Changes wait for each other.
package principal
