package confluent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/jsontext"
	"github.com/headgate/headgate/registry"
	"github.com/headgate/headgate/registry/compat"
)

// object reads the body as one JSON object.
func (c *call) object() (map[string]json.RawMessage, error) {
	b, err := c.read()
	if err != nil {
		return nil, err
	}
	if f := jsontext.Check(b, jsontext.Limits{}); f != nil {
		return nil, &registry.Fault{Code: http.StatusBadRequest, Detail: fmt.Sprintf("The body is not well-formed JSON: line %d, column %d", f.Line, f.Column)}
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil || members == nil {
		return nil, unprocessable("The body must be a JSON object.")
	}
	return members, nil
}

func unprocessable(format string, args ...any) error {
	return &registry.Fault{Code: http.StatusUnprocessableEntity, Detail: fmt.Sprintf(format, args...)}
}

// nothing reports whether a value says nothing.
func nothing(raw json.RawMessage) bool {
	switch string(bytes.TrimSpace(raw)) {
	case "", "null", "[]", "{}", `""`, "false":
		return true
	}
	return false
}

// take decodes a member and removes it.
func take(members map[string]json.RawMessage, name string, into any) error {
	raw, ok := members[name]
	delete(members, name)
	if !ok || string(bytes.TrimSpace(raw)) == "null" {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return unprocessable("The member %s has the wrong type.", name)
	}
	return nil
}

// rest refuses what was not taken, unless it says nothing.
func rest(members map[string]json.RawMessage, known ...string) error {
	var names []string
	for name, raw := range members {
		if nothing(raw) {
			continue
		}
		if slices.Contains(known, name) {
			return &registry.Fault{Code: registry.FaultNotPermitted, Detail: fmt.Sprintf("The setting %s is not available in this registry.", name)}
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil
	}
	return unprocessable("Unrecognized field: %s", clip(slices.Min(names)))
}

// submission reads a schema. Some clients send back what they were answered,
// so that the members of an answer are ignored where they mean nothing.
func (c *call) submission() (registry.Submission, error) {
	var s registry.Submission
	members, err := c.object()
	if err != nil {
		return s, err
	}
	var schema string
	var kind string
	for _, m := range []struct {
		name string
		into any
	}{
		{"schema", &schema},
		{"schemaType", &kind},
		{"references", &s.References},
		{"id", &s.ID},
		{"version", &s.Version},
		{"metadata", &s.Metadata},
		{"ruleSet", &s.RuleSet},
	} {
		if err := take(members, m.name, m.into); err != nil {
			return s, err
		}
	}
	for _, echoed := range []string{"subject", "guid", "deleted", "ts"} {
		delete(members, echoed)
	}
	if err := rest(members, "schemaTagsToAdd", "schemaTagsToRemove", "propagateSchemaTags"); err != nil {
		return s, err
	}
	if strings.TrimSpace(schema) == "" {
		return s, &registry.Fault{Code: registry.FaultInvalidSchema, Detail: "Empty schema"}
	}
	s.ID, s.Version = max(s.ID, 0), max(s.Version, 0)
	s.Schema, s.Type = []byte(schema), compat.Kind(strings.ToUpper(kind))
	if nothing(s.Metadata) {
		s.Metadata = nil
	}
	if nothing(s.RuleSet) {
		s.RuleSet = nil
	}
	return s, nil
}

// described is a version in an answer.
type described struct {
	Subject    string               `json:"subject,omitempty"`
	Version    int                  `json:"version,omitempty"`
	ID         int                  `json:"id,omitempty"`
	GUID       string               `json:"guid,omitempty"`
	Type       string               `json:"schemaType,omitempty"`
	References []registry.Reference `json:"references,omitempty"`
	Metadata   json.RawMessage      `json:"metadata,omitempty"`
	RuleSet    json.RawMessage      `json:"ruleSet,omitempty"`
	Schema     string               `json:"schema"`
	MaxID      int                  `json:"maxId,omitempty"`
}

// describe leaves out the type that is the default, which clients of old do not
// know, unless the caller takes what it does not know.
func (c *call) describe(e *registry.Entry) described {
	d := described{
		Subject: e.Subject, Version: e.Version, ID: e.ID, GUID: e.GUID, Type: string(e.Type), References: e.References,
		Metadata: e.Metadata, RuleSet: e.RuleSet, Schema: string(e.Schema),
	}
	if e.Type == compat.Avro && !c.takesUnknown() {
		d.Type = ""
	}
	return d
}

// takesUnknown reports whether the caller ignores members that it does not know,
// as newer clients say of themselves.
func (c *call) takesUnknown() bool {
	return strings.EqualFold(c.Header.Get("Confluent-Accept-Unknown-Properties"), "true")
}

// bare is what an id alone says.
func (c *call) bare(e *registry.Entry) described {
	d := c.describe(e)
	d.Subject, d.Version, d.ID = "", 0, 0
	return d
}
