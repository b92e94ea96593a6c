// Package client is a small Go client of the HTTP API. It depends on the
// standard library and on package api.
//
// # Model
//
// A [Client] holds an address and a token. Its methods are the calls of
// docs/http.md, one each; answers in the 200s come back as values of package
// api, everything else as an *headgate.Error with the server's code.
//
// # Invariants
//
//  1. Every error is an *headgate.Error: with the server's code, or with
//     unavailable, timeout or canceled when there was no answer. An error whose
//     outcome is unknown can be repeated with the same event id.
//  2. The client never retries by itself: what to repeat, and with which id,
//     is the caller's decision.
//  3. The token is sent in the Authorization header alone, and never to
//     another host: redirects are not followed.
//  4. Answers are read up to a bound; the client does not trust the server
//     with its memory.
//
// # Concurrency
//
// A Client is safe for concurrent use.
package client
