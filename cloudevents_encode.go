package headgate

import (
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/jsontext"
)

// AppendStructured appends the event in the structured mode, header attributes
// included, to dst. Absent attributes are left out; so are extensions whose
// names an event may not carry (see [ValidExtensionName]).
//
// Data of a JSON media type becomes the member "data", byte for byte but for
// white space around the value; data that is not JSON although its type says
// so becomes "data_base64". Other data becomes a string if it is UTF-8.
func AppendStructured(dst []byte, e *Event) []byte {
	return appendEvent(dst, e, false)
}

// AppendLine appends the event as one line of NDJSON, line feed included. Line
// breaks between the tokens of JSON data become spaces, since a line cannot
// hold them.
func AppendLine(dst []byte, e *Event) []byte {
	return append(appendEvent(dst, e, true), '\n')
}

// AppendBatch appends the events in the batched mode.
func AppendBatch(dst []byte, events []*Event) []byte {
	dst = append(dst, '[')
	for i, e := range events {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendEvent(dst, e, false)
	}
	return append(dst, ']')
}

func appendEvent(dst []byte, e *Event, oneLine bool) []byte {
	dst = append(dst, `{"specversion":"`+SpecVersion+`"`...)
	dst = appendMember(dst, attrID, e.ID)
	dst = appendMember(dst, attrSource, e.Source)
	dst = appendMember(dst, attrType, e.Type)
	dst = appendMember(dst, attrSubject, e.Subject)
	dst = appendTimeMember(dst, attrTime, e.Time)
	dst = appendMember(dst, attrDataContentType, e.DataContentType)
	dst = appendMember(dst, attrDataSchema, e.DataSchema)
	dst = appendMember(dst, attrKey, e.Key)
	dst = appendMember(dst, attrTraceParent, e.TraceParent)
	dst = appendMember(dst, attrTraceState, e.TraceState)
	dst = appendTimeMember(dst, attrExpiryTime, e.ExpiryTime)
	dst = appendHeader(dst, &e.Header)
	for _, x := range e.Extensions {
		dst = appendExtension(dst, x)
	}
	dst = appendData(dst, e, oneLine)
	return append(dst, '}')
}

func appendHeader(dst []byte, h *Header) []byte {
	dst = appendMember(dst, attrRootID, h.RootID)
	dst = appendMember(dst, attrCausationID, JoinCauses(h.Causes))
	if h.RootID != "" || h.TTL != 0 || h.Hop != 0 {
		dst = strconv.AppendInt(appendName(dst, "ttl"), int64(h.TTL), 10)
		dst = strconv.AppendInt(appendName(dst, "hop"), int64(h.Hop), 10)
	}
	dst = appendMember(dst, attrOrigin, string(h.Origin))
	dst = appendMember(dst, attrPrincipal, h.Principal)
	dst = appendMember(dst, attrActor, string(h.Actor))
	dst = appendTimeMember(dst, attrRecordedTime, h.RecordedTime)
	return appendMember(dst, attrFence, h.Fence)
}

// appendName appends a comma, the name of a member, which needs no escapes,
// and a colon.
func appendName(dst []byte, name string) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	return append(dst, '"', ':')
}

func appendMember(dst []byte, a attr, value string) []byte {
	if value == "" {
		return dst
	}
	return jsontext.AppendString(appendName(dst, attrNames[a]), value)
}

func appendTimeMember(dst []byte, a attr, t time.Time) []byte {
	if t.IsZero() {
		return dst
	}
	dst = append(appendName(dst, attrNames[a]), '"')
	return append(appendTime(dst, t), '"')
}

// appendTime writes RFC 3339. Zones whose offset is not whole minutes cannot
// be written in it, so such times are written in UTC.
func appendTime(dst []byte, t time.Time) []byte {
	if !wholeMinutes(t) {
		t = t.UTC()
	}
	return t.AppendFormat(dst, time.RFC3339Nano)
}

func appendExtension(dst []byte, x Extension) []byte {
	if !ValidExtensionName(x.Name) {
		return dst
	}
	dst = appendName(dst, x.Name)
	switch {
	case x.Kind == ExtensionBool && (x.Value == "true" || x.Value == "false"),
		x.Kind == ExtensionInteger && validInteger(x.Value):
		return append(dst, x.Value...)
	default:
		return jsontext.AppendString(dst, x.Value)
	}
}

func appendData(dst []byte, e *Event, oneLine bool) []byte {
	if e.Data == nil {
		return dst
	}
	if IsJSON(e.DataContentType) {
		if start, end, valid := jsonValue(e.Data); valid {
			dst = appendName(dst, "data")
			at := len(dst)
			dst = append(dst, e.Data[start:end]...)
			if oneLine {
				spaceOut(dst[at:])
			}
			return dst
		}
	} else if utf8.Valid(e.Data) && !IsAvro(e.DataContentType) {
		return jsontext.AppendString(appendName(dst, "data"), e.Data)
	}
	dst = append(appendName(dst, "data_base64"), '"')
	dst = base64.StdEncoding.AppendEncode(dst, e.Data)
	return append(dst, '"')
}

// jsonValue returns where the JSON value lies in data, without the white space
// around it. Bytes that are no JSON must not be copied into an envelope: they
// could end the member and forge others.
func jsonValue(data []byte) (start, end int, valid bool) {
	s := jsontext.NewScanner(data, jsontext.Limits{Depth: jsontext.DefaultDepth, NumberLength: 1 << 30, Exponent: 1 << 30})
	t, f := s.Next()
	if f != nil {
		return 0, 0, false
	}
	end, f = s.Skip()
	if f != nil {
		return 0, 0, false
	}
	_, f = s.Next()
	return t.Start, end, f == nil
}

// spaceOut replaces the line breaks of a JSON text, which can only stand
// between its tokens.
func spaceOut(text []byte) {
	for i, c := range text {
		if c == '\n' || c == '\r' {
			text[i] = ' '
		}
	}
}
