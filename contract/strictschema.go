package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/jsontext"
)

// stricter rewrites one schema document.
type stricter struct {
	c      *Contract
	doc    any
	byPtr  map[string]*node  // compiled schemas of the contract
	defs   map[string]string // pointer of a target → its name in the export
	queue  []string          // targets that are not written yet
	out    map[string]any    // by name
	x      *StrictExport
	size   StrictLimits
	failed string
}

const maxStrictDepth = 128 // of schemas inside one another

// strictFormats are the formats that decoders take.
var strictFormats = []string{"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"}

// strictNotes are keywords that say nothing about what is valid.
var strictNotes = []string{
	"$schema", "$id", "id", "$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
	"$defs", "definitions", "contentMediaType", "contentEncoding", "contentSchema", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary",
}

// embedded returns the pointer of a schema that references do not resolve
// against the document in, "" when there is none.
func (s *stricter) embedded() string {
	root, err := url.Parse(rootURL)
	if err != nil {
		return "/"
	}
	found := ""
	walkSchemas(s.doc, root, s.draft(""), func(p place) {
		if p.resource && p.ptr != "" && found == "" {
			found = p.ptr
		}
	})
	return found
}

func (s *stricter) lose(at, keyword string, effect StrictEffect, format string, args ...any) {
	s.x.Losses = append(s.x.Losses, StrictLoss{At: clip(at, 400), Keyword: keyword, Effect: effect, Detail: fmt.Sprintf(format, args...)})
}

func (s *stricter) fail(at, format string, args ...any) map[string]any {
	if s.failed == "" {
		s.failed = "at " + placeWords(at) + ": " + fmt.Sprintf(format, args...)
	}
	return map[string]any{"type": "null"}
}

// object rewrites the root, which must be an object.
func (s *stricter) object(v any, ptr string) (map[string]any, bool) {
	obj, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	for range 8 { // a root that is a reference alone is written in place
		ref, ok := obj["$ref"].(string)
		if !ok {
			break
		}
		target, found := s.target(ref)
		next, isObject := lookupAs(s.doc, target)
		if !found || !isObject {
			return nil, false
		}
		obj, ptr = next, target
	}
	out := s.schema(obj, ptr, "", 0)
	return out, out["type"] == "object" || s.failed != ""
}

func lookupAs(doc any, ptr string) (map[string]any, bool) {
	v, _ := lookupPointer(doc, ptr)
	obj, ok := v.(map[string]any)
	return obj, ok
}

// target returns the pointer of a reference within the document.
func (s *stricter) target(ref string) (string, bool) {
	frag, ok := strings.CutPrefix(ref, "#")
	if !ok || frag != "" && frag[0] != '/' {
		return "", false
	}
	dec, err := unescapeFragment(frag)
	return dec, err == nil
}

// schema rewrites one schema. The result stands at the pointer "to" of the
// export.
func (s *stricter) schema(v any, at, to string, depth int) map[string]any {
	if depth > maxStrictDepth {
		return s.fail(at, "schemas are nested more than %d deep", maxStrictDepth)
	}
	obj, ok := v.(map[string]any)
	if !ok {
		if v == false {
			return s.fail(at, "nothing is valid here")
		}
		return s.anything(at)
	}
	if ref, ok := obj["$ref"].(string); ok {
		return s.reference(obj, ref, at, to, depth)
	}
	if list, ok := obj["allOf"].([]any); ok {
		merged, ok := s.merge(obj, list, at)
		if !ok {
			return s.fail(at+"/allOf", "the parts of allOf cannot be put into one schema")
		}
		return s.schema(merged, at, to, depth+1)
	}
	s.refuseKeywords(obj, at)
	for _, kw := range []string{"anyOf", "oneOf"} {
		if list, ok := obj[kw].([]any); ok {
			if out := s.union(obj, kw, list, at, to, depth); out != nil {
				return out
			}
		}
	}
	return s.plain(obj, at, to, depth)
}

// reference rewrites a reference as one into $defs.
func (s *stricter) reference(obj map[string]any, ref, at, to string, depth int) map[string]any {
	ptr, ok := s.target(ref)
	if !ok {
		return s.fail(at+"/$ref", "only references of the form #/… can be exported")
	}
	rest := maps.Clone(obj)
	delete(rest, "$ref")
	if draft := s.draft(at); draft >= 2019 && s.says(rest) {
		target, isObject := lookupAs(s.doc, ptr)
		if !isObject || !s.says(target) {
			return s.schema(rest, at, to, depth+1)
		}
		merged, ok := s.merge(rest, []any{map[string]any{"$ref": ref}}, at)
		if !ok {
			return s.fail(at+"/$ref", "what stands beside $ref cannot be put into one schema with its target")
		}
		return s.schema(merged, at, to, depth+1)
	}
	name, known := s.defs[ptr]
	if !known {
		name = s.defName(ptr)
		s.defs[ptr] = name
		s.queue = append(s.queue, ptr)
		s.size.Characters += len(name)
	}
	return map[string]any{"$ref": "#/$defs/" + strings.ReplaceAll(escapeToken(name), "%", "%25")}
}

func (s *stricter) draft(at string) int {
	if n := s.byPtr[at]; n != nil {
		return n.draft
	}
	return 2020
}

// says reports whether a schema says anything about what is valid.
func (s *stricter) says(obj map[string]any) bool {
	for name := range obj {
		if !slices.Contains(strictNotes, name) && !strings.HasPrefix(name, keyPrefix) {
			return true
		}
	}
	return false
}

// defName makes the name of a definition: the last part of its pointer, made
// unique.
func (s *stricter) defName(ptr string) string {
	base := "root"
	if i := strings.LastIndexByte(ptr, '/'); i >= 0 {
		base = strings.Map(func(r rune) rune {
			if r == '_' || r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
				return r
			}
			return '_'
		}, ptr[i+1:])
	}
	taken := slices.Collect(maps.Values(s.defs))
	name := base
	for n := 2; slices.Contains(taken, name) || name == ""; n++ {
		name = fmt.Sprintf("%s_%d", base, n)
	}
	return name
}

// merge puts the parts of allOf, and what stands beside it, into one schema:
// only where each part describes an object by type, properties and required
// alone, and no property is described twice.
func (s *stricter) merge(obj map[string]any, list []any, at string) (map[string]any, bool) {
	rest := maps.Clone(obj)
	delete(rest, "allOf")
	if len(list) == 1 && !s.says(rest) {
		if part, ok := list[0].(map[string]any); ok {
			return part, true
		}
	}
	props, required := map[string]any{}, []any{}
	out := map[string]any{"type": "object"}
	parts := append([]any{rest}, list...)
	for i := 0; i < len(parts); i++ {
		if i > 64 {
			return nil, false
		}
		part, ok := parts[i].(map[string]any)
		if !ok {
			return nil, false
		}
		if ref, ok := part["$ref"].(string); ok {
			ptr, ok := s.target(ref)
			target, isObject := lookupAs(s.doc, ptr)
			if !ok || !isObject || len(part) > 1 {
				return nil, false
			}
			parts = append(parts, target)
			continue
		}
		for name, v := range part {
			switch {
			case name == "allOf":
				more, _ := v.([]any)
				parts = append(parts, more...)
			case name == "type" && v == "object":
			case name == "properties":
				more, _ := v.(map[string]any)
				for p, sub := range more {
					if _, twice := props[p]; twice {
						return nil, false
					}
					props[p] = sub
				}
			case name == "required":
				more, _ := v.([]any)
				required = append(required, more...)
			case name == "unevaluatedProperties" && v == false && i == 0:
			case slices.Contains(strictNotes, name) || strings.HasPrefix(name, keyPrefix):
			default:
				return nil, false
			}
		}
	}
	out["properties"], out["required"] = props, required
	return out, true
}

// refuseKeywords notes the keywords that no strict schema has.
func (s *stricter) refuseKeywords(obj map[string]any, at string) {
	for _, kw := range sortedKeys(obj) {
		switch kw {
		case "not", "if", "dependencies", "dependentRequired", "dependentSchemas", "contains", "uniqueItems", "unevaluatedItems",
			"$dynamicRef", "$recursiveRef", "propertyNames":
			if kw == "uniqueItems" && obj[kw] == false {
				continue
			}
			s.lose(at, kw, StrictLoosened, "constrained output knows no %s", kw)
		case "patternProperties":
			effect := StrictNarrowed
			if s.patternsMeet(at) {
				effect = StrictLoosened
			}
			s.lose(at, kw, effect, "only declared properties can be sent, and only what is declared of them is asked")
		}
	}
}

// patternsMeet reports whether a pattern speaks of a declared property too.
func (s *stricter) patternsMeet(at string) bool {
	n := s.byPtr[at]
	if n == nil || n.object == nil {
		return true
	}
	for _, p := range n.object.patterns {
		if slices.ContainsFunc(n.object.names, p.re.MatchString) {
			return true
		}
	}
	return false
}

// union rewrites anyOf and oneOf, where the schema says nothing else; nil
// otherwise, with the loss noted.
func (s *stricter) union(obj map[string]any, kw string, list []any, at, to string, depth int) map[string]any {
	rest := maps.Clone(obj)
	delete(rest, kw)
	for _, name := range []string{"not", "if", "then", "else", "patternProperties"} {
		delete(rest, name) // noted already
	}
	if s.says(rest) {
		s.lose(at, kw, StrictLoosened, "alternatives beside other keywords are left out")
		return nil
	}
	if kw == "oneOf" && !s.disjoint(at) {
		s.lose(at, kw, StrictLoosened, "written as anyOf: that no second alternative matches is not asked")
	}
	var out []any
	for i, b := range list {
		if b == false {
			continue
		}
		out = append(out, s.schema(b, fmt.Sprintf("%s/%s/%d", at, kw, i), fmt.Sprintf("%s/anyOf/%d", to, len(out)), depth+1))
	}
	if len(out) == 0 {
		return s.fail(at, "nothing is valid here")
	}
	return s.annotated(obj, map[string]any{"anyOf": out})
}

// disjoint reports whether at most one alternative can match: each is chosen by
// the value of one property.
func (s *stricter) disjoint(at string) bool {
	n := s.byPtr[at]
	return n != nil && n.oneOf != nil && n.oneOf.disc != nil
}

func (s *stricter) annotated(from, out map[string]any) map[string]any {
	for _, kw := range []string{"title", "description"} {
		if v, ok := from[kw].(string); ok {
			out[kw] = v
		}
	}
	return out
}

// anything stands for a place where everything is allowed.
func (s *stricter) anything(at string) map[string]any {
	s.lose(at, "", StrictNarrowed, "anything is allowed here; constrained output must have a type: scalars can be sent")
	return map[string]any{"type": []any{"string", "number", "boolean", "null"}}
}

// admitsNull reports whether the contract takes null at a place.
func (s *stricter) admitsNull(at string) bool {
	n := s.byPtr[at]
	if n == nil {
		return false
	}
	t, fault := readTape([]byte("null"), jsontext.Limits{}, nil)
	return fault == nil && newEvaluator(s.c.prog, &t).eval(n, 0, nil, nil)
}

// literals lists enum or const.
func literals(obj map[string]any) ([]any, bool) {
	if v, ok := obj["const"]; ok {
		return []any{v}, true
	}
	list, ok := obj["enum"].([]any)
	return list, ok
}

func (s *stricter) countLiterals(list []any) {
	s.size.EnumValues += len(list)
	for _, v := range list {
		text, err := json.Marshal(v)
		if err == nil {
			s.size.Characters += len(text)
		}
	}
}
