package contract

import "encoding/json"

// kinds is how many JSON types there are.
const kinds = 6

// kindFacts answers, without a payload, what a schema says about all values of
// one type. The answers are memoised; programs have no cycles here.
type kindFacts struct {
	g               *program
	anything        *node         // a schema that is not in g
	may, must, sees [kinds][]int8 // by node: 0 unknown, 1 no, 2 yes
}

func newKindFacts(g *program) *kindFacts {
	f := &kindFacts{g: g, anything: &node{id: len(g.nodes), always: 1}}
	for k := range kinds {
		f.may[k] = make([]int8, len(g.nodes)+1)
		f.must[k] = make([]int8, len(g.nodes)+1)
		f.sees[k] = make([]int8, len(g.nodes)+1)
	}
	return f
}

// mayAccept reports whether some value of the type may satisfy n. False is
// certain.
func (f *kindFacts) mayAccept(n *node, k kind) bool {
	m := &f.may[k][n.id]
	if *m == 0 {
		*m = 1
		if f.findMay(n, k) {
			*m = 2
		}
	}
	return *m == 2
}

func (f *kindFacts) findMay(n *node, k kind) bool {
	if n.always != 0 {
		return n.always > 0
	}
	if n.types != 0 && n.types&(1<<k) == 0 && (k != kindNumber || n.types&typeInteger == 0) {
		return false
	}
	if n.konst != nil && kindOfLiteral(n.konst.value) != k {
		return false
	}
	if n.enum != nil && !n.enum.hasKind(k) {
		return false
	}
	for _, t := range f.references(n) {
		if !f.mayAccept(t, k) {
			return false
		}
	}
	if n.refOnly() {
		return true
	}
	for _, c := range n.allOf {
		if !f.mayAccept(c, k) {
			return false
		}
	}
	for _, u := range []*union{n.anyOf, n.oneOf} {
		if u != nil && len(f.branches(u, k)) == 0 {
			return false
		}
	}
	if n.not != nil && f.mustAccept(n.not, k) {
		return false
	}
	for _, c := range f.conditional(n, k) {
		if f.mayAccept(c, k) {
			return true
		}
	}
	return n.ifs == nil
}

// conditional returns what if, then and else of n apply to values of the type:
// then or else, or both where that depends on the value.
func (f *kindFacts) conditional(n *node, k kind) []*node {
	if n.ifs == nil {
		return nil
	}
	out := []*node{n.then, n.otherwise}
	switch {
	case f.mustAccept(n.ifs, k):
		out = out[:1]
	case !f.mayAccept(n.ifs, k):
		out = out[1:]
	}
	for i := range out {
		if out[i] == nil {
			out[i] = f.anything
		}
	}
	return out
}

// refOnly reports whether what stands beside the reference, apart from the
// keywords that say what the value is, does not count.
func (n *node) refOnly() bool { return n.ref != nil && n.draft < 2019 }

// references returns the schemas that references of n lead to. Dynamic ones
// have one target each, or the program is not compiled.
func (f *kindFacts) references(n *node) []*node {
	var out []*node
	if n.ref != nil {
		out = append(out, n.ref)
	}
	if n.refOnly() {
		return out
	}
	out = append(out, f.g.recursiveTargets(n)...)
	return append(out, f.g.dynamicTargets(n)...)
}

// branches returns the branches that a value of the type may match.
func (f *kindFacts) branches(u *union, k kind) []*node {
	var out []*node
	for _, b := range u.branches {
		if f.mayAccept(b, k) {
			out = append(out, b)
		}
	}
	return out
}

// mustAccept reports whether every value of the type satisfies n. True is
// certain.
func (f *kindFacts) mustAccept(n *node, k kind) bool {
	m := &f.must[k][n.id]
	if *m == 0 {
		*m = 1
		if f.findMust(n, k) {
			*m = 2
		}
	}
	return *m == 2
}

func (f *kindFacts) findMust(n *node, k kind) bool {
	if n.always != 0 {
		return n.always > 0
	}
	if n.types != 0 && n.types&(1<<k) == 0 || n.konst != nil || n.enum != nil || n.format != nil && k == kindString {
		return false
	}
	for _, t := range f.references(n) {
		if !f.mustAccept(t, k) {
			return false
		}
	}
	if n.refOnly() {
		return true
	}
	if !f.mustParts(n, k) {
		return false
	}
	for _, c := range n.allOf {
		if !f.mustAccept(c, k) {
			return false
		}
	}
	if n.anyOf != nil && !f.mustAny(n.anyOf, k) {
		return false
	}
	if n.oneOf != nil {
		b := f.branches(n.oneOf, k)
		if len(b) != 1 || !f.mustAccept(b[0], k) {
			return false
		}
	}
	if n.not != nil && f.mayAccept(n.not, k) {
		return false
	}
	for _, c := range f.conditional(n, k) {
		if !f.mustAccept(c, k) {
			return false
		}
	}
	return true
}

// looksInto reports whether n, or a schema that it applies to the same value,
// may have a say about what is in containers of the type.
func (f *kindFacts) looksInto(n *node, k kind) bool {
	m := &f.sees[k][n.id]
	if *m == 0 {
		*m = 2
		looks := !f.mustParts(n, k) || n.konst != nil && kindOfLiteral(n.konst.value) == k || n.enum != nil && n.enum.hasKind(k)
		f.g.sameValue(n, func(_ string, c *node) { looks = looks || f.looksInto(c, k) })
		if !looks {
			*m = 1
		}
	}
	return *m == 2
}

// mustParts reports whether nothing that is particular to the type is asked.
func (f *kindFacts) mustParts(n *node, k kind) bool {
	switch k {
	case kindObject:
		return n.object == nil && n.unevalProps == nil
	case kindArray:
		return n.array == nil && n.unevalItems == nil
	case kindString:
		return n.strings == nil
	case kindNumber:
		return n.numbers == nil
	default:
		return true
	}
}

func (f *kindFacts) mustAny(u *union, k kind) bool {
	for _, b := range u.branches {
		if f.mustAccept(b, k) {
			return true
		}
	}
	return false
}

func (e *enumSet) hasKind(k kind) bool {
	for _, v := range e.values {
		if kindOfLiteral(v.value) == k {
			return true
		}
	}
	return false
}

func kindOfLiteral(v any) kind {
	switch v.(type) {
	case bool:
		return kindBoolean
	case json.Number:
		return kindNumber
	case string:
		return kindString
	case []any:
		return kindArray
	case map[string]any:
		return kindObject
	default:
		return kindNull
	}
}
