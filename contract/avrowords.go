package contract

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/headgate/headgate"
)

// lazyWords is what reports need of an enum, made when one is first asked for
// it.
type lazyWords struct {
	once  sync.Once
	want  string
	names []nearName // the first nearCandidates
}

func (l *lazyWords) of(symbols []string) *lazyWords {
	l.once.Do(func() {
		quoted := make([]string, len(symbols)) // the rest is only counted
		for i, s := range symbols[:min(len(symbols), maxListed)] {
			quoted[i] = clipQuote(s)
		}
		l.want = oneOfWords(quoted)
		for _, s := range symbols[:min(len(symbols), nearCandidates)] {
			l.names = append(l.names, newNearName(s))
		}
	})
	return l
}

// near returns the symbols that a text is most likely meant to be.
func (l *lazyWords) near(text string) []string {
	var s nearSearch
	left := nearCandidates
	if !s.start(text, &left) {
		return nil
	}
	for i := range l.names {
		s.offer(&l.names[i], nil)
	}
	return s.found()
}

// describeJSON says how a value of the type is written in JSON.
func (n *avroNode) describeJSON() string {
	switch n.op {
	case avroNull:
		return "null"
	case avroBoolean:
		return "a boolean"
	case avroInt, avroLong:
		return "an integer (" + n.describe() + ")"
	case avroFloat, avroDouble:
		return "a number (" + n.describe() + ")"
	case avroString:
		if n.logical == avroUUID {
			return lookupFormat("uuid").want
		}
		return "a string"
	case avroBytes, avroFixed:
		if n.decimal != nil {
			return fmt.Sprintf("a number of at most %s, %d of them behind the point", plural(n.decimal.precision, "digit", "digits"), n.decimal.scale)
		}
		return "a string whose code points are the bytes of " + n.describe()
	case avroArray:
		return "an array"
	case avroMap:
		return "an object"
	case avroRecord:
		return "an object (" + n.describe() + ")"
	}
	return n.describe()
}

// report puts the faults of a JSON text into words, in their order. The
// evaluator, if any, knows what may not be shown.
func (r *avroRead) report(h *evaluator) ([]headgate.Violation, int) {
	list := *r.rep
	slices.SortStableFunc(list, func(a, b avroFault) int {
		return cmp.Or(cmp.Compare(r.offset(a), r.offset(b)), cmp.Compare(a.code, b.code), cmp.Compare(a.field, b.field))
	})
	truncated := max(0, len(list)-headgate.MaxViolations)
	list = list[:len(list)-truncated]
	out := make([]headgate.Violation, len(list))
	pl := newPlaces(r.t.text)
	for i, f := range list {
		v := &out[i]
		*v = headgate.Violation{Code: f.code, At: r.t.pointer(f.v), SchemaAt: clip(f.n.at, 400), Offset: int(r.offset(f)), Got: r.t.got(f.v)}
		v.Line, v.Column = pl.advance(v.Offset)
		r.words(f, v)
		if h != nil {
			r.hide(h, f, v)
		}
	}
	return out, truncated
}

func (r *avroRead) offset(f avroFault) int32 {
	if f.code == headgate.ViolationUnknownProperty {
		return r.t.values[f.v].nameStart
	}
	return r.t.values[f.v].start
}

// words fills in what is wanted and how to mend it.
func (r *avroRead) words(f avroFault, v *headgate.Violation) {
	at := pointerWords(v.At)
	v.Want = f.n.describeJSON()
	v.Fix = fmt.Sprintf("Set %s to %s.", at, v.Want)
	switch f.code {
	case headgate.ViolationMissingRequired:
		r.missingWords(f, v)
	case headgate.ViolationUnknownProperty:
		r.unknownWords(f, v)
	case headgate.ViolationWrongType:
		v.Fix = fmt.Sprintf("Send %s at %s.", v.Want, at)
	case headgate.ViolationOutOfRange:
		v.Want = f.n.rangeWords()
		v.Fix = fmt.Sprintf("Set %s to %s.", at, v.Want)
	case headgate.ViolationBadFormat:
		v.Fix = fmt.Sprintf("Set %s to the id that its owner issued, %s; do not make one up.", at, v.Want)
	case headgate.ViolationBadCount:
		v.Want = "at most " + plural(maxAvroEmptyItems, "item", "items")
		v.Fix = fmt.Sprintf("Remove items from %s: it may have %s.", at, v.Want)
	case headgate.ViolationTooDeep:
		v.Want = "records, arrays and maps nested less deeply"
		v.Fix = fmt.Sprintf("Nest records, arrays and maps less deeply at %s.", at)
	case headgate.ViolationNotInEnum:
		near := f.n.words.of(f.n.symbols).near(string(r.t.str(f.v)))
		if len(near) > 0 {
			v.Fix = fmt.Sprintf("Set %s to %s.", at, clipQuote(near[0]))
		}
		for _, s := range near {
			v.Near = append(v.Near, clipQuote(s))
		}
	}
}

func (n *avroNode) rangeWords() string {
	switch {
	case n.logical == avroTimeOfDay:
		return fmt.Sprintf("a time of day, from 0 to %d", n.max-1)
	case n.op == avroInt:
		return "an integer of 32 bits"
	case n.op == avroLong:
		return "an integer of 64 bits"
	case n.op == avroFloat:
		return "a number that 32 bits of floating point can hold"
	case n.op == avroDouble:
		return "a number that 64 bits of floating point can hold"
	}
	return n.describeJSON()
}

func (r *avroRead) unknownWords(f avroFault, v *headgate.Violation) {
	parent := r.t.values[f.v].parent
	name, object := string(r.t.name(f.v)), pointerWords(r.t.pointer(parent))
	free := map[string]bool{}
	for i := range f.n.fields {
		free[f.n.fields[i].name] = true
	}
	for c := parent + 1; c < r.t.values[parent].next; c = r.t.values[c].next {
		delete(free, string(r.t.name(c)))
	}
	v.Want = "no property of this name"
	v.Fix = fmt.Sprintf("Remove the property %s from %s.", clipQuote(name), object)
	if near := nearest(name, sortedKeys(free)); len(near) > 0 {
		v.Fix = fmt.Sprintf("Rename the property %s of %s to %s, or remove it.", clipQuote(name), object, clipQuote(near[0]))
		v.Near = clipAll(near)
	}
}

func (r *avroRead) missingWords(f avroFault, v *headgate.Violation) {
	name, object := f.n.fields[f.field].name, pointerWords(v.At)
	v.At += "/" + clipPointerToken(name)
	v.SchemaAt = clip(f.n.at+"/fields/"+strconv.Itoa(int(f.field)), 400)
	v.Got, v.Want = "absent", f.n.kids[f.field].describeJSON()
	v.Fix = fmt.Sprintf("Add the property %s to %s (%s).", clipQuote(name), object, v.Want)
	var strangers []string
	for c := f.v + 1; c < r.t.values[f.v].next && len(strangers) < nearCandidates; c = r.t.values[c].next {
		if s := r.t.name(c); f.n.field(s) < 0 && len(s) <= nearLength {
			strangers = append(strangers, string(s))
		}
	}
	if near := nearest(name, strangers); len(near) > 0 {
		v.Fix = fmt.Sprintf("Rename the property %s of %s to %s (%s).", clipQuote(near[0]), object, clipQuote(name), v.Want)
		v.Near = clipAll(near)
	}
}
