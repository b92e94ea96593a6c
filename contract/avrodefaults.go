package contract

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/twmb/avro"

	"github.com/headgate/headgate/internal/jsontext"
)

// Bounds of the defaults of one schema. A default of a record takes in those of
// the fields that it leaves out, so that few bytes of a schema can stand for
// very many.
const (
	// The defaults take at most so many bytes of Avro together, and so many
	// bytes of JSON are read for them.
	maxAvroDefaults     = 4 << 20
	maxAvroDefaultsRead = 32 << 20
	// What one part of a default counts besides its text while schemas are
	// screened, and how many parts are looked at.
	avroDefaultPart  = 16
	maxAvroScreening = 1 << 20
	// defaultProp is the attribute under which the screen finds defaults.
	defaultProp = "headgate-default"
)

// screenDefaults refuses schemas whose defaults hold too much, before the
// parser, which has no such bound, writes them out. It has the parser read the
// schemas with the defaults as attributes of no meaning, and adds up what they
// hold. What else is wrong is left to the parser.
func screenDefaults(texts [][]byte, lim jsontext.Limits, rsn *reasons) {
	docs := make([]any, len(texts))
	holds := false
	for i, text := range texts {
		if docs[i] = parseWithin(text, lim, rsn); !rsn.empty() {
			return
		}
		holds = hideDefaults(docs[i]) || holds
	}
	if !holds {
		return
	}
	var cache avro.SchemaCache
	for i, doc := range docs {
		text, err := json.Marshal(doc)
		if err != nil {
			return
		}
		parsed, err := cache.Parse(string(text))
		if err != nil {
			rsn.add("", "%s", avroWords(err))
			return
		}
		// Each document is screened by itself; the last one has types of all.
		l := &avroLowering{p: &avroProgram{}, rsn: rsn, named: map[string]*avroNode{}, screen: true}
		if l.p.root = l.lower(parsed.Root(), "", ""); rsn.empty() {
			l.screenPending()
		}
		if !rsn.empty() || i == len(docs)-1 {
			return
		}
	}
}

// hideDefaults renames the defaults of fields in a document, and reports
// whether one holds an object.
func hideDefaults(v any) (holds bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			holds = hideDefaults(e) || holds
		}
	case map[string]any:
		for name, e := range v {
			holds = hideDefaults(e) || holds
			fields, ok := e.([]any)
			if !ok || !strings.EqualFold(name, "fields") {
				continue
			}
			for _, f := range fields {
				if m, ok := f.(map[string]any); ok {
					holds = hideDefault(m) || holds
				}
			}
		}
	}
	return holds
}

func hideDefault(field map[string]any) (holds bool) {
	for _, name := range sortedKeys(field) {
		if strings.EqualFold(name, "default") {
			v := field[name]
			delete(field, name)
			field[defaultProp] = v
			holds = holds || holdsObject(v)
		}
	}
	return holds
}

func holdsObject(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return true
	case []any:
		return slices.ContainsFunc(v, holdsObject)
	}
	return false
}

// avroScreen adds up what defaults hold, as an upper bound.
type avroScreen struct {
	defaults map[*avroField]*avroDefault
	sizes    map[*avroField]int // -1 while it is worked out
	parts    int
}

func (l *avroLowering) screenPending() {
	s := &avroScreen{defaults: map[*avroField]*avroDefault{}, sizes: map[*avroField]int{}}
	for i := range l.pending {
		s.defaults[l.pending[i].field] = &l.pending[i]
	}
	sum := 0
	for i := range l.pending {
		d := &l.pending[i]
		if sum = add(sum, s.field(d.field)); sum > maxAvroDefaults {
			l.rsn.add(d.at, "the defaults of the schema hold too much together: more than %d bytes", maxAvroDefaults)
			return
		}
	}
}

// field returns the size of a field's default. One that rests on itself has no
// end.
func (s *avroScreen) field(f *avroField) int {
	d := s.defaults[f]
	if d == nil {
		return avroDefaultPart
	}
	switch size, ok := s.sizes[f]; {
	case size < 0:
		return saturated
	case ok:
		return size
	}
	s.sizes[f] = -1
	s.sizes[f] = s.value(d.node, d.value)
	return s.sizes[f]
}

func (s *avroScreen) value(n *avroNode, v any) int {
	if s.parts++; s.parts > maxAvroScreening {
		return saturated
	}
	if n.op == avroUnion {
		most := avroDefaultPart
		for _, k := range n.kids {
			most = max(most, s.value(k, v))
		}
		return most
	}
	sum := avroDefaultPart
	switch v := v.(type) {
	case string:
		sum += len(v)
	case []any:
		for _, e := range v {
			sum = add(sum, s.value(n.below(), e))
		}
	case map[string]any:
		if n.op == avroRecord {
			for i := range n.fields {
				f := &n.fields[i]
				if e, ok := v[f.name]; ok {
					sum = add(sum, s.value(n.kids[i], e))
				} else {
					sum = add(sum, s.field(f))
				}
			}
			return sum
		}
		for name, e := range v {
			sum = add(sum, add(len(name), s.value(n.below(), e)))
		}
	}
	return sum
}

// below returns what stands within an array or a map, and itself for any other.
func (n *avroNode) below() *avroNode {
	if n.item != nil {
		return n.item
	}
	return n
}

// defaults encodes the defaults of fields, for payloads in JSON that leave
// them out.
func (l *avroLowering) defaults() {
	waiting := l.pending
	size, read := 0, 0
	for len(waiting) > 0 { // a default may rest on another one
		var left []avroDefault
		for _, d := range waiting {
			text := avroDefaultText(nil, d.value)
			if read += len(text) + 64; read > maxAvroDefaultsRead {
				l.rsn.add(d.at, "the defaults rest on one another in too many ways")
				return
			}
			enc, full, ok := l.p.encodeDefault(d.node, text, maxAvroDefaults-size)
			switch {
			case full:
				l.rsn.add(d.at, "the defaults of the schema take more than %d bytes together", maxAvroDefaults)
				return
			case !ok:
				left = append(left, d)
			default:
				size += len(enc)
				d.field.encoded, d.field.ready = slices.Clip(enc), true
			}
		}
		if len(left) == len(waiting) {
			break
		}
		waiting = left
	}
	for _, d := range waiting {
		d.field.hasDefault = false // JSON cannot say it
	}
}
