package compat

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/headgate/headgate/contract"
)

// maker makes small schemas and values from a few words, so that they meet.
type maker struct{ *rand.Rand }

func (m maker) pick(words ...string) string { return words[m.IntN(len(words))] }

func (m maker) value(depth int) any {
	switch n := m.IntN(9); {
	case n == 0:
		return nil
	case n == 1:
		return m.IntN(2) == 0
	case n <= 3:
		return m.IntN(7) - 1
	case n == 4:
		return float64(m.IntN(6)) / 2
	case n <= 6 || depth == 0:
		return m.pick("", "a", "ab", "abc", "b")
	case n == 7:
		list := []any{}
		for range m.IntN(4) {
			list = append(list, m.value(depth-1))
		}
		return list
	default:
		object := map[string]any{}
		for range m.IntN(4) {
			object[m.pick("a", "ab", "b", "c")] = m.value(depth - 1)
		}
		return object
	}
}

func (m maker) schema(depth int) any {
	if depth == 0 || m.IntN(8) == 0 {
		switch m.IntN(5) {
		case 0:
			return true
		case 1:
			return false
		default:
			return map[string]any{"type": m.types()}
		}
	}
	s := map[string]any{}
	if m.IntN(2) == 0 {
		s["type"] = m.types()
	}
	for range 1 + m.IntN(3) {
		m.keyword(s, depth-1)
	}
	return s
}

func (m maker) types() any {
	names := []string{"null", "boolean", "object", "array", "string", "integer", "number"}
	if m.IntN(2) == 0 {
		return names[m.IntN(len(names))]
	}
	i, j := m.IntN(len(names)), m.IntN(len(names))
	if i == j {
		return names[i]
	}
	return []any{names[i], names[j]}
}

func (m maker) schemas(depth int) []any {
	var out []any
	for range 1 + m.IntN(2) {
		out = append(out, m.schema(depth))
	}
	return out
}

func (m maker) named(depth int, names ...string) map[string]any {
	out := map[string]any{}
	for range 1 + m.IntN(2) {
		out[m.pick(names...)] = m.schema(depth)
	}
	return out
}

func (m maker) keyword(s map[string]any, depth int) {
	switch m.IntN(26) {
	case 0:
		s["enum"] = []any{m.value(1), m.value(1)}
		if canonical(toJSON(s["enum"].([]any)[0])) == canonical(toJSON(s["enum"].([]any)[1])) {
			s["enum"] = s["enum"].([]any)[:1]
		}
	case 1:
		s["const"] = m.value(1)
	case 2:
		s[m.pick("maximum", "exclusiveMaximum")] = m.IntN(5)
	case 3:
		s[m.pick("minimum", "exclusiveMinimum")] = m.IntN(5) - 1
	case 4:
		s["multipleOf"] = []any{0.5, 1, 2, 3}[m.IntN(4)]
	case 5:
		s["maxLength"] = m.IntN(4)
	case 6:
		s["minLength"] = m.IntN(3)
	case 7:
		s["pattern"] = m.pick("^a", "b$")
	case 8, 9, 10:
		s["properties"] = m.named(depth, "a", "ab", "b", "c")
	case 11:
		s["patternProperties"] = m.named(depth, "^a", "b$")
	case 12, 13:
		s["additionalProperties"] = m.schema(depth)
	case 14:
		s["required"] = []any{m.pick("a", "ab", "b")}
	case 15:
		s[m.pick("maxProperties", "maxItems")] = m.IntN(3)
	case 16:
		s[m.pick("minProperties", "minItems")] = m.IntN(3)
	case 17:
		s["propertyNames"] = map[string]any{m.pick("maxLength", "minLength"): 1}
	case 18:
		s["items"] = m.schema(depth)
	case 19:
		s["prefixItems"] = m.schemas(depth)
	case 20:
		s["uniqueItems"] = true
	case 21:
		s["contains"] = m.schema(depth)
	case 22:
		s[m.pick("allOf", "anyOf", "anyOf")] = m.schemas(depth)
	case 23:
		s["not"] = m.schema(depth)
	case 24:
		s["if"], s["then"] = m.schema(depth), m.schema(depth)
		if m.IntN(2) == 0 {
			s["else"] = m.schema(depth)
		}
	case 25:
		s["dependentRequired"] = map[string]any{m.pick("a", "b"): []any{m.pick("ab", "c")}}
	}
}

// mutate changes one thing of a schema, so that pairs are near one another.
func (m maker) mutate(s any) any {
	object, ok := s.(map[string]any)
	if !ok {
		return m.schema(2)
	}
	out := map[string]any{}
	for k, v := range object {
		out[k] = v
	}
	keys := sortedKeys(out)
	switch m.IntN(4) {
	case 0:
		if len(keys) > 0 {
			delete(out, keys[m.IntN(len(keys))])
		}
	case 1:
		m.keyword(out, 1)
	case 2:
		for _, k := range []string{"properties", "patternProperties"} {
			if inner, ok := out[k].(map[string]any); ok {
				out[k] = map[string]any{}
				for name, v := range inner {
					out[k].(map[string]any)[name] = m.mutate(v)
				}
			}
		}
	default:
		return map[string]any{m.pick("allOf", "anyOf"): []any{object, m.schema(1)}}
	}
	return out
}

func toJSON(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	out, err := decode(text)
	if err != nil {
		panic(err)
	}
	return out
}

// Under the policy logical, a compatible pair is one whose reader takes every
// value that the writer's schema allows: the checker of contracts is the judge.
func TestLogicalIsSound(t *testing.T) {
	rounds := 1500
	if os.Getenv("HEADGATE_CAMPAIGN") == "1" {
		rounds = 1_000_000
	}
	seed := rand.Uint64()
	m := maker{rand.New(rand.NewPCG(seed, 1))}
	compatible, allowed := 0, 0
	for round := range rounds {
		a := m.schema(3)
		b := m.mutate(a)
		if m.IntN(4) == 0 {
			b = m.schema(3)
		}
		if m.IntN(2) == 0 {
			a, b = b, a
		}
		wText, _ := json.Marshal(a)
		rText, _ := json.Marshal(b)
		if len(Compare(Logical, js(string(wText)), js(string(rText)))) > 0 {
			continue
		}
		w, _, err := contract.Compile("w", 1, wText, nil)
		if err != nil {
			continue // refused for another reason, such as a branch that never matches
		}
		r, _, err := contract.Compile("r", 1, rText, nil)
		if err != nil {
			continue
		}
		compatible++
		for range 60 {
			value, _ := json.Marshal(m.value(3))
			if w.Check(value) != nil {
				continue
			}
			allowed++
			if v := r.Check(value); v != nil {
				t.Fatalf("seed %d, round %d: called compatible, and it is not:\nwriter %s\nreader %s\nvalue %s\n%s", seed, round, wText, rText, value, fmt.Sprint(v))
			}
		}
	}
	t.Logf("seed %d: %d compatible pairs, %d values of writers", seed, compatible, allowed)
	if compatible < rounds/50 || allowed < rounds/10 {
		t.Errorf("too few pairs and values to say anything: %d and %d", compatible, allowed)
	}
}
