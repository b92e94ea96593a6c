package admin

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/store"
)

// maxGrace bounds how long replaced tokens stay valid.
const maxGrace = 30 * 24 * time.Hour

func (o *operator) principalRoutes() []gateway.Route {
	const tag = "principals"
	return []gateway.Route{
		{
			Method: http.MethodGet, Path: "/v1/whoami", ID: "whoami", Tag: tag, Handle: o.whoami,
			Summary: "The caller", Responses: ok("The caller's principal", api.Whoami{}),
		},
		{
			Method: http.MethodGet, Path: "/v1/principals", ID: "listPrincipals", Tag: tag, Role: headgate.RoleViewer, Handle: o.listPrincipals,
			Summary: "Principals", Params: pageParams(), Responses: ok("Principals by name", api.Principals{}),
		},
		{
			Method: http.MethodPost, Path: "/v1/principals", ID: "addPrincipal", Tag: tag, Role: headgate.RoleAdmin, Handle: o.addPrincipal,
			Summary: "Add a principal and issue its first token", Requests: []gateway.Body{{Media: api.TypeJSON, Of: api.Principal{}}},
			Description: "A name that is taken answers 409: change a principal by PUT.",
			Responses:   []gateway.Response{{Status: http.StatusCreated, Doc: "The principal with its token, shown this once", Of: api.NewPrincipal{}}},
		},
		{
			Method: http.MethodGet, Path: "/v1/principals/{name}", ID: "getPrincipal", Tag: tag, Role: headgate.RoleViewer, Handle: o.getPrincipal,
			Summary: "One principal", Responses: ok("The principal", api.Principal{}),
		},
		{
			Method: http.MethodPut, Path: "/v1/principals/{name}", ID: "putPrincipal", Tag: tag, Role: headgate.RoleAdmin, Handle: o.putPrincipal,
			Summary: "Change what a principal may do", Requests: []gateway.Body{{Media: api.TypeJSON, Of: api.Principal{}}}, Responses: ok("The principal", api.Principal{}),
		},
		{
			Method: http.MethodPost, Path: "/v1/principals/{name}/rotate", ID: "rotatePrincipal", Tag: tag, Role: headgate.RoleAdmin, Handle: o.rotatePrincipal,
			Summary: "Issue a new token and end the earlier ones", Requests: []gateway.Body{{Media: api.TypeJSON, Of: api.RotateRequest{}, Doc: "May be left out"}},
			Responses: ok("The principal with its token, shown this once", api.NewPrincipal{}),
		},
		{
			Method: http.MethodPost, Path: "/v1/principals/{name}/disable", ID: "disablePrincipal", Tag: tag, Role: headgate.RoleAdmin, Handle: o.disablePrincipal,
			Summary: "Refuse every further request of a principal, at once", Responses: ok("The principal", api.Principal{}),
		},
	}
}

func principalOf(p *store.Principal) api.Principal {
	out := api.Principal{
		Name: p.Name, Kind: p.Kind, Roles: p.Roles, Emit: p.Emit, Listen: p.Listen, Lease: p.Lease, Disabled: p.Disabled, Managed: p.Managed, Created: p.Created,
	}
	if p.Roots.Allowed {
		out.Roots = &api.RootRight{Rate: p.Roots.Rate, Burst: p.Roots.Burst}
	}
	return out
}

func (o *operator) whoami(c *gateway.Call) error {
	return c.JSON(http.StatusOK, api.Whoami{Principal: principalOf(&store.Principal{Principal: *c.Principal}), Version: o.Version})
}

func (o *operator) listPrincipals(c *gateway.Call) error {
	all, err := o.Principals.List(c.Context())
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b store.Principal) int { return strings.Compare(a.Name, b.Name) })
	cut, next, err := page(c, all, func(p *store.Principal) string { return p.Name })
	if err != nil {
		return err
	}
	out := api.Principals{Principals: make([]api.Principal, len(cut)), Next: next}
	for i := range cut {
		out.Principals[i] = principalOf(&cut[i])
	}
	return c.JSON(http.StatusOK, out)
}

// named reads a principal from the body. The node alone says who manages it
// and when it was created.
func named(c *gateway.Call) (headgate.Principal, error) {
	var in api.Principal
	if err := c.Decode(&in); err != nil {
		return headgate.Principal{}, err
	}
	p := headgate.Principal{Name: in.Name, Kind: in.Kind, Roles: in.Roles, Emit: in.Emit, Listen: in.Listen, Lease: in.Lease, Disabled: in.Disabled}
	if in.Roots != nil {
		p.Roots = headgate.RootRight{Allowed: true, Rate: in.Roots.Rate, Burst: in.Roots.Burst}
	}
	return p, nil
}

func (o *operator) addPrincipal(c *gateway.Call) error {
	p, err := named(c)
	if err != nil {
		return err
	}
	if _, err := o.Principals.Get(c.Context(), p.Name); err == nil {
		return headgate.NewError(headgate.CodeConflict, "There is a principal of this name.")
	} else if headgate.CodeOf(err) != headgate.CodeNotFound {
		return err
	}
	if err := o.Principals.Put(c.Context(), p, "api"); err != nil {
		return err
	}
	return o.issue(c, http.StatusCreated, p.Name, false, 0)
}

// issue answers with a new token.
func (o *operator) issue(c *gateway.Call, status int, name string, revoke bool, grace time.Duration) error {
	token, err := o.Principals.Issue(c.Context(), name, revoke, grace)
	if err != nil {
		return err
	}
	p, err := o.Principals.Get(c.Context(), name)
	if err != nil {
		return err
	}
	return c.JSON(status, api.NewPrincipal{Principal: principalOf(&p), Token: token})
}

func (o *operator) getPrincipal(c *gateway.Call) error {
	p, err := o.Principals.Get(c.Context(), c.Path("name"))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, principalOf(&p))
}

func (o *operator) putPrincipal(c *gateway.Call) error {
	p, err := named(c)
	if err != nil {
		return err
	}
	name := c.Path("name")
	if p.Name != "" && p.Name != name {
		return headgate.NewError(headgate.CodeInvalidArgument, "The member name differs from the name in the path.")
	}
	p.Name = name
	if _, err := o.Principals.Get(c.Context(), name); err != nil {
		return err
	}
	if err := o.Principals.Put(c.Context(), p, "api"); err != nil {
		return err
	}
	return o.getPrincipal(c)
}

func (o *operator) rotatePrincipal(c *gateway.Call) error {
	var in api.RotateRequest
	if c.HasBody() {
		if err := c.Decode(&in); err != nil {
			return err
		}
	}
	if time.Duration(in.Grace) > maxGrace {
		return headgate.NewError(headgate.CodeInvalidArgument, "grace must be at most %s.", maxGrace)
	}
	return o.issue(c, http.StatusOK, c.Path("name"), true, time.Duration(in.Grace))
}

func (o *operator) disablePrincipal(c *gateway.Call) error {
	return o.then(c, o.Principals.Disable, o.getPrincipal)
}

// then acts on the principal of the path and answers.
func (o *operator) then(c *gateway.Call, act func(context.Context, string) error, answer func(*gateway.Call) error) error {
	if err := act(c.Context(), c.Path("name")); err != nil {
		return err
	}
	return answer(c)
}
