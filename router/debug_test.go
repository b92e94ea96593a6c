package router

import "fmt"

// dump describes a subscription for a failing test.
func (s *sub) dump() (out string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out = fmt.Sprintf("paused=%v inflight=%d uncommit=%d ready=%d due=%d claims=%d ops=%d rows=%d waiters=%d\n", s.paused, s.inFlight, s.uncommit, s.ready.len(), len(s.due), len(s.claims.byID), len(s.ops), s.rows, len(s.waiters))
	for id, p := range s.parts {
		out += fmt.Sprintf("part %v floor=%d saved=%d head=%d catchUp=%d mem=%d\n", id, p.floor, p.saved, p.head, p.catchUp, p.mem)
		for off, it := range p.items {
			out += fmt.Sprintf("  %d state=%d row=%v att=%d heap=%d head=%v due=%v live=%v\n", off, it.state, it.row, it.attempts, it.heap, it.isHead(), it.due, it.live != nil)
		}
	}
	for id, l := range s.lanes {
		out += fmt.Sprintf("lane %v n=%d blocked=%v\n", id, len(l.queue), l.blocked)
	}
	return out
}
