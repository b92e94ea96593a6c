package contract

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/twmb/avro"
)

// avroOp is what a place of an Avro schema holds. The order of the scalars is
// of no meaning.
type avroOp uint8

const (
	avroNull avroOp = iota
	avroBoolean
	avroInt
	avroLong
	avroFloat
	avroDouble
	avroBytes
	avroString
	avroFixed
	avroEnum
	avroRecord
	avroArray
	avroMap
	avroUnion
)

// avroLogical is the rule that a logical type adds. Logical types without a
// rule that a value could break (date, timestamps, duration, uuid of a fixed)
// have none.
type avroLogical uint8

const (
	avroPlain   avroLogical = iota
	avroUUID                // of a string
	avroDecimal             // of bytes or fixed
	avroTimeOfDay
)

// avroNode is one place of an Avro schema. Named types are compiled once and
// shared, so that the nodes of a recursive schema form cycles.
type avroNode struct {
	op      avroOp
	logical avroLogical
	size    int         // bytes of a fixed, float or double; symbols of an enum; branches of a union
	max     int64       // time of day: first value that is too large
	item    *avroNode   // of an array or a map
	kids    []*avroNode // fields of a record, branches of a union
	steps   []avroStep  // a record's fields, nested records laid out flat; see flatten
	inner   int         // records that steps were laid out through, at the deepest
	decimal *avroDecimalRule

	name      string // of a named type in full; of any other the type's name
	label     string // the logical type as written, if it is one we know
	fields    []avroField
	index     map[string]int // of fields, by name; of symbols
	id        int            // equal types share it; 0 while there is none
	meant     [kinds][]int32 // of a union: the branches that a value of a JSON type may mean
	pick      *avroPick      // of a union
	symbols   []string
	words     lazyWords // of symbols
	doc       string
	sensitive bool   // marked
	at        string // JSON Pointer into the schema
	minBytes  int    // shortest encoding; avroInfinite when there is none
	minVisits int    // nodes that the shortest encoding visits
}

// avroStep is a place among the fields of a record that is laid out flat, so
// many records below it.
type avroStep struct {
	n     *avroNode
	below int
}

type avroField struct {
	name       string
	doc        string
	aliases    []string
	sensitive  bool // marked
	hasDefault bool
	ready      bool   // encoded is the default
	encoded    []byte // the default, in binary
}

// avroProgram is a compiled Avro schema.
type avroProgram struct {
	root        *avroNode
	canonical   []byte
	fingerprint uint64
	text        []byte // the schema with everything that it refers to
	repair      RepairMode
	sensitive   bool      // something is marked
	policy      Policy    // of the contract
	values      sync.Pool // of *[]value: memory of tapes for the next
	twinOnce    sync.Once
	twinMade    *Contract // by twin
}

// Bounds of Avro schemas and of the work of a check.
const (
	maxAvroNodes  = 1 << 15
	maxAvroPasses = 256
	// An array of values that have no bytes (null, empty records) has at most
	// so many.
	maxAvroEmptyItems = 4096
	// A decimal has at most so many digits.
	maxAvroPrecision = 1000
	avroInfinite     = 1 << 30
	// A check visits at most avroBudgetBase places, and avroBudgetPerByte more
	// for each byte: values without bytes (null, empty records) are the only
	// ones that cost work and no bytes.
	avroBudgetBase    = 1 << 14
	avroBudgetPerByte = 4
	// A record is laid out flat up to so many steps.
	maxAvroSteps = 256
)

// compileAvro compiles a schema, and returns what there is to warn of.
// References come in the order in which they need one another.
func compileAvro(schema []byte, references [][]byte, rsn *reasons) (*avroProgram, []Warning) {
	var cache avro.SchemaCache
	texts := append(references[:len(references):len(references)], schema)
	if screenDefaults(texts, schemaLimits(), rsn); !rsn.empty() {
		return nil, nil
	}
	for i, text := range texts {
		parsed, err := cache.Parse(string(text))
		if err != nil {
			rsn.add("", "%s", avroWords(err))
			return nil, nil
		}
		if i == len(references) {
			return lowerAvro(parsed, schema, len(references) > 0, rsn)
		}
	}
	return nil, nil
}

// avroWords makes the text of the library safe to echo.
func avroWords(err error) string {
	s := strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r == '\uFFFD' {
			return '.'
		}
		return r
	}, strings.ToValidUTF8(strings.TrimPrefix(err.Error(), "avro: "), "\uFFFD"))
	return clip(s, 300)
}

func lowerAvro(parsed *avro.Schema, schema []byte, bundled bool, rsn *reasons) (*avroProgram, []Warning) {
	p := &avroProgram{text: schema, canonical: parsed.Canonical()}
	if bundled {
		p.text = []byte(parsed.String())
		if len(p.text) > MaxSchemaBytes {
			rsn.add("", "the schema has %d bytes with what it refers to, more than %d", len(p.text), MaxSchemaBytes)
			return nil, nil
		}
	}
	h := avro.NewRabin()
	_, _ = h.Write(p.canonical)
	p.fingerprint = h.Sum64()
	l := &avroLowering{p: p, rsn: rsn, named: map[string]*avroNode{}}
	root := parsed.Root()
	p.root = l.lower(root, "", "")
	p.repair = l.repairMode(root)
	if !rsn.empty() {
		return nil, nil
	}
	l.bound()
	if !rsn.empty() {
		return nil, nil
	}
	if l.defaults(); !rsn.empty() {
		return nil, nil
	}
	l.identify()
	for _, n := range l.all {
		if n.op == avroRecord {
			l.flatten(n)
		}
	}
	return p, l.warn
}

// avroLowering turns the library's tree into nodes.
type avroLowering struct {
	p     *avroProgram
	rsn   *reasons
	named map[string]*avroNode
	all   []*avroNode
	warn  []Warning
	steps int // laid out flat so far
	// screen says that defaults stand under defaultProp; see screenDefaults.
	screen bool
	// defaults wait to be encoded until everything is known.
	pending []avroDefault
}

type avroDefault struct {
	field *avroField
	node  *avroNode
	value any
	at    string
}

func (l *avroLowering) lower(s *avro.SchemaNode, space, at string) *avroNode {
	if len(l.all) >= maxAvroNodes {
		if l.rsn.empty() {
			l.rsn.add(at, "the schema has more than %d types", maxAvroNodes)
		}
		return &avroNode{}
	}
	n := &avroNode{at: at, name: s.Type, doc: s.Doc, sensitive: l.marked(s.Props, at)}
	l.attributes(s, at)
	if op, ok := avroPrimitives[s.Type]; ok {
		l.all = append(l.all, n)
		n.op = op
		switch op {
		case avroFloat:
			n.size = 4
		case avroDouble:
			n.size = 8
		}
		l.logical(n, s)
		return n
	}
	switch s.Type {
	case "record", "error", "enum", "fixed":
		full, inner := avroFullName(s, space)
		n.name = full
		l.named[full] = n
		l.all = append(l.all, n)
		l.lowerNamed(n, s, inner)
		return n
	case "array":
		n.op = avroArray
		l.ignored(s, at, "an array")
		l.all = append(l.all, n)
		n.item = l.lower(s.Items, space, at+"/items")
	case "map":
		n.op = avroMap
		l.ignored(s, at, "a map")
		l.all = append(l.all, n)
		n.item = l.lower(s.Values, space, at+"/values")
	case "union":
		n.op, n.size = avroUnion, len(s.Branches)
		l.all = append(l.all, n)
		for i := range s.Branches {
			n.kids = append(n.kids, l.lower(&s.Branches[i], space, at+"/"+strconv.Itoa(i)))
		}
	default:
		l.ignored(s, at, "a type that is named elsewhere")
		return l.reference(s.Type, space, at)
	}
	return n
}

func (l *avroLowering) reference(name, space, at string) *avroNode {
	if !strings.Contains(name, ".") && space != "" {
		if n := l.named[space+"."+name]; n != nil {
			return n
		}
	}
	if n := l.named[name]; n != nil {
		return n
	}
	l.rsn.add(at, "there is no type %s", clipQuote(name))
	return &avroNode{}
}

func (l *avroLowering) lowerNamed(n *avroNode, s *avro.SchemaNode, space string) {
	switch s.Type {
	case "enum":
		n.op, n.symbols, n.size = avroEnum, s.Symbols, len(s.Symbols)
		l.ignored(s, n.at, "an enum")
		if n.size > fewSymbols {
			n.index = make(map[string]int, n.size)
			for i, name := range n.symbols {
				n.index[name] = i
			}
		}
		if n.size == 0 {
			l.rsn.add(n.at, "an enum needs at least one symbol")
		}
	case "fixed":
		n.op, n.size = avroFixed, s.Size
		l.logical(n, s)
	default:
		n.op = avroRecord
		l.ignored(s, n.at, "a record")
		n.fields = make([]avroField, len(s.Fields))
		n.index = make(map[string]int, len(s.Fields))
		for i := range s.Fields {
			f := &s.Fields[i]
			at := n.at + "/fields/" + strconv.Itoa(i)
			n.index[f.Name] = i
			n.fields[i] = avroField{name: f.Name, hasDefault: f.HasDefault, doc: f.Doc, aliases: f.Aliases, sensitive: l.marked(f.Props, at)}
			l.fieldAttributes(f, at)
			kid := l.lower(&f.Type, space, at+"/type")
			n.kids = append(n.kids, kid)
			if v, ok := f.Props[defaultProp]; ok && l.screen {
				l.pending = append(l.pending, avroDefault{&n.fields[i], kid, v, at + "/default"})
			}
			if f.HasDefault {
				l.pending = append(l.pending, avroDefault{&n.fields[i], kid, f.Default, at + "/default"})
			}
		}
	}
}

// avroFullName returns the full name of a named type, and the namespace of
// what stands within it.
func avroFullName(s *avro.SchemaNode, space string) (full, inner string) {
	if i := strings.LastIndexByte(s.Name, '.'); i >= 0 {
		return s.Name, s.Name[:i]
	}
	if s.Namespace == "" {
		return s.Name, ""
	}
	return s.Namespace + "." + s.Name, s.Namespace
}

var avroPrimitives = map[string]avroOp{
	"null": avroNull, "boolean": avroBoolean, "int": avroInt, "long": avroLong, "float": avroFloat, "double": avroDouble,
	"bytes": avroBytes, "string": avroString,
}

// logical adds the rule of a logical type. One that is unknown, or that does
// not fit its type, is ignored, as the specification demands.
func (l *avroLowering) logical(n *avroNode, s *avro.SchemaNode) {
	const day = 24 * 60 * 60 // seconds
	n.label = s.LogicalType
	switch t := s.LogicalType; {
	case t == "uuid" && n.op == avroString:
		n.logical = avroUUID
	case t == "decimal" && (n.op == avroBytes || n.op == avroFixed) && s.Precision > 0:
		if s.Precision > maxAvroPrecision {
			l.rsn.add(n.at+"/precision", "a decimal has at most %d digits", maxAvroPrecision)
			return
		}
		n.logical, n.decimal = avroDecimal, newAvroDecimalRule(s.Precision, s.Scale)
	case t == "time-millis" && n.op == avroInt:
		n.logical, n.max = avroTimeOfDay, day*1e3
	case t == "time-micros" && n.op == avroLong:
		n.logical, n.max = avroTimeOfDay, day*1e6
	case t == "uuid" && n.op == avroFixed && n.size == 16, t == "duration" && n.op == avroFixed && n.size == 12,
		t == "date" && n.op == avroInt:
	case n.op == avroLong && (strings.HasPrefix(t, "timestamp-") || strings.HasPrefix(t, "local-timestamp-")):
	default:
		n.label = ""
	}
	if t := s.LogicalType; t != "" && !n.takesLogical(t) {
		l.ignored(s, n.at, n.describe())
	}
}

// bound finds the shortest encoding of every node, and refuses records that
// have none, because they hold themselves, and schemas whose shortest value is
// more work than a check may take.
func (l *avroLowering) bound() {
	for _, n := range l.all {
		n.minBytes, n.minVisits = avroInfinite, avroInfinite
	}
	for pass, changed := 0, true; changed; pass++ {
		if pass > maxAvroPasses {
			l.rsn.add("", "the types refer to one another in too many ways")
			return
		}
		changed = false
		for i := range l.all {
			n := l.all[i]
			if pass%2 == 0 { // what stands within a type comes behind it
				n = l.all[len(l.all)-1-i]
			}
			b, v := n.least()
			if b < n.minBytes || v < n.minVisits {
				n.minBytes, n.minVisits, changed = min(b, n.minBytes), min(v, n.minVisits), true
			}
		}
	}
	for _, n := range l.all {
		switch {
		case n.minBytes >= avroInfinite && n.op == avroRecord:
			l.rsn.add(n.at, "no value of the record %s ends: it holds itself without a union, array or map between", clipQuote(n.name))
			return
		case n.minVisits > avroBudgetBase && n.minBytes < avroInfinite:
			l.rsn.add(n.at, "the smallest value has more than %d parts", avroBudgetBase)
			return
		}
	}
}

// least returns the bytes and visits of the shortest encoding, as far as it is
// known.
func (n *avroNode) least() (bytes, visits int) {
	cut := func(x int) int { return min(x, avroInfinite) }
	switch n.op {
	case avroNull:
		return 0, 1
	case avroFloat:
		return 4, 1
	case avroDouble:
		return 8, 1
	case avroFixed:
		return cut(n.size), 1
	case avroRecord:
		bytes, visits = 0, 1
		for _, k := range n.kids {
			bytes, visits = cut(bytes+k.minBytes), cut(visits+k.minVisits)
		}
		return bytes, visits
	case avroUnion:
		bytes, visits = avroInfinite, avroInfinite
		for _, k := range n.kids {
			bytes, visits = min(bytes, cut(1+k.minBytes)), min(visits, cut(1+k.minVisits))
		}
		return bytes, visits
	}
	return 1, 1
}

// flatten lays the fields of nested records out flat: records have no bytes of
// their own, so that the fast pass needs no call for each. Records never lead
// to themselves through records alone; bound has seen to that.
func (l *avroLowering) flatten(n *avroNode) {
	if n.steps != nil {
		return
	}
	n.steps = make([]avroStep, 0, len(n.kids))
	for i, k := range n.kids {
		if k.op == avroRecord {
			l.flatten(k)
			room := maxAvroSteps - len(n.steps) - (len(n.kids) - i)
			if len(k.steps) <= room && l.steps+len(k.steps) <= maxAvroNodes {
				for _, st := range k.steps {
					n.steps = append(n.steps, avroStep{st.n, st.below + 1})
				}
				n.inner = max(n.inner, k.inner+1)
				l.steps += len(k.steps)
				continue
			}
		}
		n.steps = append(n.steps, avroStep{k, 0})
	}
}

// describe names a type for a report.
func (n *avroNode) describe() string {
	switch {
	case n.op == avroEnum:
		return n.words.of(n.symbols).want
	case n.op == avroFixed:
		return fmt.Sprintf("fixed %s of %s", clip(n.name, clipSample), plural(n.size, "byte", "bytes"))
	case n.op == avroRecord:
		return "record " + clip(n.name, clipSample)
	case n.op == avroUnion:
		words := make([]string, 0, len(n.kids))
		for _, k := range n.kids {
			words = append(words, clip(k.name, clipSample))
		}
		return oneOfWords(words)
	case n.label != "":
		return n.name + " (" + n.label + ")"
	}
	return n.name
}
