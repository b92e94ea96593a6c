// Package api holds the JSON shapes of the HTTP API, shared by the server and
// by its clients. docs/http.md describes the calls; /openapi.json of a running
// node is generated from these types.
//
// # Invariants
//
//  1. Field names are a promise: a name is never reused with another meaning.
//  2. Events travel as the CloudEvents JSON format, kept raw, so that numbers
//     and unknown attributes stay as they are.
//  3. Every refusal, alone or within a list, carries the same members: code,
//     detail, fix, retryable and outcome.
//
// Clients must ignore members that they do not know. Values of this package
// are plain data and safe to copy.
package api
