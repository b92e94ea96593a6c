package admin

import (
	"context"
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
		Summary: "The node's own diagnosis",
		Description: "Durability in words, the conservation law of every subscription, what was refused beyond quotas, and what is unsafe. " +
			"What cannot be asked for, since the store or the broker does not answer, is a problem of the diagnosis, which comes all the same.",
		Responses: ok("The diagnosis", api.Doctor{}),
	}}
}

// doctor tells what is known. A part that cannot be asked for is a finding, not
// the end of the others: whoever asks wants to know what is wrong.
func (o *operator) doctor(c *gateway.Call) error {
	out := api.Doctor{Version: o.Version, Time: o.Now().UTC(), Durability: o.durability(), Conservation: []api.Balance{}, Streams: []api.StreamStat{}}
	ctx := c.Context()
	for _, part := range []*section{
		o.asks.section(ctx, "The counts of the subscriptions cannot be checked", balanceTime, o.balances(&out)),
		o.asks.section(ctx, "What the streams hold cannot be told", sectionTime, o.streams(&out)),
		o.asks.section(ctx, "What was refused beyond quotas cannot be told", sectionTime, o.overflows(&out)),
	} {
		part.put(c, &out)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	o.unsafe(&out)
	if o.Findings != nil {
		out.Problems = append(out.Problems, o.Findings(ctx)...)
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

func (o *operator) balances(out *api.Doctor) func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		balances, err := o.Router.Conservation(ctx)
		return func() {
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
		}, err
	}
}

func balanceOf(b *router.Balance) api.Balance {
	return api.Balance{
		Subscription: b.Subscription, Accepted: b.Accepted, Pending: b.Pending, InFlight: b.InFlight,
		Settled: b.Counts.Settled, Unmatched: b.Counts.Unmatched, Parked: b.Counts.Parked, Extinguished: b.Counts.Extinguished,
		Expired: b.Counts.Expired, Discarded: b.Counts.Discarded, Trimmed: b.Counts.Trimmed,
		Lag: b.Lag, Oldest: b.Oldest, Holds: b.Holds, Detail: b.Detail,
	}
}

func (o *operator) streams(out *api.Doctor) func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		all := []api.StreamStat{}
		for _, s := range o.Topology.Streams() {
			stats, err := o.Broker.Stat(ctx, s.Name)
			if err != nil {
				return nil, err
			}
			st := api.StreamStat{Stream: s.Name, Partitions: len(stats)}
			for _, p := range stats {
				st.Stored += p.Next
				st.Kept += p.Next - p.First
				st.Bytes += p.Bytes
			}
			all = append(all, st)
		}
		return func() { out.Streams = all }, nil
	}
}

func (o *operator) overflows(out *api.Doctor) func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		overflow, err := o.overflow(ctx)
		return func() {
			out.Quarantine = overflow
			for _, v := range overflow {
				out.Problems = append(out.Problems, api.Finding{
					Severity: "warning",
					What:     fmt.Sprintf("%d refusals (%s) of %s went beyond its quota and were only counted.", v.Count, v.Reason, v.Principal),
					Fix:      "Mend what the principal sends; headgate quarantine groups shows samples.",
				})
			}
		}, err
	}
}
