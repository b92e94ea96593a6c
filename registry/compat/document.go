package compat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"
)

// maxDepth bounds the nesting of a schema; registered ones are shallower.
const maxDepth = 128

// node is one schema within a document.
type node struct {
	id int
	at string // document#pointer
	// keys is nil for a schema that is true or false.
	keys map[string]any
	no   bool // false: nothing is allowed
	base *url.URL
	doc  *document
	// old drafts (up to 7) ignore what stands beside $ref.
	refAlone bool
	// renamed holds the keywords that were read as others, by those.
	renamed map[string]string
}

// document is a parsed schema with its references.
type document struct {
	c     *comparison
	root  any
	nodes map[string]*node // by document#pointer
	names map[string]*node // by URL, with or without a fragment
}

// load parses a schema and what it refers to into one document.
func (c *comparison) load(s Schema) (*document, error) {
	d := &document{c: c, nodes: map[string]*node{}, names: map[string]*node{}}
	if err := d.add("", s.Text); err != nil {
		return nil, err
	}
	for _, ref := range s.References {
		if err := d.add(ref.Name, ref.Text); err != nil {
			return nil, fmt.Errorf("the reference %s: %w", clip(ref.Name), err)
		}
	}
	return d, nil
}

func decode(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return v, nil
}

// add indexes a document under its name.
func (d *document) add(name string, text []byte) error {
	v, err := decode(text)
	if err != nil {
		return err
	}
	base, err := url.Parse(name)
	if err != nil {
		base = &url.URL{Opaque: name}
	}
	if name == "" {
		d.root = v
		base = &url.URL{Scheme: "headgate", Host: "schema", Path: "/"}
	}
	top, _ := v.(map[string]any)
	uri, _ := top["$schema"].(string)
	refAlone := strings.Contains(uri, "draft-04") || strings.Contains(uri, "draft-06") || strings.Contains(uri, "draft-07")
	return d.index(v, place{at: name + "#", base: base, refAlone: refAlone, top: true})
}

// place is where a value stands in a document.
type place struct {
	at       string
	base     *url.URL
	refAlone bool
	depth    int
	top      bool
	names    bool // the members of the value are named by the schema's author
}

func (p place) below(key string, base *url.URL, names bool) place {
	return place{at: p.at + "/" + escape(key), base: base, refAlone: p.refAlone, depth: p.depth + 1, names: names}
}

// named reports whether the members of a keyword's value are named by the
// schema's author.
func named(keyword string) bool {
	switch keyword {
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies", "dependentRequired":
		return true
	}
	return false
}

// literal reports whether a keyword's value is no schema.
func literal(keyword string) bool {
	switch keyword {
	case "enum", "const", "default", "examples":
		return true
	}
	return false
}

// index visits every value, because a pointer may lead anywhere.
func (d *document) index(v any, p place) error {
	if p.depth > maxDepth {
		return fmt.Errorf("more than %d levels deep", maxDepth)
	}
	d.c.spend(1)
	if list, ok := v.([]any); ok {
		for i, e := range list {
			if err := d.index(e, p.below(strconv.Itoa(i), p.base, false)); err != nil {
				return err
			}
		}
		return nil
	}
	n := &node{id: len(d.c.all), at: p.at, doc: d, refAlone: p.refAlone, base: p.base}
	switch v := v.(type) {
	case bool:
		n.no = !v
	case map[string]any:
		n.keys = v
	default:
		return nil
	}
	d.c.all = append(d.c.all, n)
	d.nodes[p.at] = n
	if !p.names {
		d.identify(n, p.top)
		n.simplify()
	}
	for _, k := range sortedKeys(n.keys) {
		if !p.names && literal(k) {
			continue
		}
		if err := d.index(n.keys[k], p.below(k, n.base, !p.names && named(k))); err != nil {
			return err
		}
	}
	return nil
}

// simplify reads the unevaluated keywords as their plain counterparts where
// they say the same: where nothing beside them evaluates anything but what
// those see.
func (n *node) simplify() {
	for _, k := range []string{"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies"} {
		if n.keys[k] != nil {
			return
		}
	}
	if n.keys["additionalProperties"] == nil {
		n.rename("unevaluatedProperties", "additionalProperties")
	}
	switch _, tuple := n.keys["items"].([]any); {
	case n.keys["contains"] != nil:
	case tuple && n.keys["additionalItems"] == nil: // before 2020-12
		n.rename("unevaluatedItems", "additionalItems")
	case n.keys["items"] == nil:
		n.rename("unevaluatedItems", "items")
	}
}

func (n *node) rename(from, to string) {
	v, ok := n.keys[from]
	if !ok || n.refAlone {
		return
	}
	n.keys = maps.Clone(n.keys)
	delete(n.keys, from)
	n.keys[to] = v
	if n.renamed == nil {
		n.renamed = map[string]string{}
	}
	n.renamed[to] = from
}

// identify enters a node under the names that it gives itself.
func (d *document) identify(n *node, top bool) {
	if top {
		d.enter(n.base.String(), n)
		if name := strings.TrimSuffix(n.at, "#"); name != "" {
			d.enter(name, n)
		}
	}
	for _, k := range []string{"$id", "id"} {
		id, ok := n.keys[k].(string)
		if !ok || id == "" {
			continue
		}
		u, err := n.base.Parse(id)
		if err != nil {
			continue
		}
		if strings.HasPrefix(id, "#") {
			d.enter(u.String(), n)
			continue
		}
		u.Fragment = ""
		n.base = u
		d.enter(u.String(), n)
	}
	for _, k := range []string{"$anchor", "$dynamicAnchor"} {
		if a, ok := n.keys[k].(string); ok {
			u := *n.base
			u.Fragment = a
			d.enter(u.String(), n)
		}
	}
}

// enter keeps the first of two nodes of one name.
func (d *document) enter(name string, n *node) {
	name = strings.TrimSuffix(name, "#")
	if d.names[name] == nil {
		d.names[name] = n
	}
}

// resolve returns what a reference leads to, or nil.
func (d *document) resolve(n *node, ref string) *node {
	if t := d.names[strings.TrimSuffix(ref, "#")]; t != nil && !strings.HasPrefix(ref, "#") && ref != "" {
		return t
	}
	u, err := n.base.Parse(ref)
	if err != nil {
		return nil
	}
	if t := d.names[u.String()]; t != nil {
		return t
	}
	fragment := u.Fragment
	u.Fragment, u.RawFragment = "", ""
	top := d.names[strings.TrimSuffix(u.String(), "#")]
	if name, _, ok := strings.Cut(ref, "#"); ok && top == nil && name != "" {
		top = d.names[name]
	}
	if top == nil {
		return nil
	}
	if fragment == "" {
		return top
	}
	return d.nodes[top.at+fragment]
}

// child returns the schema at a place below a node, or nil.
func (n *node) child(path ...string) *node {
	at := n.at
	for _, p := range path {
		at += "/" + escape(p)
	}
	return n.doc.nodes[at]
}

// children returns the schemas of a list below a node.
func (n *node) children(key string) []*node {
	list, ok := n.keys[key].([]any)
	if !ok {
		return nil
	}
	out := make([]*node, 0, len(list))
	for i := range list {
		if c := n.child(key, strconv.Itoa(i)); c != nil {
			out = append(out, c)
		}
	}
	return out
}

func escape(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
}
