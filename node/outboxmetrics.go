package node

import (
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/relay"
	"github.com/headgate/headgate/telemetry"
)

// outboxGauges are what is told of each outbox when somebody asks.
var outboxGauges = map[string]string{
	"outbox_leads":                  "1 when this node relays the outbox, 0 when it waits or fails.",
	"outbox_repairing":              "1 while rows are read from the table instead of the log.",
	"outbox_epoch":                  "Epoch of the lead.",
	"outbox_sessions":               "Sessions opened since the process started.",
	"outbox_retried":                "Rows submitted again since the process started.",
	"outbox_in_flight_rows":         "Rows that were read and are not done.",
	"outbox_in_flight_bytes":        "Bytes of those rows.",
	"outbox_in_flight_lanes":        "Lanes that hold such rows.",
	"outbox_oldest_unacked_seconds": "Age of the oldest such row, from its commit; 0 when there is none.",
	"outbox_received_position":      "How far the log was read, in bytes.",
	"outbox_confirmed_position":     "How far it was confirmed.",
	"outbox_log_position":           "Where it ended at the last heartbeat.",
	"outbox_held_bytes":             "Log that the database keeps for the relay.",
	"outbox_room_bytes":             "How much more it may keep; -1 without a bound.",
	"outbox_log_endangered":         "1 when the database may remove log that the relay has not read.",
	"outbox_heartbeat_seconds":      "Time of the last heartbeat through the log.",
}

// relayed tells the observer of each row that is done.
func relayed(outbox string, o *headgate.Observer) func(relay.Done) {
	tell := o.Relayed
	if tell == nil {
		return nil
	}
	return func(d relay.Done) {
		i := headgate.RelayedInfo{Outbox: outbox, Duplicate: d.Result.Duplicate, Took: max(d.At.Sub(d.Row.Committed), 0)}
		if e := d.Row.Event; e != nil {
			i.Type, i.ID = e.Type, e.ID
		}
		if d.Result.Err != nil {
			i.Code = d.Result.Err.Code
		}
		tell(i)
	}
}

// addOutboxGauges adds what is read when somebody asks for metrics.
func (n *Node) addOutboxGauges() {
	if len(n.Relays) == 0 {
		return
	}
	n.metrics.Gauges(outboxGauges, []string{"outbox"}, func() map[string][]telemetry.Series {
		all := map[string][]telemetry.Series{}
		for _, r := range n.Relays {
			s := r.Status()
			for name, v := range outboxValues(&s) {
				all[name] = append(all[name], telemetry.Series{Labels: []string{s.Name}, Value: v})
			}
		}
		return all
	})
	n.metrics.Gauges(map[string]string{"outbox_waiting_rows": "Rows in flight that are held back, by the code of what they wait for."}, []string{"outbox", "code"},
		func() map[string][]telemetry.Series {
			var all []telemetry.Series
			for _, r := range n.Relays {
				s := r.Status()
				for code, rows := range s.Waiting {
					all = append(all, telemetry.Series{Labels: []string{s.Name, string(code)}, Value: float64(rows)})
				}
			}
			return map[string][]telemetry.Series{"outbox_waiting_rows": all}
		})
	n.metrics.Gauges(map[string]string{"outbox_aside_rows": "Rows that are set aside until their role's turn comes, as roots or as children of other events."}, []string{"outbox", "role", "roots"},
		func() map[string][]telemetry.Series {
			var all []telemetry.Series
			for _, r := range n.Relays {
				s := r.Status()
				for _, a := range s.Aside {
					all = append(all, telemetry.Series{Labels: []string{s.Name, a.Role, strconv.FormatBool(a.Roots)}, Value: float64(a.Rows)})
				}
			}
			return map[string][]telemetry.Series{"outbox_aside_rows": all}
		})
}

func outboxValues(s *relay.Status) map[string]float64 {
	is := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	v := map[string]float64{
		"outbox_leads": is(s.Leads), "outbox_sessions": float64(s.Sessions), "outbox_retried": float64(s.Retried),
		"outbox_in_flight_rows": float64(s.InFlight), "outbox_in_flight_bytes": float64(s.InFlightBytes), "outbox_in_flight_lanes": float64(s.Lanes),
		"outbox_oldest_unacked_seconds": 0, "outbox_confirmed_position": float64(s.Confirmed),
	}
	if !s.Oldest.IsZero() {
		v["outbox_oldest_unacked_seconds"] = max(time.Since(s.Oldest).Seconds(), 0)
	}
	if l := &s.Log; l.Epoch > 0 { // a session runs that tells of its log
		v["outbox_epoch"], v["outbox_repairing"] = float64(l.Epoch), is(l.Repair != "")
		v["outbox_received_position"], v["outbox_log_position"] = float64(l.Received), float64(l.End)
		v["outbox_held_bytes"], v["outbox_room_bytes"] = float64(l.Held), float64(l.Room)
		v["outbox_log_endangered"] = is(l.State == "unreserved" || l.State == "lost")
		v["outbox_heartbeat_seconds"] = l.RoundTrip.Seconds()
	}
	return v
}
