// Package fence holds what the guards for users' own databases share: the
// fence that a holder presents, the template that says which resource a row
// belongs to, and the memory of superseded epochs.
//
// A fence is one grant of a lease: resource, epoch, nonce. A guard accepts it
// only while the database next to the data says that this grant is the current
// one. Nothing here decides that; see packages fencepg and fencesqlite.
//
// # Invariants
//
//  1. Parse accepts what a lease token says without verifying its signature.
//     The nonce, which only the grant's holder knows, is what the storage
//     compares.
//  2. A template names columns and literal text only. It never carries SQL.
//  3. Seen only ever knows epochs that were committed somewhere, so that its
//     "superseded" is final. It may forget.
//
// All types are safe for concurrent use unless they say otherwise.
package fence
