// Package admin is the JSON API for operators and tools: contracts,
// subscriptions, events and their explanations, causal trees, quarantine,
// principals, and the node's diagnosis. It also writes the OpenAPI 3.1
// document of the whole HTTP API.
//
// # Model
//
// [Mount] adds routes to a gateway, whose chain authenticates and bounds them.
// Handlers translate between package api and the components; they hold no
// state of their own. The document is generated from the routes themselves, so
// that none can be missing from it.
//
// # Invariants
//
//  1. Deny by default: a route names the role that it needs, or its handler
//     decides by what the principal may emit and listen to. An agent sees its
//     own subscriptions and records, and events of types that it may emit or
//     listen to, nothing else.
//  2. What a caller may not see is answered as if it did not exist.
//  3. Secrets are answered once, when they are made.
//  4. Checking a payload gives the same problem that publishing it would give,
//     and stores nothing.
//  5. Payloads are answered as text or raw JSON as stored, never interpreted.
//
// # Failure behaviour
//
// Errors of components are answered as they are: their codes are those of the
// closed table. Lists are paged by cursor; a cursor stays valid when entries
// come and go. The diagnosis alone is never refused for what does not answer: each
// part of it has its time, and that it could not be had is a finding.
//
// # Concurrency
//
// Handlers are safe for concurrent use, as the components are.
package admin
