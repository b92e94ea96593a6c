package node

import "sync/atomic"

// addLeaseGauges adds what the leases of this node did since it started.
func (n *Node) addLeaseGauges() {
	st := n.Leases.Stats()
	n.metrics.Gauge("leases_waiting", "Calls that wait for a lease.", func() float64 { return float64(n.Leases.Waiting()) })
	for _, c := range []struct {
		name, help string
		count      *atomic.Uint64
	}{
		{"leases_granted", "Leases granted since the node started.", &st.Granted},
		{"leases_taken_over", "Leases granted over one that had run out.", &st.Takeovers},
		{"leases_renewed", "Renewals since the node started.", &st.Renewed},
		{"leases_renewed_late", "Renewals of leases that had run out: their holders were starved, or their TTL is too short.", &st.Late},
		{"leases_released", "Leases given back by their holders.", &st.Released},
		{"leases_revoked", "Leases ended by an operator.", &st.Revoked},
		{"fences_stale", "Writes and checks of superseded workers that were refused.", &st.Stale},
		{"fences_expired", "Writes and checks refused because the lease had run out or was being revoked.", &st.Expired},
	} {
		n.metrics.Gauge(c.name, c.help, func() float64 { return float64(c.count.Load()) })
	}
}
