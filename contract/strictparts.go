package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

func unescapeFragment(frag string) (string, error) { return url.PathUnescape(frag) }

// plain rewrites a schema without references and alternatives.
func (s *stricter) plain(obj map[string]any, at, to string, depth int) map[string]any {
	if list, ok := literals(obj); ok {
		return s.literal(obj, list, at)
	}
	types := s.types(obj, at)
	if len(types) == 0 {
		return s.anything(at)
	}
	containers := slices.Contains(types, "object") || slices.Contains(types, "array")
	if len(types) == 1 || !containers {
		return s.typed(obj, types, at, to, depth)
	}
	var out []any
	for _, t := range types {
		out = append(out, s.typed(obj, []string{t}, at, fmt.Sprintf("%s/anyOf/%d", to, len(out)), depth+1))
	}
	return s.annotated(obj, map[string]any{"anyOf": out})
}

// literal rewrites enum and const.
func (s *stricter) literal(obj map[string]any, list []any, at string) map[string]any {
	for _, v := range list {
		switch v.(type) {
		case map[string]any, []any:
			return s.fail(at, "constrained output has no objects or arrays among fixed values")
		}
	}
	for _, kw := range sortedKeys(obj) {
		switch kw {
		case "enum", "const", "type":
		default:
			if !slices.Contains(strictNotes, kw) && len(kw) > 0 && !s.noted(kw) && !s.allPass(list, at) {
				s.lose(at, kw, StrictLoosened, "left out beside fixed values")
			}
		}
	}
	kept := list[:0:0]
	for _, v := range list {
		if s.passes(v, at) {
			kept = append(kept, v)
		}
	}
	if len(kept) == 0 {
		return s.fail(at, "none of the fixed values is valid")
	}
	s.countLiterals(kept)
	out := map[string]any{"enum": kept}
	if t := typeOfAll(kept); t != "" {
		out["type"] = t
	}
	return s.annotated(obj, out)
}

// typeOfAll returns the type that all of some scalars have.
func typeOfAll(list []any) string {
	name := ""
	for i, v := range list {
		t := ""
		switch v.(type) {
		case string:
			t = "string"
		case json.Number:
			t = "number"
		case bool:
			t = "boolean"
		}
		if i > 0 && t != name {
			return ""
		}
		name = t
	}
	return name
}

// noted reports whether a keyword is dealt with elsewhere.
func (s *stricter) noted(kw string) bool {
	switch kw {
	case "not", "if", "then", "else", "dependencies", "dependentRequired", "dependentSchemas", "contains", "uniqueItems", "unevaluatedItems",
		"propertyNames", "patternProperties":
		return true
	}
	return false
}

func (s *stricter) allPass(list []any, at string) bool {
	return !slices.ContainsFunc(list, func(v any) bool { return !s.passes(v, at) })
}

// passes reports whether the contract takes a value at a place.
func (s *stricter) passes(v any, at string) bool {
	n := s.byPtr[at]
	text, err := json.Marshal(v)
	if n == nil || err != nil {
		return n == nil
	}
	t, fault := readTape(text, s.c.policy.limits(), nil)
	return fault == nil && newEvaluator(s.c.prog, &t).eval(n, 0, nil, nil)
}

// types lists the types of a schema, or those that its keywords speak of.
func (s *stricter) types(obj map[string]any, at string) []string {
	switch v := obj["type"].(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, t := range v {
			if name, ok := t.(string); ok {
				out = append(out, name)
			}
		}
		return out
	}
	for _, guess := range []struct {
		name     string
		keywords []string
	}{
		{"object", []string{"properties", "required", "additionalProperties", "minProperties", "maxProperties", "patternProperties", "unevaluatedProperties"}},
		{"array", []string{"items", "prefixItems", "minItems", "maxItems", "contains", "uniqueItems"}},
		{"string", []string{"minLength", "maxLength", "pattern", "format"}},
		{"number", []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
	} {
		for _, kw := range guess.keywords {
			if _, ok := obj[kw]; ok {
				s.lose(at, "type", StrictNarrowed, "the schema names no type; %s is taken from its keywords", guess.name)
				return []string{guess.name}
			}
		}
	}
	return nil
}

func (s *stricter) typed(obj map[string]any, types []string, at, to string, depth int) map[string]any {
	out := map[string]any{"type": types[0]}
	if len(types) > 1 {
		list := make([]any, len(types))
		for i, t := range types {
			list[i] = t
		}
		out["type"] = list
	}
	for _, t := range types {
		switch t {
		case "object":
			s.properties(obj, out, at, to, depth)
		case "array":
			s.items(obj, out, at, to, depth)
		case "string":
			s.text(obj, out, at)
		case "number", "integer":
			for _, kw := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"} {
				switch v := obj[kw].(type) {
				case bool: // of draft 4
					if v {
						bound := map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}[kw]
						if n, ok := obj[bound]; ok {
							out[kw] = n
							delete(out, bound)
						}
					}
				case json.Number:
					out[kw] = v
				}
			}
		}
	}
	return s.annotated(obj, out)
}

// text rewrites the keywords of strings. Bounds of the length become a pattern
// where there is none.
func (s *stricter) text(obj, out map[string]any, at string) {
	pattern, hasPattern := obj["pattern"].(string)
	if hasPattern {
		out["pattern"] = pattern
	}
	if f, ok := obj["format"].(string); ok {
		if slices.Contains(strictFormats, f) {
			out["format"] = f
		} else {
			s.lose(at, "format", StrictLoosened, "decoders do not know the format %s", clipQuote(f))
		}
	}
	least, most := countOf(obj["minLength"], 0), countOf(obj["maxLength"], -1)
	if least <= 0 && most < 0 {
		return
	}
	if hasPattern || least > maxRepeat || most > maxRepeat {
		for _, kw := range []string{"minLength", "maxLength"} {
			if _, ok := obj[kw]; ok {
				s.lose(at, kw, StrictLoosened, "the length can be said by a pattern alone, where the contract has none and it is at most %d", maxRepeat)
			}
		}
		return
	}
	bounds := fmt.Sprintf("{%d,", max(least, 0))
	if most >= 0 {
		bounds += fmt.Sprint(most)
	}
	out["pattern"] = `^[\s\S]` + bounds + `}$`
}

// maxRepeat is the greatest count that RE2 takes.
const maxRepeat = 400

func countOf(v any, otherwise int) int {
	n, ok := v.(json.Number)
	if !ok {
		return otherwise
	}
	if i, ok := smallInt([]byte(n)); ok && i < 1<<31 {
		return int(i)
	}
	return 1 << 31
}

func (s *stricter) items(obj, out map[string]any, at, to string, depth int) {
	s.size.Depth = max(s.size.Depth, levels(to)+1)
	for _, kw := range []string{"minItems", "maxItems"} {
		if v, ok := obj[kw].(json.Number); ok {
			out[kw] = v
		}
	}
	_, hasPrefix := obj["prefixItems"]
	_, isTuple := obj["items"].([]any)
	if hasPrefix || isTuple {
		s.fail(at, "constrained output has no tuples (items by position)")
	}
	switch v, ok := obj["items"]; {
	case !ok || v == true:
		out["items"] = s.anything(at + "/items")
	case v == false:
		out["items"], out["maxItems"] = map[string]any{"type": "null"}, 0
	default:
		out["items"] = s.schema(v, at+"/items", to+"/items", depth+1)
	}
}

// levels counts the objects and arrays above a place of the export.
func levels(to string) int {
	n := 0
	toks := strings.Split(to, "/")[1:]
	for i := 0; i < len(toks); i++ {
		switch toks[i] {
		case "properties":
			n++
			i++
		case "items":
			n++
		default: // anyOf and $defs, with an index or a name behind them
			i++
		}
	}
	return n
}

func (s *stricter) properties(obj, out map[string]any, at, to string, depth int) {
	s.size.Depth = max(s.size.Depth, levels(to)+1)
	props, _ := obj["properties"].(map[string]any)
	required := map[string]bool{}
	if list, ok := obj["required"].([]any); ok {
		for _, r := range list {
			name, _ := r.(string)
			required[name] = true
		}
	}
	declared, names := map[string]any{}, []any{}
	for _, name := range sortedKeys(props) {
		ptr := at + "/properties/" + escapeToken(name)
		if props[name] == false {
			if required[name] {
				s.fail(ptr, "the property is required and nothing is valid for it")
			}
			continue
		}
		target := to + "/properties/" + escapeToken(name)
		names = append(names, name)
		s.size.Properties++
		s.size.Characters += len(name)
		if required[name] || s.nullable(props[name], ptr) {
			declared[name] = s.schema(props[name], ptr, target, depth+1)
			continue
		}
		s.x.null[target] = true
		declared[name] = orNull(props[name], func(to string) map[string]any { return s.schema(props[name], ptr, to, depth+1) }, target)
	}
	for _, name := range sortedKeys(required) {
		if _, ok := props[name]; !ok {
			s.fail(at+"/required", "%s is required and not declared, so that nothing says what it is", clipQuote(name))
		}
	}
	s.openness(obj, at)
	if least := countOf(obj["minProperties"], 0); least > len(required) {
		s.lose(at, "minProperties", StrictLoosened, "properties are not counted")
	}
	if most := countOf(obj["maxProperties"], -1); most >= 0 && most < len(names) {
		s.lose(at, "maxProperties", StrictLoosened, "properties are not counted")
	}
	out["properties"], out["required"], out["additionalProperties"] = declared, names, false
}

// nullable reports whether the contract takes null for a property by itself, so
// that null says what it says and not that the property is left out.
func (s *stricter) nullable(v any, ptr string) bool {
	return v == true || s.admitsNull(ptr)
}

// orNull makes a schema take null too. The function writes the schema at a
// place of the export; what it notes of places below must be right, so that
// it is asked once, for the place inside of anyOf unless no place is noted.
func orNull(v any, write func(to string) map[string]any, to string) map[string]any {
	if obj, ok := v.(map[string]any); ok && simple(obj) {
		out := maps.Clone(write(to))
		out["type"] = []any{out["type"], "null"}
		return out
	}
	return map[string]any{"anyOf": []any{write(to + "/anyOf/0"), map[string]any{"type": "null"}}}
}

// simple reports whether a schema becomes one with a single scalar type.
func simple(obj map[string]any) bool {
	switch obj["type"] {
	case "string", "number", "integer", "boolean":
	default:
		return false
	}
	for _, kw := range []string{"$ref", "allOf", "anyOf", "oneOf", "enum", "const"} {
		if _, ok := obj[kw]; ok {
			return false
		}
	}
	return true
}

// openness notes what is lost where an object may hold more than it declares.
func (s *stricter) openness(obj map[string]any, at string) {
	a, ok := obj["additionalProperties"]
	if !ok {
		a, ok = obj["unevaluatedProperties"]
	}
	switch {
	case ok && a == false:
	case s.c.policy.CloseObjects && (!ok || a == true):
	case !ok || a == true:
		s.lose(at, "additionalProperties", StrictNarrowed, "only declared properties can be sent")
	default:
		s.lose(at, "additionalProperties", StrictNarrowed, "a map of names that are not declared cannot be sent")
	}
}
