// Package window is the part of a subscription that log drivers share: it
// holds the deliveries that were read from the log and not yet settled, hands
// them out in order, hands out again what was settled with Retry, and holds
// the driver's reader back when a partition's buffer is full.
//
// # Model
//
// A driver runs one reader for each partition, which calls [Window.Offer] with
// events as it reads them. Receive takes them out, partition by partition in
// turn. A delivery is at any moment in one of four states:
//
//	ready ──Receive──► open ──Ack, Drop──► gone
//	  ▲                  │
//	  └──── waiting ◄──Retry
//
// # Invariants
//
//  1. At most Buffer deliveries of a partition are ready, open or waiting:
//     Offer blocks beyond that.
//  2. First deliveries of a partition are handed out in the order offered.
//  3. Settling a position that is not open changes nothing.
//  4. Nothing runs while nothing is due: there is one timer, for the earliest
//     Retry, and none when nothing waits.
//
// # Concurrency
//
// All methods may be called from any goroutine; one reader per partition
// calls Offer.
package window
