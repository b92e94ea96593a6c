package contract

import (
	"cmp"
	"fmt"
	"slices"
)

// Warning is a weakness of a contract that was registered all the same.
type Warning struct {
	Code   string `json:"code"` // one of the Warn constants
	At     string `json:"at"`   // JSON Pointer into the schema
	Detail string `json:"detail"`
}

// The codes of warnings.
const (
	// WarnOpenObject: the schema lets properties through that it does not
	// declare, so that a sender can invent fields.
	WarnOpenObject = "open_object"
	// WarnRefSiblings: the dialect ignores keywords beside $ref.
	WarnRefSiblings = "ref_siblings"
	// WarnRequiredUndeclared: a required property is not declared, and its
	// name is close to one that is.
	WarnRequiredUndeclared = "required_undeclared"
	// WarnUnknownKeyword: a name is no keyword of the schema's draft, so that it
	// says nothing.
	WarnUnknownKeyword = "unknown_keyword"
	// WarnPatternEngines: validators in other languages read the pattern
	// differently, or not at all.
	WarnPatternEngines = "pattern_engines"
	// WarnNotNormal: a name has other spellings that look the same.
	WarnNotNormal = "not_normal"
	// WarnPrecision: a number is none that a double can hold.
	WarnPrecision = "number_precision"
	// WarnUnreachable: no value meets an alternative, a bound or a fixed value.
	WarnUnreachable = "unreachable"
	// WarnBadDefault: the schema refuses its own default.
	WarnBadDefault = "bad_default"
	// WarnDear: small values meet so many schemas that a check may take more
	// than a millisecond for 10 KB.
	WarnDear = "dear"
	// AdviceUnbounded: a string or an array may have any size.
	AdviceUnbounded = "unbounded"
	// AdviceClients: clients of the registry need to be told of something.
	AdviceClients = "clients"
	// AdviceStrict: the export for constrained output says less or more.
	AdviceStrict = "strict_export"
	// WarnMore: there are more warnings than are listed.
	WarnMore = "more"
)

const maxWarnings = 50

func boundWarnings(list []Warning) []Warning {
	slices.SortStableFunc(list, func(a, b Warning) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Detail, b.Detail))
	})
	list = slices.Compact(list)
	for i := range list {
		list[i].At = clip(list[i].At, 400)
	}
	if len(list) > maxWarnings {
		more := len(list) - maxWarnings
		list = append(list[:maxWarnings:maxWarnings], Warning{Code: WarnMore, Detail: fmt.Sprintf("%d more warnings", more)})
	}
	return list
}

// openObjects warns of every place where a schema describes an object and
// leaves it open.
func (p *program) openObjects() []Warning {
	c := &closedness{p: p, memo: map[*node]bool{}}
	var out []Warning
	for _, e := range p.entries() {
		if e.always != 0 || !admitsClass(e, classObject) || !p.speaksOfObjects(e, map[*node]bool{}) || c.closed(e) {
			continue
		}
		out = append(out, Warning{
			Code: WarnOpenObject, At: e.at,
			Detail: "the object is open: properties that the schema does not declare pass; set additionalProperties or unevaluatedProperties to false, or unknown_fields to refuse",
		})
	}
	return out
}

// speaksOfObjects reports whether a schema describes objects, rather than
// merely admits them.
func (p *program) speaksOfObjects(n *node, seen map[*node]bool) bool {
	if seen[n] {
		return false
	}
	seen[n] = true
	if n.types&typeObject != 0 || n.object != nil {
		return true
	}
	found := false
	p.sameValue(n, func(keyword string, c *node) {
		if !found && keyword != "not" && keyword != "if" {
			found = p.speaksOfObjects(c, seen)
		}
	})
	return found
}

// closedness finds out which schemas leave no room for undeclared properties.
type closedness struct {
	p    *program
	memo map[*node]bool
}

func (c *closedness) closed(n *node) bool {
	if n.always != 0 {
		return n.always < 0
	}
	if !admitsClass(n, classObject) {
		return true
	}
	if v, ok := c.memo[n]; ok {
		return v
	}
	c.memo[n] = false // while it is worked on
	v := c.closes(n)
	c.memo[n] = v
	return v
}

func (c *closedness) closes(n *node) bool {
	if o := n.object; o != nil && o.hasAdditional && !o.additional.trivial() {
		return true
	}
	if n.unevalProps != nil && !n.unevalProps.trivial() || n.konst != nil || n.enum != nil {
		return true
	}
	for _, t := range append(append([]*node{}, n.allOf...), n.ref, n.recRef, n.dynRef) {
		if t != nil && c.closed(t) {
			return true
		}
	}
	for _, u := range []*union{n.anyOf, n.oneOf} {
		if u != nil && !slices.ContainsFunc(u.branches, func(b *node) bool { return !c.closed(b) }) {
			return true
		}
	}
	return n.ifs != nil && n.then != nil && n.otherwise != nil && c.closed(n.then) && c.closed(n.otherwise)
}
