package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/perimeter"
	"github.com/headgate/headgate/registry"
	"github.com/headgate/headgate/router"
)

func (g *Gateway) addDeliveries() {
	g.Handle(Route{
		Method: http.MethodPost, Path: "/v1/subscriptions/{name}/pull", ID: "pull", Tag: "deliveries", Wait: true,
		Summary:     "Take deliveries of a subscription, waiting for the first",
		Description: "Long poll: answers as soon as there is a delivery, and with an empty list after the wait. Each delivery is under a claim until its deadline.",
		Requests:    []Body{{Media: api.TypeJSON, Of: api.PullRequest{}, Doc: "May be left out"}},
		Responses:   []Response{{Status: http.StatusOK, Doc: "Deliveries, possibly none", Of: api.PullResponse{}}},
		Handle:      g.pull,
	})
	g.Handle(Route{
		Method: http.MethodPost, Path: "/v1/subscriptions/{name}/settle", ID: "settle", Tag: "deliveries",
		Summary: "End claims, and emit children of the deliveries with them",
		Description: "Each claim is settled together with its emitted events in one transaction, or not at all. Causal refusals of emitted events " +
			"are reported and the input still settles; any other refusal leaves the claim open.",
		Requests: []Body{{Media: api.TypeJSON, Of: api.SettleRequest{}}},
		Responses: []Response{
			{Status: http.StatusOK, Doc: "All settled", Of: api.SettleResponse{}},
			{Status: http.StatusMultiStatus, Doc: "Some settled", Of: api.SettleResponse{}},
			{Status: http.StatusConflict, Doc: "None settled: the status is that of the first reason, and the problem has the results too", Media: api.TypeProblem, Of: settleProblem{}},
		},
		Handle: g.settle,
	})
}

func (g *Gateway) pull(c *Call) error {
	req := api.PullRequest{}
	if c.body != nil {
		if err := c.Decode(&req); err != nil {
			return err
		}
	}
	if req.Max == 0 {
		req.Max = 1
	}
	if req.Max < 0 || req.Max > g.lim.MaxPull {
		return headgate.NewError(headgate.CodeInvalidArgument, "max must be from 1 to %d.", g.lim.MaxPull)
	}
	if err := ReadAs(req.Data); err != nil {
		return err
	}
	wait := min(time.Duration(req.Wait), g.lim.MaxWait)
	ctx, done := g.waitContext(c)
	defer done()
	ds, err := g.cfg.Router.Pull(ctx, c.Principal, c.Path("name"), req.Max, wait)
	if err != nil && ctx.Err() == nil {
		return err
	}
	b := make([]byte, 0, 64+512*len(ds))
	b = append(b, `{"deliveries":[`...)
	converted := 0
	for i := range ds {
		if i > 0 {
			b = append(b, ',')
		}
		if g.cfg.Registry != nil && converted < maxConverted {
			view := g.cfg.Registry.View(c.Context(), ds[i].Event, req.Data)
			if view != ds[i].Event {
				converted += len(view.Data)
			}
			ds[i].Event = view
		}
		if b, err = appendDelivery(b, &ds[i]); err != nil {
			return err
		}
	}
	c.write(http.StatusOK, api.TypeJSON, append(b, "]}\n"...))
	return nil
}

// maxConverted bounds the bytes that one answer converts to the encoding its
// reader asks for. What is beyond comes as it was sent.
const maxConverted = 64 << 20

// ReadAs checks the encoding that a reader asks for: json, avro, or none for
// the data as it was sent.
func ReadAs(data string) error {
	switch data {
	case "", registry.AsJSON, registry.AsAvro:
		return nil
	}
	return headgate.NewError(headgate.CodeInvalidArgument, "data must be json or avro.")
}

// appendDelivery writes an api.Delivery. The event goes in as the encoder
// wrote it, without being parsed again.
func appendDelivery(b []byte, d *router.Delivery) ([]byte, error) {
	b = append(b, `{"event":`...)
	b = headgate.AppendStructured(b, d.Event)
	var held *api.DeliveryLease
	if l := d.Lease; l != nil {
		held = &api.DeliveryLease{Resource: l.Resource, Epoch: l.Epoch, EpochText: strconv.FormatInt(l.Epoch, 10), Token: l.Token}
	}
	rest, err := json.Marshal(struct {
		Stream   string    `json:"stream"`
		Position string    `json:"position"`
		Claim    string    `json:"claim"`
		Cause    string    `json:"cause"`
		Attempt  int       `json:"attempt"`
		Deadline time.Time `json:"deadline"`

		Lease *api.DeliveryLease `json:"lease,omitempty"`
	}{d.Stream, d.Position.String(), d.Claim, d.Cause(), d.Attempt, d.Deadline, held})
	if err != nil {
		return nil, err
	}
	return append(append(b, ','), rest[1:]...), nil
}

// maxSettle and maxEmit bound one settle call.
const (
	maxSettle = 1000
	maxEmit   = 1000 // of one claim; the breadth limit is the real bound
)

// settleProblem is the answer when no claim was settled.
type settleProblem struct {
	api.Problem
	Settled int                `json:"settled"`
	Open    int                `json:"open"`
	Results []api.SettleResult `json:"results"`
}

func (g *Gateway) settle(c *Call) error {
	var req api.SettleRequest
	if err := c.Decode(&req); err != nil {
		return err
	}
	if len(req.Settle) == 0 || len(req.Settle) > maxSettle {
		return headgate.NewError(headgate.CodeInvalidArgument, "settle must list 1 to %d claims.", maxSettle)
	}
	settlements := make([]router.Settlement, len(req.Settle))
	for i := range req.Settle {
		s, err := g.settlementOf(&req.Settle[i])
		if err != nil {
			return err
		}
		settlements[i] = s
	}
	ctx, cancel := c.workContext()
	defer cancel()
	settled, err := g.cfg.Router.Settle(ctx, c.Principal, c.Path("name"), settlements)
	if err != nil {
		return err
	}
	return c.settled(settlements, settled)
}

func (g *Gateway) settlementOf(s *api.Settlement) (router.Settlement, error) {
	out := router.Settlement{Claim: s.Claim, Outcome: s.Outcome, Delay: time.Duration(s.Delay), Reason: s.Reason}
	switch {
	case s.Claim == "":
		return out, headgate.NewError(headgate.CodeInvalidArgument, "A settlement names no claim.")
	case s.Outcome != router.OutcomeAck && s.Outcome != router.OutcomeRetry && s.Outcome != router.OutcomeReject:
		return out, headgate.NewError(headgate.CodeInvalidArgument, "The outcome must be ack, retry or reject.")
	case len(s.Emit) > 0 && s.Outcome != router.OutcomeAck:
		return out, headgate.NewError(headgate.CodeInvalidArgument, "Only the outcome ack may emit events.")
	case len(s.Emit) > maxEmit:
		return out, headgate.NewError(headgate.CodeInvalidArgument, "A settlement may emit at most %d events.", maxEmit)
	case len(s.Reason) > 4096:
		return out, headgate.NewError(headgate.CodeInvalidArgument, "A reason may have at most 4096 bytes.")
	}
	for _, raw := range s.Emit {
		out.Emit = append(out.Emit, g.decodeEmit(raw))
	}
	return out, nil
}

// settled answers a settle call.
func (c *Call) settled(asked []router.Settlement, settled []router.Settled) error {
	resp := api.SettleResponse{Results: make([]api.SettleResult, len(settled))}
	var first *headgate.Error
	for i := range settled {
		s := &settled[i]
		r := api.SettleResult{Claim: s.Claim, Settled: s.Err == nil, Status: http.StatusOK}
		if s.Err == nil {
			resp.Settled++
		} else {
			resp.Open++
			c.logCause(s.Err)
			r.Status, r.Refusal = s.Err.Info().Status, api.NewRefusal(s.Err)
			if first == nil {
				first = s.Err
			}
		}
		for j := range s.Emitted {
			var item perimeter.Item
			if i < len(asked) && j < len(asked[i].Emit) {
				item = asked[i].Emit[j]
			}
			r.Emitted = append(r.Emitted, emittedResult(&item, &s.Emitted[j]))
		}
		resp.Results[i] = r
	}
	switch {
	case resp.Open == 0:
		return c.JSON(http.StatusOK, resp)
	case resp.Settled > 0:
		return c.JSON(http.StatusMultiStatus, resp)
	}
	p := settleProblem{Problem: api.NewProblem(first, c.RequestID), Settled: 0, Open: resp.Open, Results: resp.Results}
	setRetryAfter(c.W.Header(), p.Status, p.Refusal)
	if c.wantsAgentText() {
		c.write(p.Status, "text/plain; charset=utf-8; profile=agent", []byte(settleText(&resp)))
		return nil
	}
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	c.write(p.Status, api.TypeProblem, append(b, '\n'))
	return nil
}

// emittedResult describes one emitted child. A child is not in a stream yet
// when its settlement is answered, so that it has no position.
func emittedResult(item *perimeter.Item, res *perimeter.Result) api.Result {
	r := resultOf(item, res)
	if res.Err == nil && !res.Duplicate {
		r.Position = ""
	}
	return r
}

// settleText is the compact report of a settle call in which nothing was
// settled: that of the first emitted event that was refused, else of the claim.
func settleText(resp *api.SettleResponse) string {
	var b strings.Builder
	for i := range resp.Results {
		for j := range resp.Results[i].Emitted {
			if e := &resp.Results[i].Emitted[j]; e.Code != "" {
				return e.AgentText()
			}
		}
		if b.Len() == 0 {
			b.WriteString(resp.Results[i].AgentText())
		}
	}
	return b.String()
}
