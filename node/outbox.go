package node

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/relay"
)

// openOutbox makes a relay for each declared outbox. Databases that cannot be
// reached do not keep the node from starting: their relay tries again.
func (n *Node) openOutbox(_ context.Context, opts Options) error {
	for i := range n.cfg.Outbox {
		o, at := &n.cfg.Outbox[i], fmt.Sprintf("outbox[%d].url", i)
		url, err := o.URL.Resolve()
		if err != nil {
			return n.cfg.at(at, fmt.Errorf("outbox %s: %w", o.Name, err))
		}
		if err := o.fits(url); err != nil {
			return n.cfg.at(at, err)
		}
		open, err := pickScheme(opts.Drivers.Outboxes, url, at)
		if err != nil {
			return n.cfg.at(at, err)
		}
		src, err := open(OutboxOptions{URL: url, Retain: time.Duration(o.Retain), WALBudget: int64(o.WALBudget), Log: n.log})
		if err != nil {
			return n.cfg.at(at, fmt.Errorf("outbox %s: %w", o.Name, err))
		}
		r, err := relay.New(relay.Config{
			Name: o.Name, Source: src, Admit: n.Perimeter, Keep: n.Quarantine, Principal: n.writer(o), KeyOf: n.keyOf, Log: n.log,
			Broker: n.Broker, Streams: n.streams(), Done: relayed(o.Name, n.observer(opts)),
		})
		if err != nil {
			return err
		}
		n.Relays = append(n.Relays, r)
	}
	return nil
}

// streams are the names of all streams.
func (n *Node) streams() []string {
	var names []string
	for _, s := range n.Topology.Streams() {
		names = append(names, s.Name)
	}
	return names
}

// writer returns who a database role writes as.
func (n *Node) writer(o *Outbox) func(role string) (*headgate.Principal, error) {
	return func(role string) (*headgate.Principal, error) {
		name := role
		if o.Principal != "" {
			name = o.Principal
		}
		if mapped := o.Roles[role]; mapped != "" {
			name = mapped
		}
		p, err := n.Principals.Get(context.Background(), name)
		if e := headgate.AsError(err); e != nil && e.Code == headgate.CodeNotFound {
			return nil, o.nobody(role)
		}
		if err != nil {
			return nil, err
		}
		return &p.Principal, nil
	}
}

// keyOf evaluates the key expression of the event's type.
func (n *Node) keyOf(e *headgate.Event) string {
	t := n.Topology.Lookup(e.Type)
	if t.KeyOf == nil {
		return ""
	}
	subject := t.Contract
	if subject == "" {
		subject = e.Type
	}
	key, err := t.KeyOf.Eval(n.Registry.Submitted(context.Background(), subject, e))
	if err != nil {
		return "" // the perimeter refuses it
	}
	return key
}

func (l *Loaded) validateOutbox(p *problems) {
	names := map[string]bool{}
	for i, o := range l.Outbox {
		at := fmt.Sprintf("outbox[%d]", i)
		switch {
		case o.Name == "":
			p.add(at, "name is missing")
		case names[o.Name]:
			p.add(at+".name", "there are two of the name %s", clip([]byte(o.Name)))
		}
		names[o.Name] = true
		if what, problem := o.problem(); problem != "" {
			p.add(at+what, "%s", problem)
		}
		for role, name := range o.Roles {
			if name == "" {
				p.add(joinPath(at+".roles", role), "names no principal")
			}
		}
	}
}

// relayFindings are the outboxes that are not relayed.
func (n *Node) relayFindings() []api.Finding {
	var out []api.Finding
	for _, r := range n.Relays {
		s := r.Status()
		switch {
		case s.Error != "":
			out = append(out, api.Finding{
				Severity: "error", What: "outbox " + s.Name + " is not relayed: " + s.Error, Fix: "See headgate outbox doctor; the relay tries again by itself.",
			})
		case !s.Leads:
			out = append(out, api.Finding{
				Severity: "warning", What: "outbox " + s.Name + " waits for the lead since " + s.Since.UTC().Format(time.RFC3339), Fix: "Nothing, when another node relays it.",
			})
		}
	}
	return out
}
