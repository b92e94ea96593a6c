package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/broker"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/index"
	"github.com/headgate/headgate/principal"
	"github.com/headgate/headgate/quarantine"
	"github.com/headgate/headgate/registry"
	"github.com/headgate/headgate/router"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/topology"
)

// Config configures the operator API. All components are required.
type Config struct {
	Registry   *registry.Registry
	Router     *router.Router
	Quarantine *quarantine.Quarantine
	Principals *principal.Directory
	Index      *index.Index
	Broker     broker.Broker
	Store      store.Store
	Topology   *topology.Table
	// Guesses are the property names that senders guessed wrong. May be nil.
	Guesses *contract.Guesses
	// Findings are what the node itself knows to be wrong or unsafe, for
	// /v1/doctor. May be nil.
	Findings func(context.Context) []api.Finding
	Version  string           // of the build
	Now      func() time.Time // default time.Now
}

// operator holds the handlers.
type operator struct {
	Config
	asks asks // of the diagnosis
}

// Mount adds the operator API, and /openapi.json for everything that the
// gateway serves by then, to a gateway. Call it once, after all other routes
// were added.
func Mount(g *gateway.Gateway, cfg Config) error {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	o := &operator{Config: cfg, asks: make(asks, asksAtOnce)}
	for _, group := range [][]gateway.Route{
		o.contractRoutes(), o.exportRoutes(), o.subscriptionRoutes(), o.eventRoutes(), o.quarantineRoutes(), o.principalRoutes(), o.nodeRoutes(),
	} {
		for _, r := range group {
			g.Handle(r)
		}
	}
	var document []byte
	g.Handle(gateway.Route{
		Method: http.MethodGet, Path: "/openapi.json", ID: "openapi", Tag: "node", Public: true,
		Summary:   "This API as an OpenAPI 3.1 document",
		Responses: []gateway.Response{{Status: http.StatusOK, Doc: "The document"}},
		Handle: func(c *gateway.Call) error {
			c.Raw(http.StatusOK, api.TypeJSON, document)
			return nil
		},
	})
	var err error
	document, err = Document(g.Routes(), cfg.Version)
	return err
}

// page cuts one page out of a list that is ordered by key. The cursor is the
// key of the last entry of the page before.
func page[T any](c *gateway.Call, list []T, key func(*T) string) (cut []T, next string, err error) {
	limit, err := c.QueryInt("limit", 100, 1000)
	if err != nil {
		return nil, "", err
	}
	cursor := c.Query("cursor")
	start := 0
	for cursor != "" && start < len(list) && key(&list[start]) <= cursor {
		start++
	}
	list = list[start:]
	if len(list) > limit {
		list = list[:limit]
		next = key(&list[limit-1])
	}
	return list, next, nil
}

// pageParams documents the parameters of paged lists.
func pageParams(more ...gateway.Param) []gateway.Param {
	return append(more,
		gateway.Param{In: "query", Name: "limit", Type: "integer", Doc: "Entries of a page; default 100, at most 1000"},
		gateway.Param{In: "query", Name: "cursor", Doc: "The member next of the page before"},
	)
}

// maySee reports whether a caller may know a type and its contract.
func maySee(p *headgate.Principal, eventType string) bool {
	return p.Can(headgate.RoleViewer) || p.MayListen(eventType) || p.MayEmit(eventType)
}

func notFound(what string) error {
	return headgate.NewError(headgate.CodeNotFound, "There is no such %s.", what)
}

func ok(doc string, of any) []gateway.Response {
	return []gateway.Response{{Status: http.StatusOK, Doc: doc, Of: of}}
}
