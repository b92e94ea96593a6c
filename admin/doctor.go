package admin

import (
	"fmt"
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/router"
)

func (o *operator) nodeRoutes() []gateway.Route {
	return []gateway.Route{{
		Method: http.MethodGet, Path: "/v1/doctor", ID: "doctor", Tag: "node", Role: headgate.RoleViewer, Handle: o.doctor,
		Summary:     "The node's own diagnosis",
		Description: "Durability in words, the conservation law of every subscription, what was refused beyond quotas, and what is unsafe.",
		Responses:   ok("The diagnosis", api.Doctor{}),
	}}
}

func (o *operator) doctor(c *gateway.Call) error {
	out := api.Doctor{Version: o.Version, Time: o.Now().UTC(), Durability: o.durability(), Conservation: []api.Balance{}, Streams: []api.StreamStat{}}
	if err := o.balances(c, &out); err != nil {
		return err
	}
	if err := o.streams(c, &out); err != nil {
		return err
	}
	overflow, err := o.overflow(c)
	if err != nil {
		return err
	}
	out.Quarantine = overflow
	for _, v := range overflow {
		out.Problems = append(out.Problems, api.Finding{
			Severity: "warning",
			What:     fmt.Sprintf("%d refusals (%s) of %s went beyond its quota and were only counted.", v.Count, v.Reason, v.Principal),
			Fix:      "Mend what the principal sends; headgate quarantine groups shows samples.",
		})
	}
	o.unsafe(&out)
	if o.Findings != nil {
		out.Problems = append(out.Problems, o.Findings(c.Context())...)
	}
	out.OK = true
	for _, p := range out.Problems {
		out.OK = out.OK && p.Severity != "error"
	}
	return c.JSON(http.StatusOK, out)
}

func (o *operator) durability() api.Durability {
	caps, info := o.Broker.Caps(), o.Store.Info()
	d := api.Durability{
		Mode: modeName(caps.Durability), Streams: caps.Words, State: info.Words, Store: info.Driver, Schema: info.Schema, EventBytes: caps.MaxEventBytes,
		Dedupe: fmt.Sprintf("A repeated id is known for %s, and at least the last %d ids of a stream.", caps.DedupeWindow, caps.DedupeIDs),
	}
	if !caps.DedupeSurvivesRestart {
		d.Dedupe += " A restart forgets them."
	}
	return d
}

// modeName is the name of a mode as the setting durability has it.
func modeName(d broker.Durability) string {
	if d == broker.DurabilityProcess {
		return "relaxed"
	}
	return string(d)
}

// unsafe names modes that lose acknowledged events.
func (o *operator) unsafe(out *api.Doctor) {
	switch o.Broker.Caps().Durability {
	case broker.DurabilityMemory, broker.DurabilityProcess:
		out.Problems = append(out.Problems, api.Finding{
			Severity: "warning", What: "Acknowledged events do not survive power loss: " + o.Broker.Caps().Words,
			Fix: fixDurability(o.Broker.Caps().Durability == broker.DurabilityMemory),
		})
	}
	if !o.Store.Info().Durable {
		out.Problems = append(out.Problems, api.Finding{
			Severity: "warning", What: "Control state does not survive power loss: " + o.Store.Info().Words,
			Fix: fixDurability(o.Broker.Caps().Durability == broker.DurabilityMemory),
		})
	}
}

// fixDurability says how to get back the durability that was given up.
func fixDurability(memory bool) string {
	if memory {
		return "Run without --memory and with a broker that stores on disk."
	}
	return "Set durability: fsync; it is relaxed."
}

func (o *operator) balances(c *gateway.Call, out *api.Doctor) error {
	balances, err := o.Router.Conservation(c.Context())
	if err != nil {
		return err
	}
	for i := range balances {
		b := &balances[i]
		out.Conservation = append(out.Conservation, balanceOf(b))
		if !b.Holds {
			out.Problems = append(out.Problems, api.Finding{
				Severity: "error", What: fmt.Sprintf("The conservation law does not hold for subscription %s: %s.", b.Subscription, b.Detail),
				Fix: "Keep the data folder and report it.",
			})
		}
	}
	return nil
}

func balanceOf(b *router.Balance) api.Balance {
	return api.Balance{
		Subscription: b.Subscription, Accepted: b.Accepted, Pending: b.Pending, InFlight: b.InFlight,
		Settled: b.Counts.Settled, Unmatched: b.Counts.Unmatched, Parked: b.Counts.Parked, Extinguished: b.Counts.Extinguished,
		Expired: b.Counts.Expired, Discarded: b.Counts.Discarded, Trimmed: b.Counts.Trimmed,
		Lag: b.Lag, Oldest: b.Oldest, Holds: b.Holds, Detail: b.Detail,
	}
}

func (o *operator) streams(c *gateway.Call, out *api.Doctor) error {
	for _, s := range o.Topology.Streams() {
		stats, err := o.Broker.Stat(c.Context(), s.Name)
		if err != nil {
			return err
		}
		st := api.StreamStat{Stream: s.Name, Partitions: len(stats)}
		for _, p := range stats {
			st.Stored += p.Next
			st.Kept += p.Next - p.First
			st.Bytes += p.Bytes
		}
		out.Streams = append(out.Streams, st)
	}
	return nil
}
