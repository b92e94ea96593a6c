package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/client"
	"github.com/spf13/cobra"
)

const poisonConfig = `
version: 1
principals:
  - { name: helpdesk, kind: system, emit: ["ticket.opened"], roles: [developer], roots: 1000/s }
  - { name: triage, kind: agent, listen: ["ticket.opened"], roots: none }
types:
  ticket.opened: { key: data.ticket_id }
subscriptions:
  triage: { types: ["ticket.opened"], as: triage, from: beginning, attempts: 3, backoff: 10ms..50ms }
`

const ticketSchema = `{
  "type": "object",
  "required": ["ticket_id", "request_id", "priority"],
  "properties": {
    "ticket_id": {"type": "string", "pattern": "^T-[0-9]+$"},
    "request_id": {"type": "string", "format": "uuid"},
    "priority": {"enum": ["low", "normal", "high"]},
    "amount": {"type": "number", "minimum": 0}
  },
  "additionalProperties": false
}`

// malformed are payloads as language models really send them.
var malformed = [...]struct{ name, payload string }{
	{"invented field", `{"ticket_id":"T-1","request_id":"018f2f6e-9c1a-7b2e-8a55-0242ac120002","prioritiy":"high"}`},
	{"value outside the list", `{"ticket_id":"T-1","request_id":"018f2f6e-9c1a-7b2e-8a55-0242ac120002","priority":"urgent"}`},
	{"made-up uuid", `{"ticket_id":"T-1","request_id":"req-12345","priority":"low"}`},
	{"number as text", `{"ticket_id":"T-1","request_id":"018f2f6e-9c1a-7b2e-8a55-0242ac120002","priority":"low","amount":"12.50"}`},
	{"hidden duplicate key", `{"ticket_id":"T-1","request_id":"018f2f6e-9c1a-7b2e-8a55-0242ac120002","priority":"low","\u0070riority":"high"}`},
	{"number that eats memory", `{"ticket_id":"T-1","request_id":"018f2f6e-9c1a-7b2e-8a55-0242ac120002","priority":"low","amount":1e999999}`},
	{"everything nested", `{"ticket":{"ticket_id":"T-1","priority":"low"}}`},
}

type poisonRefusal struct {
	Case       string               `json:"case"`
	Code       headgate.Code        `json:"code"`
	Violations []headgate.Violation `json:"violations"`
	Report     string               `json:"report"`
}

type poisonResult struct {
	Published int                   `json:"healthy_published"`
	Settled   uint64                `json:"healthy_settled"`
	Refused   []poisonRefusal       `json:"refused"`
	Parked    []api.Quarantined     `json:"parked"`
	Groups    []api.QuarantineGroup `json:"groups"`
}

func (a *app) poisonCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "poison",
		Short: "Malformed payloads end in quarantine, healthy traffic flows on",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := a.poison(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(r, func(w io.Writer) { a.printPoison(w, r) })
		},
	}
}

func (a *app) poison(ctx context.Context) (r poisonResult, err error) {
	s, err := newStage(ctx, poisonConfig)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	desk, _, err := s.as(ctx, "helpdesk")
	if err != nil {
		return r, err
	}
	triage, _, err := s.as(ctx, "triage")
	if err != nil {
		return r, err
	}
	if _, _, err := desk.PutContract(ctx, "ticket.opened", []byte(ticketSchema)); err != nil {
		return r, err
	}
	work, stop := context.WithCancel(ctx)
	consumer := make(chan error, 1)
	go func() { consumer <- consumeTickets(work, triage) }()
	err = r.publish(ctx, desk)
	if err == nil {
		err = s.quiet(ctx)
	}
	stop()
	if err = errors.Join(err, <-consumer); err != nil {
		return r, err
	}
	return r, r.read(ctx, s, desk)
}

// publish sends healthy tickets with a malformed one after every few, and one
// that is well-formed and kills its handler.
func (r *poisonResult) publish(ctx context.Context, c *client.Client) error {
	const healthy = 40
	for i := range healthy {
		ticket := fmt.Sprintf(`{"ticket_id":"T-%d","request_id":"018f2f6e-9c1a-7b2e-8a55-%012d","priority":"normal"}`, i+1, i)
		if _, err := c.Publish(ctx, &headgate.Event{Type: "ticket.opened", Data: []byte(ticket)}); err != nil {
			return err
		}
		r.Published++
		if i%5 == 0 && i/5 < len(malformed) {
			if err := r.refuse(ctx, c, i/5); err != nil {
				return err
			}
		}
	}
	_, err := c.Publish(ctx, &headgate.Event{
		Type: "ticket.opened", ID: "poison",
		Data: []byte(`{"ticket_id":"T-666","request_id":"018f2f6e-9c1a-7b2e-8a55-0242ac120002","priority":"high"}`),
	})
	return err
}

func (r *poisonResult) refuse(ctx context.Context, c *client.Client, i int) error {
	m := malformed[i]
	_, err := c.Publish(ctx, &headgate.Event{Type: "ticket.opened", ID: fmt.Sprintf("malformed-%d", i), Data: []byte(m.payload)})
	e := headgate.AsError(err)
	if e == nil || e.Code != headgate.CodeContractViolation {
		return fmt.Errorf("%s was not refused by its contract: %w", m.name, errors.Join(err, errors.New("a guard failed")))
	}
	refusal := api.NewRefusal(e)
	r.Refused = append(r.Refused, poisonRefusal{Case: m.name, Code: e.Code, Violations: refusal.Violations, Report: refusal.AgentText()})
	return nil
}

// consumeTickets acks every ticket but the one that it cannot handle.
func consumeTickets(ctx context.Context, c *client.Client) error {
	for ctx.Err() == nil {
		deliveries, err := c.Pull(ctx, "triage", 16, 5*time.Second)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		var settle []api.Settlement
		for _, d := range deliveries {
			s := api.Settlement{Claim: d.Claim, Outcome: "ack"}
			if strings.Contains(string(d.Event), "T-666") {
				s.Outcome, s.Reason = "retry", "the handler crashed: index out of range"
			}
			settle = append(settle, s)
		}
		if len(settle) == 0 {
			continue
		}
		if _, err := c.Settle(context.WithoutCancel(ctx), "triage", settle...); err != nil {
			return err
		}
	}
	return nil
}

func (r *poisonResult) read(ctx context.Context, s *stage, c *client.Client) error {
	law, err := s.node.Router.Conservation(ctx)
	if err != nil {
		return err
	}
	for _, b := range law {
		r.Settled += b.Counts.Settled
	}
	parked, err := c.Quarantine(ctx, client.QuarantineFilter{Kind: "parked"}, client.Page{Limit: 100})
	if err != nil {
		return err
	}
	groups, err := c.QuarantineGroups(ctx, client.QuarantineFilter{})
	if err != nil {
		return err
	}
	r.Parked, r.Groups = parked.Records, groups.Groups
	return nil
}

func (a *app) printPoison(w io.Writer, r poisonResult) {
	fmt.Fprintf(w, "healthy: %d published, %d handled\n\nrefused at the perimeter, with what the agent was told:\n", r.Published, r.Settled)
	for _, f := range r.Refused {
		fmt.Fprintf(w, "\n  %s\n", f.Case)
		for line := range strings.Lines(f.Report) {
			fmt.Fprintf(w, "    %s\n", plain(strings.TrimRight(line, "\n")))
		}
	}
	fmt.Fprintln(w, "\nwell-formed, but nobody could handle it:")
	for _, p := range r.Parked {
		fmt.Fprintf(w, "  %s %s parked after its attempts: %s (%s)\n", plain(p.Type), plain(p.ID), p.Reason, plain(p.Message))
	}
	fmt.Fprintln(w, "\nquarantine, by fault:")
	rows := make([][]string, len(r.Groups))
	for i, g := range r.Groups {
		rows[i] = []string{fmt.Sprint(g.Count), g.Kind, g.Reason, clipTo(g.Message, 70)}
	}
	table(w, "COUNT KIND REASON MESSAGE", rows)
	a.next("headgate dev, then headgate quarantine groups on your own events")
}
