package headgate

import (
	"bytes"
	"encoding/base64"
	"strings"

	"github.com/headgate/headgate/internal/jsontext"
)

// envelopeLimits are looser than the defaults by the depth of the envelope
// itself, and do not judge numbers: the contract does that for the data.
func envelopeLimits(around int) jsontext.Limits {
	return jsontext.Limits{Depth: jsontext.DefaultDepth + around, NumberLength: 1 << 30, Exponent: 1 << 30}
}

// Structured reads one event in the structured mode: a JSON object with the
// attributes as members. The grammar of the whole text is checked, the names
// of the envelope are unique; whether names inside data are is for the
// contract to judge.
//
// Data of a JSON media type is the very bytes of the member "data"; of another
// media type it is the content of a string. An id and a source may be absent,
// not empty.
func (d *Decoder) Structured(text []byte) (Decoded, error) {
	dec, err := d.structured(text)
	if err != nil {
		return Decoded{}, err
	}
	return dec, nil
}

func (d *Decoder) structured(text []byte) (Decoded, *Error) {
	if limit := d.maxEvent(); len(text) > limit {
		return Decoded{}, tooLongEvent(limit).at(text, 0)
	}
	s := jsontext.NewScanner(text, envelopeLimits(1))
	t, f := s.Next()
	if f != nil {
		return Decoded{}, syntaxError(f)
	}
	if t.Kind != jsontext.BeginObject {
		return Decoded{}, notAnObject(t.Kind).at(text, t.Start)
	}
	r := reading{text: text, trusted: d.Trusted}
	if f := r.members(&s); f != nil {
		return Decoded{}, syntaxError(f)
	}
	if _, f := s.Next(); f != nil {
		return Decoded{}, syntaxError(f)
	}
	return r.event()
}

func notAnObject(k jsontext.Kind) *Error {
	return &Error{Code: CodeBadEnvelope, Detail: "An event must be a JSON object, not " + k.String() + "."}
}

// span is a token or a value of the text.
type span struct {
	start, end int32
	kind       jsontext.Kind
	escaped    bool
}

func spanOf(t jsontext.Token) span {
	return span{start: int32(t.Start), end: int32(t.End), kind: t.Kind, escaped: t.Escaped}
}

// unknown is a member without a meaning.
type unknown struct{ name, value span }

// roomForUnknown is how many extensions are held without an allocation.
const roomForUnknown = 8

// reading is the state of reading one event. The members are found first and
// judged afterwards, so that a fault of one event does not lose the place in a
// batch, and so that all strings can share one allocation.
type reading struct {
	text    []byte
	base    int // where the event begins in the text
	trusted bool
	present uint32 // bit per attribute
	known   [attrCount]span
	count   int // of unknown members
	room    [roomForUnknown]unknown
	more    []unknown
	err     *Error // the first fault of the envelope so far
	strings strings.Builder
}

func (r *reading) fail(err *Error, offset int32) {
	if r.err == nil && err != nil {
		r.err = err.at(r.text[r.base:], int(offset)-r.base)
	}
}

// members reads the members of the object that the scanner has just begun.
func (r *reading) members(s *jsontext.Scanner) *jsontext.Fault {
	for {
		name, f := s.Next()
		if f != nil {
			return f
		}
		if name.Kind == jsontext.EndObject {
			return nil
		}
		value, f := s.Next()
		if f != nil {
			return f
		}
		v := spanOf(value)
		if value.Kind == jsontext.BeginObject || value.Kind == jsontext.BeginArray {
			end, f := s.Skip()
			if f != nil {
				return f
			}
			v.end = int32(end)
		}
		r.member(spanOf(name), v)
	}
}

func (r *reading) member(name, v span) {
	content := r.content(name)
	a := attrOf(content)
	if a == attrCount {
		r.unknown(content, name, v)
		return
	}
	if r.present&(1<<a) != 0 {
		if r.err == nil {
			r.fail(badAttr(attrNames[a], "The attribute %s comes twice.", attrNames[a]), name.start)
		}
		return
	}
	r.present |= 1 << a
	r.known[a] = v
}

func (r *reading) unknown(content []byte, name, v span) {
	switch {
	case r.err != nil:
		return
	case !validName(content):
		r.fail(badName(string(content)), name.start)
		return
	case r.count == MaxExtensions:
		r.fail(tooManyExtensions(), name.start)
		return
	}
	for i := range r.count {
		if bytes.Equal(r.content(r.at(i).name), content) {
			r.fail(badAttr(string(content), "The attribute %s comes twice.", content), name.start)
			return
		}
	}
	if r.count < roomForUnknown {
		r.room[r.count] = unknown{name, v}
	} else {
		r.more = append(r.more, unknown{name, v})
	}
	r.count++
}

func (r *reading) at(i int) unknown {
	if i < roomForUnknown {
		return r.room[i]
	}
	return r.more[i-roomForUnknown]
}

// content returns the content of a name or string. Only escapes allocate.
func (r *reading) content(v span) []byte {
	if !v.escaped {
		return r.text[v.start+1 : v.end-1]
	}
	return jsontext.Unquote(nil, r.text[v.start:v.end])
}

// event judges the members and builds the event.
func (r *reading) event() (Decoded, *Error) {
	if r.err != nil {
		return Decoded{}, r.err
	}
	var dec Decoded
	e := new(Event)
	if err := r.reserve(); err != nil {
		return dec, err.at(r.text[r.base:], 0)
	}
	for a := attr(0); a < attrCount; a++ {
		v := r.known[a]
		if r.present&(1<<a) == 0 || v.kind == jsontext.Null && a != attrData {
			continue
		}
		switch {
		case a == attrData || a == attrDataBase64:
			continue
		case a >= firstHeaderAttr && !r.trusted:
			dec.Ignored = append(dec.Ignored, attrNames[a])
			continue
		}
		r.attribute(e, a, v)
	}
	r.required()
	r.extensions(e)
	r.data(e)
	if r.err != nil {
		return Decoded{}, r.err
	}
	dec.Event = e
	return dec, nil
}

// reserve makes room for all strings of the event at once.
func (r *reading) reserve() *Error {
	total := 0
	for a := attr(0); a < attrCount; a++ {
		if r.wantsString(a) {
			total += int(r.known[a].end - r.known[a].start)
		}
	}
	for i := range r.count {
		x := r.at(i)
		total += int(x.name.end-x.name.start) + int(x.value.end-x.value.start)
	}
	// An escape takes up to six bytes for one, so this is no final verdict.
	if total > 6*MaxEnvelopeLength {
		return tooLongEnvelope()
	}
	r.strings.Grow(total)
	return nil
}

func (r *reading) wantsString(a attr) bool {
	switch a {
	case attrSpecVersion, attrTime, attrExpiryTime, attrData, attrDataBase64, attrRecordedTime:
		return false
	}
	return r.present&(1<<a) != 0 && (a < firstHeaderAttr || r.trusted)
}

// keep copies content into the shared string.
func (r *reading) keep(content []byte) string {
	before := r.strings.Len()
	r.strings.Write(content)
	return r.strings.String()[before:]
}

func (r *reading) attribute(e *Event, a attr, v span) {
	raw := r.text[v.start:v.end]
	switch {
	case v.kind == jsontext.String:
	case v.kind == jsontext.Number && (a == attrTTL || a == attrHop):
		r.fail(e.set(a, string(raw)), v.start)
		return
	default:
		r.fail(badAttr(attrNames[a], "%s must be a string, not %s.", attrNames[a], v.kind), v.start)
		return
	}
	content := r.content(v)
	if a == attrSpecVersion {
		if string(content) != SpecVersion {
			r.fail(checkAttr(a, string(content)), v.start)
		}
		return
	}
	var err *Error
	switch a {
	case attrTime:
		err = parseTime(&e.Time, a, content)
	case attrExpiryTime:
		err = parseTime(&e.ExpiryTime, a, content)
	case attrRecordedTime:
		err = parseTime(&e.Header.RecordedTime, a, content)
	default:
		err = e.set(a, r.keep(content))
	}
	r.fail(err, v.start)
}

func (r *reading) required() {
	for _, a := range [...]attr{attrSpecVersion, attrType} {
		if r.present&(1<<a) == 0 || r.known[a].kind == jsontext.Null {
			r.fail(badAttr(attrNames[a], "The attribute %s is missing.", attrNames[a]), int32(r.base))
		}
	}
}

func (r *reading) extensions(e *Event) {
	if r.count > 0 {
		e.Extensions = make([]Extension, 0, r.count)
	}
	for i := range r.count {
		m := r.at(i)
		x := Extension{Kind: ExtensionString}
		switch m.value.kind {
		case jsontext.Null:
			continue
		case jsontext.String:
			x.Value = r.keep(r.content(m.value))
		case jsontext.True:
			x.Kind, x.Value = ExtensionBool, "true"
		case jsontext.False:
			x.Kind, x.Value = ExtensionBool, "false"
		case jsontext.Number:
			x.Kind, x.Value = ExtensionInteger, r.keep(r.text[m.value.start:m.value.end])
			if x.Value == "-0" {
				x.Value = "0"
			}
		default:
			r.fail(badAttr(string(r.content(m.name)), "%s must be a string, a boolean or an integer, not %s.",
				r.content(m.name), m.value.kind), m.value.start)
			return
		}
		x.Name = r.keep(r.content(m.name))
		if x.Kind == ExtensionInteger && !validInteger(x.Value) {
			r.fail(badAttr(x.Name, "%s must be a whole number of 32 bits, written without point and exponent: %s.",
				x.Name, quote(x.Value)), m.value.start)
			return
		}
		r.fail(checkText(x.Name, x.Value, MaxAttributeLength), m.value.start)
		e.SetExtension(x)
	}
	if r.strings.Len() > MaxEnvelopeLength {
		r.fail(tooLongEnvelope(), int32(r.base))
	}
}

func (r *reading) data(e *Event) {
	plain := r.present&(1<<attrData) != 0
	v := r.known[attrDataBase64]
	if r.present&(1<<attrDataBase64) != 0 && v.kind != jsontext.Null {
		if plain {
			r.fail(badAttr("data_base64", "The event has both data and data_base64."), v.start)
			return
		}
		r.binaryData(e, v)
		return
	}
	if !plain {
		return
	}
	v = r.known[attrData]
	switch {
	case IsJSON(e.DataContentType):
		e.Data = r.text[v.start:v.end:v.end]
	case v.kind == jsontext.String:
		e.Data = r.content(v)
		e.Data = e.Data[:len(e.Data):len(e.Data)]
	case v.kind != jsontext.Null:
		r.fail(badAttr("data", "data of the media type %s must be a string (or use data_base64), not %s.",
			quote(e.DataContentType), v.kind), v.start)
	}
}

func (r *reading) binaryData(e *Event, v span) {
	if v.kind != jsontext.String {
		r.fail(badAttr("data_base64", "data_base64 must be a string, not %s.", v.kind), v.start)
		return
	}
	content := r.content(v)
	data := make([]byte, base64.StdEncoding.DecodedLen(len(content)))
	n, err := base64.StdEncoding.Strict().Decode(data, content)
	// The decoder overlooks line breaks; RFC 4648, section 3.3, does not.
	if err != nil || bytes.ContainsAny(content, "\r\n") {
		r.fail(badAttr("data_base64", "data_base64 is not base64 of RFC 4648, section 4, with padding."), v.start)
		return
	}
	e.Data = data[:n]
}
