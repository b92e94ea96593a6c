package admin

import (
	"context"
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/router"
)

func (o *operator) subscriptionRoutes() []gateway.Route {
	const tag = "subscriptions"
	return []gateway.Route{
		{
			Method: http.MethodGet, Path: "/v1/subscriptions", ID: "listSubscriptions", Tag: tag, Handle: o.listSubscriptions,
			Summary: "Subscriptions", Params: pageParams(), Responses: ok("Subscriptions by name", api.Subscriptions{}),
			Description: "Without the role viewer: the caller's own.",
		},
		{
			Method: http.MethodPut, Path: "/v1/subscriptions/{name}", ID: "putSubscription", Tag: tag, Handle: o.putSubscription,
			Summary: "Add or change a subscription", Description: ownNote, Requests: []gateway.Body{{Media: api.TypeJSON, Of: api.SubscriptionSpec{}}},
			Responses: []gateway.Response{
				{Status: http.StatusCreated, Doc: "Added", Of: api.Subscription{}},
				{Status: http.StatusOK, Doc: "Changed, or unchanged", Of: api.Subscription{}},
			},
		},
		{
			Method: http.MethodGet, Path: "/v1/subscriptions/{name}", ID: "getSubscription", Tag: tag, Handle: o.getSubscription,
			Summary: "One subscription", Responses: ok("The subscription", api.Subscription{}),
		},
		{
			Method: http.MethodDelete, Path: "/v1/subscriptions/{name}", ID: "deleteSubscription", Tag: tag, Handle: o.deleteSubscription,
			Summary: "Remove a subscription with its progress", Description: ownNote, Responses: ok("Removed", api.Deleted{}),
		},
		{
			Method: http.MethodPost, Path: "/v1/subscriptions/{name}/pause", ID: "pauseSubscription", Tag: tag,
			Summary: "Stop deliveries", Description: ownNote, Responses: ok("The subscription", api.Subscription{}),
			Handle: func(c *gateway.Call) error { return o.switchSubscription(c, o.Router.Pause) },
		},
		{
			Method: http.MethodPost, Path: "/v1/subscriptions/{name}/resume", ID: "resumeSubscription", Tag: tag,
			Summary: "Start deliveries again", Description: ownNote, Responses: ok("The subscription", api.Subscription{}),
			Handle: func(c *gateway.Call) error { return o.switchSubscription(c, o.Router.Resume) },
		},
	}
}

// ownNote says who may change a subscription.
const ownNote = "Needs the role developer, or that the subscription is the caller's own."

// managed finds the subscription of the path, which the caller must be allowed
// to change.
func (o *operator) managed(c *gateway.Call) error {
	s, err := o.subscription(c)
	if err != nil {
		return err
	}
	if s.Spec.As == c.Principal.Name {
		return nil
	}
	return c.Require(headgate.RoleDeveloper)
}

// owns reports whether a caller may see a subscription.
func owns(p *headgate.Principal, s *router.Subscription) bool {
	return p.Can(headgate.RoleViewer) || s.Spec.As == p.Name
}

func (o *operator) listSubscriptions(c *gateway.Call) error {
	all, err := o.Router.List(c.Context())
	if err != nil {
		return err
	}
	seen := make([]router.Subscription, 0, len(all))
	for i := range all {
		if owns(c.Principal, &all[i]) {
			seen = append(seen, all[i])
		}
	}
	cut, next, err := page(c, seen, func(s *router.Subscription) string { return s.Name })
	if err != nil {
		return err
	}
	out := api.Subscriptions{Subscriptions: make([]api.Subscription, len(cut)), Next: next}
	for i := range cut {
		out.Subscriptions[i] = o.subscriptionOf(&cut[i])
	}
	return c.JSON(http.StatusOK, out)
}

func (o *operator) subscriptionOf(s *router.Subscription) api.Subscription {
	out := api.Subscription{Name: s.Name, Paused: s.Paused, Created: s.Created, Managed: s.Managed, Retain: api.Duration(o.Topology.RetainOf(s.Spec.Types))}
	sp := &s.Spec
	out.SubscriptionSpec = api.SubscriptionSpec{
		Types: sp.Types, When: sp.When, As: sp.As, From: sp.From, Order: sp.Order, MaxBlock: api.Duration(sp.MaxBlock),
		Concurrency: sp.Concurrency, Attempts: sp.Attempts, Backoff: sp.Backoff, Claim: api.Duration(sp.Claim), Dedupe: sp.Dedupe,
		Expire: api.Duration(sp.Expire), Inactive: api.Duration(sp.Inactive), Lease: sp.Lease,
	}
	if sp.Deliver.Handler != nil {
		out.Deliver.Handler = &struct{}{}
	} else {
		out.Deliver.Pull = &struct{}{}
	}
	return out
}

func specOf(s *api.SubscriptionSpec) router.Spec {
	out := router.Spec{
		Types: s.Types, When: s.When, As: s.As, From: s.From, Order: s.Order, MaxBlock: router.Duration(s.MaxBlock),
		Concurrency: s.Concurrency, Attempts: s.Attempts, Backoff: s.Backoff, Claim: router.Duration(s.Claim), Dedupe: s.Dedupe,
		Expire: router.Duration(s.Expire), Inactive: router.Duration(s.Inactive), Lease: s.Lease,
	}
	if s.Deliver.Pull != nil {
		out.Deliver.Pull = &router.Pull{}
	}
	if s.Deliver.Handler != nil {
		out.Deliver.Handler = &router.Handler{}
	}
	return out
}

func (o *operator) putSubscription(c *gateway.Call) error {
	var spec api.SubscriptionSpec
	if err := c.Decode(&spec); err != nil {
		return err
	}
	name := c.Path("name")
	_, err := o.Router.Get(c.Context(), name)
	known := err == nil
	if err != nil && headgate.CodeOf(err) != headgate.CodeNotFound {
		return err
	}
	s, err := o.Router.Put(c.Context(), c.Principal, name, specOf(&spec), "api")
	if err != nil {
		return err
	}
	if known {
		return c.JSON(http.StatusOK, o.subscriptionOf(&s))
	}
	return c.JSON(http.StatusCreated, o.subscriptionOf(&s))
}

func (o *operator) subscription(c *gateway.Call) (router.Subscription, error) {
	s, err := o.Router.Get(c.Context(), c.Path("name"))
	if err == nil && !owns(c.Principal, &s) {
		err = notFound("subscription")
	}
	return s, err
}

func (o *operator) getSubscription(c *gateway.Call) error {
	s, err := o.subscription(c)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, o.subscriptionOf(&s))
}

func (o *operator) deleteSubscription(c *gateway.Call) error {
	if err := o.managed(c); err != nil {
		return err
	}
	if err := o.Router.Delete(c.Context(), c.Path("name")); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, api.Deleted{Deleted: 1})
}

func (o *operator) switchSubscription(c *gateway.Call, act func(context.Context, string) error) error {
	if err := o.managed(c); err != nil {
		return err
	}
	if err := act(c.Context(), c.Path("name")); err != nil {
		return err
	}
	return o.getSubscription(c)
}
