package contract

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// shape says what a keyword of a schema holds.
type shape uint8

const (
	shapeSchema shape = 1 << iota // a schema
	shapeList                     // an array of schemas
	shapeMap                      // an object of schemas
)

// subschemas are the keywords that hold schemas, over all drafts.
var subschemas = map[string]shape{
	"definitions": shapeMap, "$defs": shapeMap,
	"not": shapeSchema, "allOf": shapeList, "anyOf": shapeList, "oneOf": shapeList,
	"if": shapeSchema, "then": shapeSchema, "else": shapeSchema,
	"properties": shapeMap, "patternProperties": shapeMap, "additionalProperties": shapeSchema,
	"propertyNames": shapeSchema, "unevaluatedProperties": shapeSchema,
	"dependencies": shapeMap, "dependentSchemas": shapeMap,
	"items": shapeSchema | shapeList, "additionalItems": shapeSchema, "prefixItems": shapeList,
	"contains": shapeSchema, "unevaluatedItems": shapeSchema, "contentSchema": shapeSchema,
}

// place is one schema object of a document.
type place struct {
	ptr      string // JSON Pointer
	obj      map[string]any
	draft    int
	base     *url.URL
	resource bool // starts a schema resource of its own, by $id
}

// maxDocumentSchemas bounds the schemas of one document, since the work of the
// schema library grows with their square.
const maxDocumentSchemas = 8192

// walkSchemas calls fn for every schema object that stands at a place where
// keywords put one, parents first, members ordered by name.
func walkSchemas(doc any, base *url.URL, draft int, fn func(place)) {
	w := walker{fn: fn}
	w.schema(doc, "", base, draft)
}

type walker struct{ fn func(place) }

func (w *walker) schema(v any, ptr string, base *url.URL, draft int) {
	obj, ok := v.(map[string]any)
	if !ok {
		return
	}
	p := place{ptr: ptr, obj: obj, draft: draft, base: base}
	idName := "$id"
	if draft == 4 {
		idName = "id"
	}
	_, hasRef := obj["$ref"].(string)
	if id, ok := obj[idName].(string); ok && (draft >= 2019 || !hasRef) {
		if id, _, _ = strings.Cut(id, "#"); id != "" {
			if ref, err := url.Parse(id); err == nil {
				p.base, p.resource = resolveURL(base, ref), true
				if s, ok := obj["$schema"].(string); ok && ptr != "" {
					if d := draftOf(s); d != 0 {
						p.draft = d
					}
				}
			}
		}
	}
	w.fn(p)
	for _, name := range sortedKeys(obj) {
		sh, ok := subschemas[name]
		if !ok {
			continue
		}
		w.keyword(obj[name], sh, ptr+"/"+escapeToken(name), p)
	}
}

func (w *walker) keyword(v any, sh shape, ptr string, p place) {
	switch v := v.(type) {
	case []any:
		if sh&shapeList != 0 {
			for i, e := range v {
				w.schema(e, ptr+"/"+strconv.Itoa(i), p.base, p.draft)
			}
		}
	case map[string]any:
		if sh&shapeSchema != 0 {
			w.schema(v, ptr, p.base, p.draft)
		} else if sh&shapeMap != 0 {
			for _, name := range sortedKeys(v) {
				w.schema(v[name], ptr+"/"+escapeToken(name), p.base, p.draft)
			}
		}
	}
}

// resolveURL resolves a reference as the schema library does: a base without a
// hierarchy (urn:…) stays as it is.
func resolveURL(base, ref *url.URL) *url.URL { return base.ResolveReference(ref) }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// lookupPointer follows a JSON Pointer through a decoded document.
func lookupPointer(doc any, ptr string) (any, bool) {
	if ptr == "" {
		return doc, true
	}
	if ptr[0] != '/' {
		return nil, false
	}
	for tok := range strings.SplitSeq(ptr[1:], "/") {
		tok = strings.ReplaceAll(strings.ReplaceAll(tok, "~1", "/"), "~0", "~")
		switch v := doc.(type) {
		case map[string]any:
			child, ok := v[tok]
			if !ok {
				return nil, false
			}
			doc = child
		case []any:
			i, err := strconv.Atoi(tok)
			if err != nil || i < 0 || i >= len(v) || strconv.Itoa(i) != tok {
				return nil, false
			}
			doc = v[i]
		default:
			return nil, false
		}
	}
	return doc, true
}

// draftOf returns the draft that a $schema names, or 0.
func draftOf(schema string) int {
	s := strings.TrimSuffix(schema, "#")
	s = strings.TrimPrefix(strings.TrimPrefix(s, "http://"), "https://")
	switch s {
	case "json-schema.org/draft/2020-12/schema", "json-schema.org/schema":
		return 2020
	case "json-schema.org/draft/2019-09/schema":
		return 2019
	case "json-schema.org/draft-07/schema":
		return 7
	case "json-schema.org/draft-06/schema":
		return 6
	case "json-schema.org/draft-04/schema":
		return 4
	}
	return 0
}
