// Package gateway is the HTTP face of a node: publish, pull, settle, the live
// stream, health, and the routes that other packages add. docs/http.md
// describes it for users.
//
// # Model
//
// A [Gateway] is an http.Handler over one table of [Route] values. Every route
// passes the same chain: request id, Host and Origin check, drain, bearer
// token, role, a place within the bounds on work in progress, and a guarded
// body. Only then does the handler run. A handler returns an error to answer
// with a problem (RFC 9457); the answer comes from the closed table of codes.
//
// # Invariants
//
//  1. The caller is authenticated before a byte of the body is read, and by
//     the Authorization header alone.
//  2. No answer in the 200s is written for an event before its durable
//     acknowledgement: handlers write only after Admit or Settle returned.
//  3. What was acknowledged is what was answered: when a request breaks off
//     in the middle, events admitted before that are stored, and the answer
//     (if the client still reads) lists exactly them.
//  4. Memory is bounded: bodies by route and by what is in flight in total and
//     per principal, results of bulk requests by a spool file, headers and
//     connections by the server. Beyond a bound the answer is 413, 429 or 431;
//     nothing waits in a queue without end.
//  5. A body must make progress: a connection that sends less than
//     Limits.BodyProgress bytes per Limits.BodyWindow ends with 408.
//  6. Payloads are never logged. What a client sent is escaped and clipped
//     before it is echoed.
//
// # Failure behaviour
//
// A client that goes away does not abort an admission that has begun: the
// outcome would be unknown to nobody's benefit. A pull whose client is gone
// gives its deliveries up to the router's claim expiry. A panic in a handler
// answers 500 and is logged with the request id.
//
// # Concurrency
//
// A Gateway is safe for concurrent use once its routes are added. Handlers run
// on the server's goroutines and start none of their own, but for the readers
// of the live stream, which end before their handler returns.
package gateway
