package gateway

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate"
)

// Route is one call of the HTTP API: how it is served, and how the OpenAPI
// document describes it.
type Route struct {
	Method string
	// Path is a pattern of http.ServeMux; its {wildcards} are the path
	// parameters.
	Path        string
	ID          string // operationId
	Tag         string
	Summary     string // one line
	Description string
	// Public routes need no token.
	Public bool
	// Role is demanded of the caller; empty: any principal, and the handler
	// decides.
	Role headgate.Role
	// Wait marks long polls and live streams: they are bounded apart from
	// requests at work and end early when the node drains.
	Wait bool
	// Bulk routes may have bodies up to Limits.BulkBody, others up to
	// Limits.Body.
	Bulk      bool
	Params    []Param
	Requests  []Body
	Responses []Response
	Handle    func(*Call) error
}

// Pattern returns "METHOD PATH".
func (r *Route) Pattern() string { return r.Method + " " + r.Path }

// checkQuery refuses query parameters that the route does not know: a misspelt
// filter would otherwise select everything.
func (r *Route) checkQuery(c *Call) error {
	if c.R.URL.RawQuery == "" {
		return nil
	}
	var known []string
	for _, p := range r.Params {
		if p.In == "query" {
			known = append(known, p.Name)
		}
	}
	c.Query("")
	var unknown []string
	for name := range c.query {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	name := slices.Min(unknown)
	e := headgate.NewError(headgate.CodeInvalidArgument, "The query parameter %q is unknown.", clip(name))
	if near := nearest(name, known); near != "" {
		e.Fix = fmt.Sprintf("Did you mean %q?", near)
	}
	return e
}

// Param is a query or header parameter of a route.
type Param struct {
	In   string // query or header
	Name string
	Doc  string
	// Type is the JSON type: string (default), integer or boolean.
	Type     string
	Required bool
}

// Body is one form of a request body.
type Body struct {
	Media string
	// Of is a value of the Go type that the body holds. Nil: raw, as Doc says.
	Of  any
	Doc string
}

// Response is one answer of a route. Problems need not be listed: every route
// may answer with one.
type Response struct {
	Status int
	Doc    string
	Media  string // default application/json
	Of     any    // as in Body; nil: raw or empty
	Or     any    // another form that the answer may have; nil: none
}
