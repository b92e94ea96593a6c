package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
)

// Gateway serves the HTTP API.
type Gateway struct {
	cfg    Config
	lim    Limits
	mux    *http.ServeMux
	routes []Route
	work   *budget
	waits  *budget
	tails  atomic.Int64
	causes causes

	mu       sync.Mutex
	draining bool
	waiting  map[*Call]context.CancelFunc
}

// New returns a gateway with its own routes. Others are added by [Gateway.Handle]
// before the first request.
func New(cfg Config) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = randomID
	}
	lim := cfg.Limits.withDefaults()
	g := &Gateway{
		cfg: cfg, lim: lim, mux: http.NewServeMux(), waiting: map[*Call]context.CancelFunc{},
		work:  newBudget(lim.Requests, lim.PrincipalRequests, lim.Bytes, lim.PrincipalBytes),
		waits: newBudget(lim.Waits, lim.PrincipalWaits, lim.Bytes, lim.PrincipalBytes),
	}
	g.addPublish()
	g.addDeliveries()
	g.addTail()
	g.addLeases()
	g.addHealth()
	return g, nil
}

// Handle adds a route. It panics on a pattern that conflicts with another, as
// http.ServeMux does: routes are fixed by the program, never by input.
func (g *Gateway) Handle(r Route) {
	if r.Handle == nil {
		panic(fmt.Sprintf("gateway: route %s has no handler", r.Pattern()))
	}
	g.routes = append(g.routes, r)
	g.mux.HandleFunc(r.Pattern(), func(w http.ResponseWriter, req *http.Request) { g.serve(&r, w, req) })
}

// Routes returns all routes, in the order in which they were added.
func (g *Gateway) Routes() []Route { return slices.Clone(g.routes) }

// ServeHTTP answers one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	aw := &answerWriter{ResponseWriter: w, start: g.cfg.Now()}
	c := &Call{W: aw, R: r, RequestID: g.requestID(r), g: g}
	aw.Header().Set(api.HeaderRequestID, c.RequestID)
	aw.Header().Set("X-Content-Type-Options", "nosniff")
	_, pattern := g.mux.Handler(r)
	aw.pattern = pattern
	aw.call = c
	defer g.finish(c, aw)
	if err := g.checkSite(r); err != nil {
		c.fail(err)
		return
	}
	if pattern == "" {
		g.noRoute(c)
		return
	}
	g.mux.ServeHTTP(aw, r)
}

// finish answers a panic, and reports the request.
func (g *Gateway) finish(c *Call, aw *answerWriter) {
	if p := recover(); p != nil {
		if p == http.ErrAbortHandler {
			panic(p)
		}
		g.cfg.Log.Error("handler panicked", "request", c.RequestID, "route", aw.pattern, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		if !aw.wrote {
			c.fail(&headgate.Error{Code: headgate.CodeInternal, Detail: "The request met a fault of the node."})
		}
	}
	if g.cfg.Requests == nil {
		return
	}
	info := RequestInfo{Route: aw.pattern, Status: aw.status, Duration: g.cfg.Now().Sub(aw.start)}
	if c.body != nil {
		info.BytesIn = c.body.read
	}
	g.cfg.Requests(info)
}

// serve runs a matched route: everything of the chain that depends on it.
func (g *Gateway) serve(r *Route, w http.ResponseWriter, req *http.Request) {
	aw, ok := w.(*answerWriter)
	if !ok {
		// The mux hands on what ServeHTTP gave it.
		panic("gateway: foreign response writer")
	}
	c := aw.call
	c.R, c.route = req, r
	c.guardBody()
	if err := g.run(r, c); err != nil {
		c.fail(err)
	}
	if c.body != nil && !c.body.ended && aw.wrote {
		if http.NewResponseController(aw).Flush() == nil {
			c.body.linger()
		}
	}
}

func (g *Gateway) run(r *Route, c *Call) error {
	if r.Public {
		return r.Handle(c)
	}
	if err := g.authenticate(c); err != nil {
		return err
	}
	if r.Role != "" {
		if err := c.Require(r.Role); err != nil {
			return err
		}
	}
	if err := r.checkQuery(c); err != nil {
		return err
	}
	if g.Draining() {
		return headgate.NewError(headgate.CodeDraining, "The node is shutting down and takes no new requests.")
	}
	b := g.work
	if r.Wait {
		b = g.waits
	}
	share, err := b.enter(c.Principal.Name)
	if err != nil {
		return err
	}
	defer share.leave()
	c.share = share
	return r.Handle(c)
}

// noRoute answers for paths and methods that no route takes.
func (g *Gateway) noRoute(c *Call) {
	var allow []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		probe := c.R.Clone(c.R.Context())
		probe.Method = m
		if _, pattern := g.mux.Handler(probe); pattern != "" {
			allow = append(allow, m)
		}
	}
	if len(allow) == 0 {
		c.fail(headgate.NewError(headgate.CodeNotFound, "There is no such path; /openapi.json lists all."))
		return
	}
	c.W.Header().Set("Allow", strings.Join(allow, ", "))
	c.failStatus(http.StatusMethodNotAllowed, headgate.NewError(headgate.CodeNotFound, "The path takes only %s.", strings.Join(allow, ", ")))
}

// Drain turns /readyz to 503, ends long polls early with an empty answer and
// refuses new requests with 503. Requests at work go on.
func (g *Gateway) Drain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.draining = true
	for _, cancel := range g.waiting {
		cancel()
	}
}

// Draining reports whether Drain was called.
func (g *Gateway) Draining() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.draining
}

// waitContext returns a context for a long poll: it ends with the request,
// when the node drains, and when the caller's rights change. The returned
// function must be called at the end.
func (g *Gateway) waitContext(c *Call) (context.Context, func()) {
	ctx, cancel := context.WithCancel(c.R.Context())
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining {
		cancel()
		return ctx, cancel
	}
	g.waiting[c] = cancel
	go g.watch(ctx, c, cancel) // until the returned function is called
	return ctx, func() {
		g.mu.Lock()
		delete(g.waiting, c)
		g.mu.Unlock()
		cancel()
	}
}
