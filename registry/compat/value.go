package compat

import (
	"encoding/json"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// number reads an exact number, unless it is too large to work with.
func number(v any) *big.Rat {
	n, ok := v.(json.Number)
	if !ok || len(n) > 128 {
		return nil
	}
	if i := strings.IndexAny(string(n), "eE"); i >= 0 {
		if e, err := strconv.Atoi(string(n[i+1:])); err != nil || e > 400 || e < -400 {
			return nil
		}
	}
	r, ok := new(big.Rat).SetString(string(n))
	if !ok {
		return nil
	}
	return r
}

// whole reads a count.
func whole(v any) (int, bool) {
	r := number(v)
	if r == nil || !r.IsInt() || r.Sign() < 0 || !r.Num().IsInt64() {
		return 0, false
	}
	n := r.Num().Int64()
	if n > 1<<31-1 {
		n = 1<<31 - 1
	}
	return int(n), true
}

func typeOfValue(v any) typeSet {
	switch v := v.(type) {
	case nil:
		return null
	case bool:
		return boolean
	case string:
		return text
	case []any:
		return array
	case map[string]any:
		return object
	case json.Number:
		if r := number(v); r != nil && r.IsInt() {
			return integer
		} else if r == nil {
			return numbers
		}
		return fraction
	}
	return 0
}

// canonical writes a value so that equal values have equal texts.
func canonical(v any) string {
	var b strings.Builder
	writeCanonical(&b, v)
	return b.String()
}

func writeCanonical(b *strings.Builder, v any) {
	switch v := v.(type) {
	case map[string]any:
		b.WriteByte('{')
		for i, k := range sortedKeys(v) {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strconv.Quote(k))
			b.WriteByte(':')
			writeCanonical(b, v[k])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			writeCanonical(b, e)
		}
		b.WriteByte(']')
	case json.Number:
		if r := number(v); r != nil {
			b.WriteString(r.RatString())
		} else {
			b.WriteString(string(v))
		}
	case string:
		b.WriteString(strconv.Quote(v))
	case bool:
		b.WriteString(strconv.FormatBool(v))
	default:
		b.WriteString("null")
	}
}

// pattern is a compiled regular expression; nil re: it cannot be compiled.
type pattern struct{ re *regexp.Regexp }

// matches says whether a text matches, and whether that is known.
func (c *comparison) matches(expr, s string) (match, known bool) {
	p := c.patterns[expr]
	if p == nil {
		re, err := regexp.Compile(expr)
		if err != nil {
			re = nil
		}
		p = &pattern{re: re}
		c.patterns[expr] = p
		c.spend(len(expr))
	}
	c.spend(1 + len(s)/16)
	if p.re == nil {
		return false, false
	}
	return p.re.MatchString(s), true
}

// admitsAll reports whether the writer's values are listed and each is shown
// to pass.
func (c *comparison) admitsAll(w *writer, r *node) bool {
	values, ok := w.values()
	if !ok {
		return false
	}
	for _, v := range values {
		if !c.admits(v, r, 0) {
			return false
		}
	}
	return true
}

// annotations never refuse a value.
func annotation(k string) bool {
	switch k {
	case "$schema", "$id", "id", "$comment", "$anchor", "$dynamicAnchor", "$defs", "definitions", "$vocabulary",
		"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType", "contentSchema":
		return true
	}
	return strings.HasPrefix(k, "x-")
}

// admits reports whether a value is shown to pass; false may mean unknown.
func (c *comparison) admits(v any, r *node, depth int) bool {
	c.spend(1)
	if r == nil || r.no || depth > 32 || c.exhausted() {
		return false
	}
	for k := range r.keys { // all must pass: their order changes nothing
		if !annotation(k) && !c.admitsKey(v, r, k, depth) {
			return false
		}
	}
	return true
}

func (c *comparison) admitsKey(v any, r *node, k string, depth int) bool {
	t := typeOfValue(v)
	switch k {
	case "type":
		return t&^typesOf(r.keys[k]) == 0
	case "enum", "const":
		return c.listedIn(v, r, k)
	case "$ref":
		ref, _ := r.keys[k].(string)
		return c.admits(v, r.doc.resolve(r, ref), depth+1)
	case "allOf", "anyOf":
		return c.admitsBranches(v, r, k, depth)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		return t&numbers == 0 || admitsNumber(number(v), r, k)
	case "minLength", "maxLength", "pattern":
		s, isText := v.(string)
		return !isText || c.admitsText(s, r, k)
	case "format":
		return t&text == 0
	case "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems":
		return t&array == 0
	case "properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties", "propertyNames",
		"dependencies", "dependentRequired", "dependentSchemas", "unevaluatedProperties":
		return t&object == 0
	}
	return false
}

func (c *comparison) admitsBranches(v any, r *node, k string, depth int) bool {
	for _, b := range r.children(k) {
		if ok := c.admits(v, b, depth+1); ok != (k == "allOf") {
			return ok
		}
	}
	return k == "allOf"
}

// listedIn reports whether a value is among those of const or enum.
func (c *comparison) listedIn(v any, r *node, k string) bool {
	at := listing{r, k}
	listed, done := c.listings[at]
	if !done {
		values := []any{r.keys[k]}
		if k == "enum" {
			values, _ = r.keys[k].([]any)
		}
		listed = make(map[string]bool, len(values))
		for _, e := range values {
			c.spend(1)
			listed[canonical(e)] = true
		}
		c.listings[at] = listed
	}
	c.spend(1)
	return listed[canonical(v)]
}

func admitsNumber(n *big.Rat, r *node, k string) bool {
	bound := number(r.keys[k])
	if n == nil || bound == nil {
		return false // exclusiveMinimum: true of draft 4 is left to the comparison of bounds
	}
	switch k {
	case "minimum":
		return n.Cmp(bound) >= 0
	case "maximum":
		return n.Cmp(bound) <= 0
	case "exclusiveMinimum":
		return n.Cmp(bound) > 0
	case "exclusiveMaximum":
		return n.Cmp(bound) < 0
	}
	return bound.Sign() > 0 && new(big.Rat).Quo(n, bound).IsInt()
}

func (c *comparison) admitsText(s string, r *node, k string) bool {
	if k == "pattern" {
		expr, _ := r.keys[k].(string)
		match, known := c.matches(expr, s)
		return match && known
	}
	n, ok := whole(r.keys[k])
	if !ok {
		return false
	}
	if k == "minLength" {
		return utf8.RuneCountInString(s) >= n
	}
	return utf8.RuneCountInString(s) <= n
}
