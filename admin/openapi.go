package admin

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/gateway"
)

// wildcard finds the path parameters of a pattern.
var wildcard = regexp.MustCompile(`\{([a-z]+)\}`)

// Document returns the OpenAPI 3.1 document of the routes.
func Document(routes []gateway.Route, version string) ([]byte, error) {
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	if version == "" {
		version = "0.0.0"
	}
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "Headgate", Version: version,
			Description: "Event backbone for fleets of AI agents. Errors are problem+json (RFC 9457) with a stable code.",
			License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		Components: &huma.Components{
			Schemas:         schemas,
			SecuritySchemes: map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer"}},
		},
		Security: []map[string][]string{{"bearer": {}}},
		Servers:  []*huma.Server{{URL: "/"}},
	}
	// A duration is written as text, whatever its Go type is.
	schemas.RegisterTypeAlias(reflect.TypeFor[api.Duration](), reflect.TypeFor[string]())
	schemas.Map()[eventSchema] = cloudEvent()
	problem := schemas.Schema(reflect.TypeFor[api.Problem](), true, "Problem")
	for i := range routes {
		doc.AddOperation(operation(&routes[i], schemas, problem))
	}
	relax(schemas)
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("admin: OpenAPI document: %w", err)
	}
	return b, nil
}

// eventSchema names the schema of one event.
const eventSchema = "CloudEvent"

// cloudEvent describes an event in the CloudEvents JSON format.
func cloudEvent() *huma.Schema {
	text := func(doc string) *huma.Schema { return &huma.Schema{Type: huma.TypeString, Description: doc} }
	return &huma.Schema{
		Type:        huma.TypeObject,
		Description: "An event in the CloudEvents JSON format. Further attributes are extensions; those that only the perimeter sets (rootid, ttl, hop, …) are ignored when a client sends them.",
		Required:    []string{"specversion", "type"},
		Properties: map[string]*huma.Schema{
			"specversion": {Type: huma.TypeString, Enum: []any{"1.0"}}, "type": text("Selects contract, stream and subscriptions"),
			"id": text("Unique with source; minted when absent"), "source": text("URI reference; the principal's own when absent"),
			"subject": text("What the event is about"), "time": {Type: huma.TypeString, Format: "date-time"},
			"datacontenttype": text("Default application/json"), "partitionkey": text("Events of one key keep their order"),
			"expirytime": {Type: huma.TypeString, Format: "date-time", Description: "Nobody needs the event after this"},
			"data":       {Description: "The payload, checked against the type's contract"},
		},
		AdditionalProperties: true,
	}
}

// requestOnly are the types that the node reads strictly. All others are
// answers, which may gain members.
var requestOnly = map[string]bool{
	"PullRequest": true, "SettleRequest": true, "Settlement": true, "SubscriptionSpec": true, "Deliver": true, "RotateRequest": true,
	"AcquireRequest": true, "LeaseRequest": true, "RevokeRequest": true, "VerifyRequest": true,
}

// relax corrects what the generator assumes of Go types: answers are open to
// new members, and lists are never null.
func relax(schemas huma.Registry) {
	for name, s := range schemas.Map() {
		if !requestOnly[name] {
			s.AdditionalProperties = true
		}
		for _, p := range s.Properties {
			if p.Type == huma.TypeArray {
				p.Nullable = false
			}
		}
	}
}

func operation(r *gateway.Route, schemas huma.Registry, problem *huma.Schema) *huma.Operation {
	op := &huma.Operation{
		Method: r.Method, Path: r.Path, OperationID: r.ID, Summary: r.Summary, Description: description(r), Tags: []string{r.Tag},
		Responses: map[string]*huma.Response{
			"default": {
				Description: "A problem; its code is from the closed table of docs/errors.md",
				Content:     map[string]*huma.MediaType{api.TypeProblem: {Schema: problem}},
				Headers:     map[string]*huma.Param{api.HeaderRequestID: {Schema: &huma.Schema{Type: huma.TypeString}, Description: "Names this request in logs and problems"}},
			},
		},
	}
	if r.Public {
		op.Security = []map[string][]string{{}}
	}
	for _, m := range wildcard.FindAllStringSubmatch(r.Path, -1) {
		op.Parameters = append(op.Parameters, &huma.Param{Name: m[1], In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}})
	}
	for _, p := range r.Params {
		op.Parameters = append(op.Parameters, param(p))
	}
	if len(r.Requests) > 0 {
		op.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{}}
		var docs []string
		for _, b := range r.Requests {
			op.RequestBody.Content[b.Media] = &huma.MediaType{Schema: schemaOf(b.Of, b.Media, schemas)}
			if b.Doc != "" {
				docs = append(docs, b.Media+": "+b.Doc)
			}
		}
		op.RequestBody.Description = strings.Join(docs, ". ")
		op.RequestBody.Required = !slices.ContainsFunc(r.Requests, func(b gateway.Body) bool { return b.Doc == "May be left out" })
	}
	for _, a := range r.Responses {
		op.Responses[strconv.Itoa(a.Status)] = response(a, schemas)
	}
	return op
}

// description says, beyond the route's own words, who may call.
func description(r *gateway.Route) string {
	var parts []string
	if r.Description != "" {
		parts = append(parts, r.Description)
	}
	if r.Role != "" {
		parts = append(parts, "Needs the role "+string(r.Role)+".")
	}
	return strings.Join(parts, " ")
}

func param(p gateway.Param) *huma.Param {
	t := p.Type
	if t == "" {
		t = huma.TypeString
	}
	return &huma.Param{Name: p.Name, In: p.In, Description: p.Doc, Required: p.Required, Schema: &huma.Schema{Type: t}}
}

func response(a gateway.Response, schemas huma.Registry) *huma.Response {
	media := a.Media
	if media == "" {
		media = api.TypeJSON
	}
	s := schemaOf(a.Of, media, schemas)
	if a.Or != nil {
		s = &huma.Schema{OneOf: []*huma.Schema{s, schemaOf(a.Or, media, schemas)}}
	}
	out := &huma.Response{Description: a.Doc, Content: map[string]*huma.MediaType{media: {Schema: s}}}
	if a.Status >= 400 && media != api.TypeProblem {
		out.Content[api.TypeProblem] = &huma.MediaType{Schema: schemaOf(api.Problem{}, media, schemas)}
	}
	return out
}

// schemaOf describes a body: by its Go type, or as what its media type allows.
func schemaOf(of any, media string, schemas huma.Registry) *huma.Schema {
	if of != nil {
		t := reflect.TypeOf(of)
		return schemas.Schema(t, true, t.Name())
	}
	event := &huma.Schema{Ref: "#/components/schemas/" + eventSchema}
	switch media {
	case api.TypeEvent:
		return event
	case api.TypeBatch:
		return &huma.Schema{Type: huma.TypeArray, Items: event}
	case api.TypeJSON, api.TypeSchema, api.TypeAvroSchema:
		return &huma.Schema{} // any JSON
	}
	return &huma.Schema{Type: huma.TypeString}
}
