package admin

import (
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/index"
	"github.com/headgate/headgate/router"
	"github.com/headgate/headgate/store"
)

func (o *operator) eventRoutes() []gateway.Route {
	const tag = "events"
	wait := gateway.Param{In: "query", Name: "wait", Type: "boolean", Doc: "Wait until the index has seen everything stored before the call"}
	as := gateway.Param{In: "query", Name: "data", Doc: "Encoding of the data of Avro contracts: json or avro; default: as it was sent"}
	return []gateway.Route{
		{
			Method: http.MethodGet, Path: "/v1/events/{id}", ID: "getEvent", Tag: tag, Handle: o.getEvent,
			Summary: "One event with where it is", Responses: ok("The events with the id", api.Events{}), Params: []gateway.Param{wait, as},
			Description: "The look-up goes through an index that follows the streams, so that a very new event may not be there yet.",
		},
		{
			Method: http.MethodGet, Path: "/v1/events/{id}/explain", ID: "explainEvent", Tag: tag, Handle: o.explainEvent,
			Summary: "Why an event went where it went", Responses: ok("What every subscription makes of it", api.Explanation{}), Params: []gateway.Param{wait, as},
		},
		{
			Method: http.MethodGet, Path: "/v1/roots/{id}", ID: "getRoot", Tag: tag, Handle: o.getRoot,
			Summary: "The causal tree of a root, with the gas left", Responses: ok("The tree", api.Tree{}),
			Params: []gateway.Param{{In: "query", Name: "limit", Type: "integer", Doc: "Events at most; default 1000, at most 10000"}, wait},
		},
	}
}

// awaitIndex waits for the index where the caller asks for it.
func (o *operator) awaitIndex(c *gateway.Call) error {
	switch c.Query("wait") {
	case "", "false", "0":
		return nil
	case "true", "1":
		return o.Index.Wait(c.Context())
	}
	return headgate.NewError(headgate.CodeInvalidArgument, "The parameter wait must be true or false.")
}

// mayRead reports whether a caller may see an event with its content: who may
// only publish a type sees what it published itself, not what others did.
func mayRead(p *headgate.Principal, r *store.IndexRow) bool {
	return p.Can(headgate.RoleViewer) || p.MayListen(r.Type) || (r.Principal == p.Name && !p.Disabled)
}

func (o *operator) getEvent(c *gateway.Call) error {
	if err := o.awaitIndex(c); err != nil {
		return err
	}
	as := c.Query("data")
	if err := gateway.ReadAs(as); err != nil {
		return err
	}
	found, err := o.Index.Event(c.Context(), c.Path("id"))
	if err != nil {
		return err
	}
	var out api.Events
	for i := range found {
		if mayRead(c.Principal, &found[i].IndexRow) {
			out.Events = append(out.Events, o.eventAs(c, &found[i], as))
		}
	}
	if len(out.Events) == 0 {
		return notFound("event")
	}
	return c.JSON(http.StatusOK, out)
}

// eventAs is eventOf with the data in the encoding that the caller asked for.
func (o *operator) eventAs(c *gateway.Call, f *index.Found, as string) api.Event {
	if f.Event != nil {
		f.Event = o.Registry.View(c.Context(), f.Event, as)
	}
	return eventOf(f)
}

func eventOf(f *index.Found) api.Event {
	out := api.Event{
		Event: []byte("null"), ID: f.ID, Source: f.Source, Type: f.Type, Subject: f.Subject, Stream: f.Stream, Position: f.Position.String(),
		RootID: f.Root, Causes: headgate.SplitCauses(f.Causes), TTL: f.TTL, Hop: f.Hop, Origin: f.Origin, Principal: f.Principal,
		Contract: f.Contract, Recorded: f.Recorded,
	}
	if f.Event != nil {
		out.Event = headgate.AppendStructured(nil, f.Event)
		out.Mended = f.Event.Mended()
	}
	return out
}

func (o *operator) explainEvent(c *gateway.Call) error {
	if err := o.awaitIndex(c); err != nil {
		return err
	}
	as := c.Query("data")
	if err := gateway.ReadAs(as); err != nil {
		return err
	}
	x, err := o.Index.Explain(c.Context(), c.Path("id"), func(r *store.IndexRow) bool { return mayRead(c.Principal, r) })
	if err != nil {
		return err
	}
	out := api.Explanation{Admitted: x.Admitted, Subscriptions: []api.State{}}
	for i := range x.Quarantine {
		if r := &x.Quarantine[i]; o.mayRead(c, r) {
			out.Quarantine = append(out.Quarantine, quarantinedOf(r))
		}
	}
	switch {
	case !x.Admitted && len(out.Quarantine) > 0:
		return c.JSON(http.StatusOK, out)
	case !x.Admitted:
		return notFound("event")
	}
	out.Event = o.eventAs(c, &x.Found, as)
	for i := range x.Others {
		out.Others = append(out.Others, o.eventAs(c, &x.Others[i], as))
	}
	for i := range x.Subscriptions {
		s := &x.Subscriptions[i]
		if !c.Principal.Can(headgate.RoleViewer) {
			sub, err := o.Router.Get(c.Context(), s.Subscription)
			if err != nil || !owns(c.Principal, &sub) {
				continue
			}
		}
		out.Subscriptions = append(out.Subscriptions, stateOf(s))
	}
	return c.JSON(http.StatusOK, out)
}

func stateOf(s *router.State) api.State {
	out := api.State{
		Subscription: s.Subscription, Matched: s.Matched, Why: s.Why, State: s.State, Attempts: s.Attempts, Due: s.Due, Quarantine: s.QID,
	}
	for _, a := range s.History {
		out.History = append(out.History, api.Attempt{
			N: a.N, Start: a.Start, Duration: api.Duration(a.Duration), Principal: a.Principal, Outcome: a.Outcome, Error: a.Error,
		})
	}
	return out
}

func (o *operator) getRoot(c *gateway.Call) error {
	limit, err := c.QueryInt("limit", 1000, 10_000)
	if err != nil {
		return err
	}
	if err := o.awaitIndex(c); err != nil {
		return err
	}
	t, err := o.Index.Tree(c.Context(), c.Path("id"), limit)
	if err != nil {
		return err
	}
	if t.Root == nil || !mayRead(c.Principal, &t.Root.IndexRow) {
		return notFound("root")
	}
	return c.JSON(http.StatusOK, treeOf(c.Principal, t))
}

func treeOf(p *headgate.Principal, t *index.Tree) api.Tree {
	out := api.Tree{
		Root: nodeOf(p, t.Root), Events: t.Events, Depth: t.Depth, Cuts: t.Cuts, Shown: t.Shown, Lag: int64(t.Lag),
		Gas: api.Gas{Total: t.Gas.Total, Debited: t.Gas.Debited, Local: t.Gas.Local, Known: t.Gas.Known},
	}
	if t.Gas.Known {
		out.Gas.Left = t.Gas.Left()
	}
	return out
}

// nodeOf copies a tree, whose depth the TTL bounds, and hides what the caller
// may not see.
func nodeOf(p *headgate.Principal, n *index.Node) *api.Node {
	out := &api.Node{TTL: n.TTL, Hop: n.Hop, Hidden: !mayRead(p, &n.IndexRow)}
	if !out.Hidden {
		out.ID, out.Type, out.Subject, out.Principal = n.ID, n.Type, n.Subject, n.Principal
		out.Stream, out.Position, out.Recorded = n.Stream, n.Position.String(), n.Recorded
		for _, cut := range n.Cuts {
			out.Cuts = append(out.Cuts, api.Cut{Reason: cut.Reason, Type: cut.Type, Principal: cut.Principal, Count: cut.Count, Quarantine: cut.QID})
		}
	}
	for _, child := range n.Children {
		out.Children = append(out.Children, nodeOf(p, child))
	}
	return out
}
