package contract

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/jsontext"
)

// tree is a JSON text whose spelling is kept: names and scalars are raw tokens,
// members keep their order and may come twice.
type tree struct {
	kind  kind
	raw   string // of scalars
	names []string
	parts []*tree
}

func parseTree(t testing.TB, text []byte) *tree {
	t.Helper()
	sc := jsontext.NewScanner(text, jsontext.Limits{Depth: jsontext.MaxDepth, NumberLength: len(text), Exponent: 1 << 20})
	var open []*tree
	name := ""
	for {
		tok, fault := sc.Next()
		if fault != nil {
			t.Fatal(fault)
		}
		raw := string(text[tok.Start:tok.End])
		switch tok.Kind {
		case jsontext.Name:
			name = raw
			continue
		case jsontext.EndObject, jsontext.EndArray:
			if len(open) == 1 {
				return open[0]
			}
			open = open[:len(open)-1]
			continue
		}
		n := &tree{kind: kindOf(tok.Kind), raw: raw}
		if len(open) > 0 {
			up := open[len(open)-1]
			up.parts = append(up.parts, n)
			if up.kind == kindObject {
				up.names = append(up.names, name)
			}
		}
		if n.kind >= kindArray {
			open = append(open, n)
		} else if len(open) == 0 {
			return n
		}
	}
}

func (n *tree) clone() *tree {
	c := &tree{kind: n.kind, raw: n.raw, names: append([]string(nil), n.names...)}
	for _, p := range n.parts {
		c.parts = append(c.parts, p.clone())
	}
	return c
}

// all appends every value of the tree.
func (n *tree) all(dst []*tree) []*tree {
	dst = append(dst, n)
	for _, p := range n.parts {
		dst = p.all(dst)
	}
	return dst
}

// mutator changes payloads of one schema: words, names and numbers come from
// the schema and its payloads, so that changes fall near what it asks.
type mutator struct {
	rng     *rand.Rand
	names   []string // raw tokens
	scalars []string
	values  []*tree
}

func newMutator(t testing.TB, rng *rand.Rand, schema []byte, payloads []*tree) *mutator {
	m := &mutator{rng: rng}
	seen := map[string]bool{}
	note := func(list *[]string, raw string) {
		if !seen[raw] && len(*list) < 400 {
			seen[raw] = true
			*list = append(*list, raw)
		}
	}
	for _, root := range append([]*tree{parseTree(t, schema)}, payloads...) {
		for _, n := range root.all(nil) {
			for _, name := range n.names {
				note(&m.names, name)
			}
			switch n.kind {
			case kindNumber:
				for _, raw := range near(n.raw) {
					note(&m.scalars, raw)
				}
			case kindString:
				note(&m.scalars, n.raw)
			}
		}
	}
	for _, p := range payloads {
		m.values = append(m.values, p.all(nil)...)
	}
	m.scalars = append(m.scalars,
		"null", "true", "false", `""`, `"x"`, "0", "-0", "1", "-1", "1.0", "1e2", "1.5", "1e400", "1e401", "-1e-400",
		"9007199254740993", "0.1", "100000000000000000000", `"\u00e9\ud83d\ude00"`, `"2026-02-30T25:00:00Z"`)
	m.names = append(m.names, `""`, `"invented"`, `"x"`)
	return m
}

// near returns numbers about one of the schema, in several spellings.
func near(raw string) []string {
	r, ok := new(big.Rat).SetString(raw)
	if !ok || len(raw) > 40 || strings.ContainsAny(raw, "eE") {
		return []string{raw}
	}
	text := func(r *big.Rat) string {
		n, _ := r.FloatPrec()
		return r.FloatString(n)
	}
	one := big.NewRat(1, 1)
	small := big.NewRat(1, 1_000_000_000_000)
	return []string{
		raw, text(r), text(new(big.Rat).Add(r, one)), text(new(big.Rat).Sub(r, one)), text(new(big.Rat).Add(r, small)),
		text(new(big.Rat).Sub(r, small)), text(new(big.Rat).Mul(r, big.NewRat(2, 1))), text(new(big.Rat).Quo(r, big.NewRat(10, 1))) + "e1",
		text(new(big.Rat).Mul(r, big.NewRat(100, 1))) + "E-2", text(new(big.Rat).Neg(r)),
	}
}

func draw[T any](rng *rand.Rand, list []T) T { return list[rng.IntN(len(list))] }

// change makes one change somewhere in the tree.
func (m *mutator) change(root *tree) {
	n := draw(m.rng, root.all(nil))
	switch {
	case n.kind == kindObject && len(n.parts) > 0 && m.rng.IntN(5) > 0:
		m.changeObject(n)
	case n.kind == kindArray && len(n.parts) > 0 && m.rng.IntN(5) > 0:
		m.changeArray(n)
	case n.kind == kindObject && m.rng.IntN(2) == 0:
		n.names, n.parts = append(n.names, draw(m.rng, m.names)), append(n.parts, m.value())
	case n.kind == kindArray && m.rng.IntN(2) == 0:
		n.parts = append(n.parts, m.value())
	case n.kind == kindString && m.rng.IntN(3) > 0:
		n.raw = m.respell(n.raw)
	case n.kind == kindNumber && m.rng.IntN(3) > 0:
		n.raw = m.renumber(n.raw)
	default:
		*n = *m.value()
	}
}

func (m *mutator) changeObject(n *tree) {
	i := m.rng.IntN(len(n.parts))
	switch m.rng.IntN(8) {
	case 0, 1: // drop
		n.names, n.parts = append(n.names[:i], n.names[i+1:]...), append(n.parts[:i], n.parts[i+1:]...)
	case 2: // rename
		n.names[i] = draw(m.rng, m.names)
	case 3: // escape the name
		n.names[i] = escapeSome(m.rng, n.names[i])
	case 4: // twice, perhaps in another spelling
		name := n.names[i]
		if m.rng.IntN(2) == 0 {
			name = escapeSome(m.rng, name)
		}
		n.names, n.parts = append(n.names, name), append(n.parts, n.parts[i].clone())
	case 5: // add
		n.names, n.parts = append(n.names, draw(m.rng, m.names)), append(n.parts, m.value())
	case 6: // another order
		j := m.rng.IntN(len(n.parts))
		n.names[i], n.names[j] = n.names[j], n.names[i]
		n.parts[i], n.parts[j] = n.parts[j], n.parts[i]
	default:
		n.parts[i] = m.value()
	}
}

func (m *mutator) changeArray(n *tree) {
	i := m.rng.IntN(len(n.parts))
	switch m.rng.IntN(4) {
	case 0:
		n.parts = append(n.parts[:i], n.parts[i+1:]...)
	case 1:
		n.parts = append(n.parts, n.parts[i].clone())
	case 2:
		n.parts[i] = &tree{kind: kindArray, parts: []*tree{n.parts[i]}}
	default:
		n.parts[i] = m.value()
	}
}

func (m *mutator) value() *tree {
	switch m.rng.IntN(6) {
	case 0:
		return &tree{kind: kind(int(kindArray) + m.rng.IntN(2))}
	case 1, 2:
		return draw(m.rng, m.values).clone()
	case 3: // nest
		n := &tree{kind: kindArray}
		for range m.rng.IntN(3) {
			n.parts = append(n.parts, m.value())
		}
		return n
	default:
		raw := draw(m.rng, m.scalars)
		k := kindNumber
		switch raw[0] {
		case '"':
			k = kindString
		case 'n':
			k = kindNull
		case 't', 'f':
			k = kindBoolean
		}
		return &tree{kind: k, raw: raw}
	}
}

// respell changes a character of a string, or only its spelling.
func (m *mutator) respell(raw string) string {
	if m.rng.IntN(3) == 0 {
		return escapeSome(m.rng, raw)
	}
	r := []rune(string(jsontext.Unquote(nil, []byte(raw))))
	if len(r) == 0 || m.rng.IntN(4) == 0 {
		r = append(r, draw(m.rng, []rune("aZ0-:é😀 ~")))
	} else if i := m.rng.IntN(len(r)); m.rng.IntN(3) == 0 {
		r = append(r[:i], r[i+1:]...)
	} else {
		r[i] = draw(m.rng, []rune("aZ0-:é😀/\x00"))
	}
	return string(jsontext.AppendString(nil, string(r)))
}

func (m *mutator) renumber(raw string) string {
	switch m.rng.IntN(6) {
	case 0:
		if !strings.ContainsAny(raw, "eE") {
			return raw + draw(m.rng, []string{"e0", "E+0", "e-1", "e1", "e2"})
		}
	case 1:
		if !strings.ContainsAny(raw, ".eE") {
			return raw + draw(m.rng, []string{".0", ".00", ".5", ".000000000001"})
		}
	case 2:
		if !strings.ContainsAny(raw, ".eE") {
			return raw + draw(m.rng, []string{"0", "1", "5"})
		}
	case 3:
		if s, ok := strings.CutPrefix(raw, "-"); ok {
			return s
		}
		return "-" + raw
	}
	return draw(m.rng, near(raw))
}

// escapeSome spells some characters of a string token as escapes.
func escapeSome(rng *rand.Rand, raw string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range string(jsontext.Unquote(nil, []byte(raw))) {
		switch {
		case r > 0xFFFF && rng.IntN(2) == 0:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04X`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		case r < 0x20 || r == '"' || r == '\\' || r <= 0xFFFF && rng.IntN(3) == 0:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// text writes the tree, here and there with white space.
func (m *mutator) text(n *tree) []byte {
	loose := m.rng.IntN(4) == 0
	return m.write(nil, n, loose)
}

func (m *mutator) write(dst []byte, n *tree, loose bool) []byte {
	space := func() {
		if loose && m.rng.IntN(3) == 0 {
			dst = append(dst, " \n\t\r"[m.rng.IntN(4)])
		}
	}
	space()
	switch n.kind {
	case kindObject:
		dst = append(dst, '{')
		for i, p := range n.parts {
			if i > 0 {
				dst = append(dst, ',')
				space()
			}
			dst = append(dst, n.names[i]...)
			space()
			dst = append(dst, ':')
			dst = m.write(dst, p, loose)
		}
		dst = append(dst, '}')
	case kindArray:
		dst = append(dst, '[')
		for i, p := range n.parts {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = m.write(dst, p, loose)
		}
		dst = append(dst, ']')
	default:
		dst = append(dst, n.raw...)
	}
	space()
	return dst
}

// spoil damages a text as such, so that most likely it is no longer JSON.
func (m *mutator) spoil(text []byte) []byte {
	if len(text) == 0 {
		return text
	}
	i := m.rng.IntN(len(text))
	switch m.rng.IntN(4) {
	case 0:
		return text[:i]
	case 1:
		text[i] = draw(m.rng, []byte("\xff\x00{}[]\",:\\ e-"))
	case 2:
		text = append(text[:i], text[i+1:]...)
	default:
		text = append(text[:i], append([]byte{draw(m.rng, []byte("\xc3\x1f{}[]\",:\\0.u"))}, text[i:]...)...)
	}
	return text
}
