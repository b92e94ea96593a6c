// Package telemetry turns what happens into metrics in the Prometheus text
// format. docs/http.md lists them.
//
// # Model
//
// [Metrics] holds one registry. [Metrics.Observer] counts what happens to
// events, [Metrics.Request] what happens to HTTP requests, and gauges given to
// [Metrics.Gauge] are read at each scrape.
//
// # Invariants
//
//  1. Labels have few values, fixed by the program or by the operator: code,
//     stage, door, stream, outcome, route. Nothing of an event or a request
//     (type, id, principal, path) is ever a label. Names of subscriptions, which
//     some clients choose, are bounded by number.
//  2. Observing takes no lock that a scrape holds for longer than copying one
//     counter, and never blocks.
//
// # Failure behaviour
//
// A scrape that fails to read a gauge leaves that gauge out.
//
// # Concurrency
//
// Metrics is safe for concurrent use.
package telemetry
