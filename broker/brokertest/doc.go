// Package brokertest is the conformance suite of the broker port. A driver's
// test calls [Run] with a [Harness]; it passes or the driver is wrong.
//
// # Model
//
// Every test opens the driver on a store of its own (a folder, or a name
// derived from it) and speaks to it through the port alone. What a driver
// claims in its Caps steers what is required: a driver that claims that events
// survive the process is killed with SIGKILL in a loop, one that claims to
// remember ids is asked for them, and one whose claims fall short of what it
// does fails as well.
//
// # File map
//
//	harness.go    Harness, Options, helpers shared by the tests
//	publish.go    outcomes, limits, order, dedupe
//	order.go      order of keys when part of a call is not stored
//	subscribe.go  receive, settle, retry, buffers
//	own.go        whose the streams are
//	keep.go       browse, trim, stat, ensure
//	restart.go    reopen, dedupe after restart, restart time, memory
//	crash.go      SIGKILL in a loop, cut connections
//
// Tests wait for signals and deadlines, never for a fixed time, except where
// the absence of something is to be shown.
package brokertest
