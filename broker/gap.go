package broker

import "fmt"

// GapError says that stored events of one partition cannot be read: the
// storage below was damaged or changed from outside. [Subscription].Receive
// returns it once for each gap; the subscription stays usable, and the next
// call continues behind the gap. A caller that keeps progress must step over
// the offsets, and say so loudly: they are lost, not settled.
type GapError struct {
	Stream    string
	Partition uint32
	From, To  uint64 // the offsets that are lost, without To
	Err       error  // what was found instead
}

// Error implements error.
func (e *GapError) Error() string {
	return fmt.Sprintf("stream %s: offsets %d to %d of partition %d cannot be read: %v", e.Stream, e.From, e.To-1, e.Partition, e.Err)
}

// Unwrap returns what was found instead.
func (e *GapError) Unwrap() error { return e.Err }
