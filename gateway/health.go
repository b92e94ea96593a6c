package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/headgate/headgate"
)

// health is the answer of the health routes.
type health struct {
	Status string `json:"status" doc:"ok, or ready"`
}

// readyTime bounds the node's own check.
const readyTime = time.Second

func (g *Gateway) addHealth() {
	g.Handle(Route{
		Method: http.MethodGet, Path: "/healthz", ID: "healthz", Tag: "node", Public: true,
		Summary:   "Whether the process answers",
		Responses: []Response{{Status: http.StatusOK, Doc: "It does", Of: health{}}},
		Handle:    func(c *Call) error { return c.JSON(http.StatusOK, health{"ok"}) },
	})
	g.Handle(Route{
		Method: http.MethodGet, Path: "/readyz", ID: "readyz", Tag: "node", Public: true,
		Summary:     "Whether the node takes work",
		Description: "503 while it starts, drains, cannot store events durably, or its store or broker does not answer.",
		Responses:   []Response{{Status: http.StatusOK, Doc: "It does", Of: health{}}},
		Handle:      g.ready,
	})
	if g.cfg.Metrics == nil {
		return
	}
	r := Route{
		Method: http.MethodGet, Path: "/metrics", ID: "metrics", Tag: "node", Public: !g.cfg.ProtectMetrics,
		Summary:   "Metrics in the Prometheus text format",
		Responses: []Response{{Status: http.StatusOK, Doc: "Metrics", Media: "text/plain; version=0.0.4"}},
		Handle: func(c *Call) error {
			c.patience()
			g.cfg.Metrics.ServeHTTP(c.W, c.R)
			return nil
		},
	}
	if g.cfg.ProtectMetrics {
		r.Role = headgate.RoleViewer
	}
	g.Handle(r)
}

func (g *Gateway) ready(c *Call) error {
	if g.Draining() {
		return headgate.NewError(headgate.CodeDraining, "The node is shutting down.")
	}
	if g.cfg.Ready != nil {
		ctx, cancel := context.WithTimeout(c.Context(), readyTime)
		defer cancel()
		if err := g.cfg.Ready(ctx); err != nil {
			e := headgate.AsError(err)
			if e == nil {
				e = &headgate.Error{Code: headgate.CodeUnavailable, Detail: "The node is not ready.", Err: err}
			}
			return e
		}
	}
	return c.JSON(http.StatusOK, health{"ready"})
}
