package headgate

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// IsBinary reports whether request headers carry an event in the binary mode:
// whether there is a ce-specversion, or at least a ce-type, among them.
func IsBinary(header map[string][]string) bool {
	for key := range header {
		if name, found := ceName(key); found && (name == "specversion" || name == "type") {
			return true
		}
	}
	return false
}

// ceName returns the attribute name of a header field, in lower case.
func ceName(key string) (string, bool) {
	if len(key) < 3 || key[0]|0x20 != 'c' || key[1]|0x20 != 'e' || key[2] != '-' {
		return "", false
	}
	return strings.ToLower(key[3:]), true
}

// Binary reads one event in the binary mode: attributes in ce- header fields,
// data in the body as it is. An http.Header may be passed; the names of the
// fields may have any case.
//
// Values are unquoted and percent-decoded (CloudEvents 1.0.2, HTTP protocol
// binding, section 3.1.3.2). A field that comes twice is refused. The binary
// mode has no kinds: every extension is a string.
func (d *Decoder) Binary(header map[string][]string, body []byte) (Decoded, error) {
	dec, err := d.binary(header, body)
	if err != nil {
		return Decoded{}, err
	}
	return dec, nil
}

// field is one ce- header field.
type field struct{ name, value string }

func (d *Decoder) binary(header map[string][]string, body []byte) (Decoded, *Error) {
	if limit := d.maxEvent(); len(body) > limit {
		return Decoded{}, tooLongEvent(limit)
	}
	contentType, fields, err := binaryFields(header)
	if err != nil {
		return Decoded{}, err
	}
	var dec Decoded
	e := new(Event)
	if contentType != "" {
		if err := e.set(attrDataContentType, contentType); err != nil {
			return Decoded{}, err
		}
	}
	seen := uint32(0)
	for _, f := range fields {
		value, err := headerValue(f)
		if err != nil {
			return Decoded{}, err
		}
		a := attrOf(f.name)
		if a >= firstHeaderAttr && a < attrCount && !d.Trusted {
			dec.Ignored = append(dec.Ignored, f.name)
			continue
		}
		if err := e.setField(a, f.name, value); err != nil {
			return Decoded{}, err
		}
		if a < attrCount {
			seen |= 1 << a
		}
	}
	if seen&(1<<attrSpecVersion) == 0 {
		return Decoded{}, badAttr("specversion", "The header field ce-specversion is missing.")
	}
	if seen&(1<<attrType) == 0 {
		return Decoded{}, missingType()
	}
	if len(body) > 0 {
		e.Data = body[:len(body):len(body)]
	}
	dec.Event = e
	return dec, nil
}

func (e *Event) setField(a attr, name, value string) *Error {
	switch a {
	case attrData, attrDataBase64:
		return badAttr(name, "%s is no attribute; the data of the binary mode is the body.", name)
	case attrDataContentType:
		if value != e.DataContentType {
			return badAttr(name, "The data content type must be sent as Content-Type, not as ce-datacontenttype.")
		}
		return nil
	case attrCount:
		if err := checkText(name, value, MaxAttributeLength); err != nil {
			return err
		}
		e.Extensions = append(e.Extensions, Extension{Name: name, Value: value}) // fields are sorted
		return nil
	default:
		return e.set(a, value)
	}
}

// binaryFields collects the fields that matter, sorted by name so that the
// first fault is always the same one.
func binaryFields(header map[string][]string) (contentType string, fields []field, err *Error) {
	size, unknown, types := 0, 0, 0
	for key, values := range header {
		if strings.EqualFold(key, "Content-Type") {
			for _, contentType = range values {
				types++
			}
			continue
		}
		name, found := ceName(key)
		if !found {
			continue
		}
		if !validName(name) && attrOf(name) == attrCount {
			return "", nil, firstBadName(header)
		}
		if attrOf(name) == attrCount {
			unknown += len(values)
		}
		for _, v := range values {
			size += len(name) + len(v)
			fields = append(fields, field{name, v})
		}
		// Reading on would only serve to fill memory.
		if unknown > MaxExtensions {
			return "", nil, tooManyExtensions()
		}
		if size > 3*MaxEnvelopeLength {
			return "", nil, tooLongEnvelope()
		}
	}
	slices.SortFunc(fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	for i := 1; i < len(fields); i++ {
		if fields[i].name == fields[i-1].name {
			return "", nil, badAttr(fields[i].name, "The header field ce-%s comes twice.", fields[i].name)
		}
	}
	if types > 1 {
		return "", nil, badAttr("datacontenttype", "The header field Content-Type comes twice.")
	}
	return contentType, fields, nil
}

func firstBadName(header map[string][]string) *Error {
	first, found := "", false
	for key := range header {
		name, isCE := ceName(key)
		if isCE && !validName(name) && attrOf(name) == attrCount && (!found || name < first) {
			first, found = name, true
		}
	}
	return badName(first)
}

// headerValue decodes the value of a field. Clients that do not know the
// encoding are met half-way, where their values have one sensible reading: a
// percent sign without two digits stands for itself, and a URI reference that
// decoding would break was not encoded.
func headerValue(f field) (string, *Error) {
	s := f.value
	if len(s) > 0 && s[0] == '"' {
		var valid bool
		if s, valid = unquoteField(s); !valid {
			return "", badAttr(f.name, "The header field ce-%s has an opening quote without a closing one.", f.name)
		}
	}
	decoded := percentDecode(s)
	if a := attrOf(f.name); (a == attrSource || a == attrDataSchema) && !validURIReference(decoded) && validURIReference(s) {
		return s, nil
	}
	return decoded, nil
}

func percentDecode(s string) string {
	at := strings.IndexByte(s, '%')
	if at < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			n, _ := strconv.ParseUint(s[i+1:i+3], 16, 8) // two hexadecimal digits cannot fail
			b = append(b, byte(n))
			i += 2
			continue
		}
		b = append(b, s[i])
	}
	return string(b)
}

// unquoteField reads a quoted-string of RFC 9110, section 5.6.4.
func unquoteField(s string) (string, bool) {
	b := make([]byte, 0, len(s))
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return string(b), i == len(s)-1
		case s[i] == '\\' && i+1 < len(s):
			i++
		}
		b = append(b, s[i])
	}
	return "", false
}

// SetBinary writes the event's attributes, its header included, into the
// header fields of the binary mode; an http.Header may be passed. The body is
// e.Data. ce- fields that are there already are removed.
func SetBinary(header map[string][]string, e *Event) {
	for key := range header {
		if _, found := ceName(key); found || strings.EqualFold(key, "Content-Type") {
			delete(header, key)
		}
	}
	f := headerFields(header)
	f.set(attrSpecVersion, SpecVersion)
	f.set(attrID, e.ID)
	f.set(attrSource, e.Source)
	f.set(attrType, e.Type)
	f.set(attrSubject, e.Subject)
	f.setTime(attrTime, e.Time)
	f.set(attrDataSchema, e.DataSchema)
	f.set(attrKey, e.Key)
	f.set(attrTraceParent, e.TraceParent)
	f.set(attrTraceState, e.TraceState)
	f.setTime(attrExpiryTime, e.ExpiryTime)
	f.setHeader(&e.Header)
	for _, x := range e.Extensions {
		if ValidExtensionName(x.Name) {
			f.write(x.Name, x.Value) // an empty value is a value
		}
	}
	switch {
	case e.DataContentType != "":
		header["Content-Type"] = []string{e.DataContentType}
	case e.Data != nil:
		header["Content-Type"] = []string{MediaTypeJSON}
	}
}

// headerFields are header fields that are being written.
type headerFields map[string][]string

// write writes a ce- field in the canonical spelling of package net/http.
func (f headerFields) write(name, value string) {
	f["Ce-"+strings.ToUpper(name[:1])+name[1:]] = []string{percentEncode(value)}
}

func (f headerFields) set(a attr, value string) {
	if value != "" {
		f.write(attrNames[a], value)
	}
}

func (f headerFields) setTime(a attr, t time.Time) {
	if !t.IsZero() {
		f.set(a, string(appendTime(nil, t)))
	}
}

func (f headerFields) setHeader(h *Header) {
	f.set(attrRootID, h.RootID)
	f.set(attrCausationID, JoinCauses(h.Causes))
	if h.RootID != "" || h.TTL != 0 || h.Hop != 0 {
		f.set(attrTTL, strconv.Itoa(h.TTL))
		f.set(attrHop, strconv.Itoa(h.Hop))
	}
	f.set(attrOrigin, string(h.Origin))
	f.set(attrPrincipal, h.Principal)
	f.set(attrActor, string(h.Actor))
	f.setTime(attrRecordedTime, h.RecordedTime)
	f.set(attrFence, h.Fence)
}

// percentEncode encodes space, quote, percent sign and everything beyond
// printable ASCII. Source: HTTP protocol binding, section 3.1.3.2.
func percentEncode(s string) string {
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = plainField(s[i])
	}
	if plain {
		return s
	}
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, len(s)+16)
	for i := range len(s) {
		if c := s[i]; plainField(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}

func plainField(c byte) bool { return c > ' ' && c < 0x7f && c != '"' && c != '%' }
