package perimeter

import (
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate"
)

// Limits of the envelope, in bytes unless said otherwise. The payload's limit
// is its type's.
const (
	MaxID              = 512
	MaxSource          = 2048
	MaxSubject         = 1024
	MaxKey             = 512
	MaxMediaType       = 256
	MaxSchema          = 2048
	MaxTrace           = 512
	MaxExtensions      = 64 // attributes
	MaxExtensionName   = 64
	MaxExtensionValue  = 4096
	MaxExtensionsBytes = 16 << 10 // names and values together
)

// envelope checks the attributes, fills in what may be absent, and clears the
// header.
func (r *run) envelope(i int) *headgate.Error {
	it := &r.s.Items[i]
	if it.Err != nil {
		return it.Err
	}
	e := it.Event
	if e == nil {
		return badEnvelope("there is no event")
	}
	e.Header = headgate.Header{}
	if !headgate.ValidType(e.Type) {
		return badEnvelope("type is missing or not 1 to 200 letters, digits, dots, hyphens, underscores and slashes")
	}
	en := &r.entries[i]
	en.typ = r.p.cfg.Topology.Lookup(e.Type)
	r.results[i].Stream = en.typ.Stream
	if err := r.sizes(e, en.typ.PayloadMax); err != nil {
		return err
	}
	if err := r.identity(e, en); err != nil {
		return err
	}
	if err := attributes(e); err != nil {
		return err
	}
	if err := r.extensions(e); err != nil {
		return err
	}
	return r.times(e, en.typ.Expire)
}

func badEnvelope(format string, args ...any) *headgate.Error {
	return headgate.NewError(headgate.CodeBadEnvelope, format, args...)
}

func (r *run) sizes(e *headgate.Event, payloadMax int) *headgate.Error {
	if len(e.Data) > payloadMax {
		return headgate.NewError(headgate.CodeTooLarge, "the payload has %d bytes; type %s allows %d", len(e.Data), e.Type, payloadMax)
	}
	if r.p.maxEvent > 0 && len(e.Data) > r.p.maxEvent {
		return headgate.NewError(headgate.CodeTooLarge, "the payload has %d bytes; the broker takes %d", len(e.Data), r.p.maxEvent)
	}
	return nil
}

// identity checks id and source, or fills them in.
func (r *run) identity(e *headgate.Event, en *entry) *headgate.Error {
	if e.ID == "" {
		e.ID, en.minted = r.p.cfg.NewID(), true
	} else if err := text("id", e.ID, MaxID); err != nil {
		return err
	}
	if e.Source == "" {
		if r.source == "" {
			r.source = "/principals/" + url.PathEscape(r.s.Principal.Name)
		}
		e.Source = r.source
		return nil
	}
	if len(e.Source) > MaxSource || !validURIReference(e.Source) {
		return badEnvelope("source is not a URI reference of at most %d bytes", MaxSource)
	}
	return nil
}

// attributes checks the remaining attributes that have a field.
func attributes(e *headgate.Event) *headgate.Error {
	for _, a := range [...]struct {
		name, value string
		limit       int
	}{
		{"subject", e.Subject, MaxSubject},
		{"partitionkey", e.Key, MaxKey},
		{"datacontenttype", e.DataContentType, MaxMediaType},
		{"dataschema", e.DataSchema, MaxSchema},
		{"traceparent", e.TraceParent, MaxTrace},
		{"tracestate", e.TraceState, MaxTrace},
	} {
		if a.value == "" {
			continue
		}
		if err := text(a.name, a.value, a.limit); err != nil {
			return err
		}
	}
	return nil
}

// extensions checks the extension attributes. Those that only the perimeter
// sets are dropped and told of, should a door have let them through.
func (r *run) extensions(e *headgate.Event) *headgate.Error {
	if len(e.Extensions) == 0 {
		return nil
	}
	if slices.ContainsFunc(e.Extensions, reserved) {
		kept := make([]headgate.Extension, 0, len(e.Extensions))
		for _, x := range e.Extensions {
			if !reserved(x) {
				kept = append(kept, x)
			} else if tell := r.p.cfg.Observer.Ignored; tell != nil {
				tell(headgate.IgnoredInfo{Principal: r.principalName(), What: x.Name, Door: r.s.Door})
			}
		}
		e.Extensions = kept
	}
	if len(e.Extensions) > MaxExtensions {
		return badEnvelope("there are %d extension attributes; at most %d are allowed", len(e.Extensions), MaxExtensions)
	}
	total := 0
	for k, x := range e.Extensions {
		if !validName(x.Name) {
			return badEnvelope("extension attribute %d has a name that is not 1 to %d of a-z and 0-9", k+1, MaxExtensionName)
		}
		if hasField(x.Name) {
			return badEnvelope("%s is no extension attribute", x.Name)
		}
		if k > 0 && e.Extensions[k-1].Name >= x.Name {
			return badEnvelope("extension attribute %s comes twice or out of order", x.Name)
		}
		if err := text(x.Name, x.Value, MaxExtensionValue); err != nil {
			return err
		}
		total += len(x.Name) + len(x.Value)
	}
	if total > MaxExtensionsBytes {
		return headgate.NewError(headgate.CodeTooLarge, "the extension attributes have %d bytes together; at most %d are allowed", total, MaxExtensionsBytes)
	}
	return nil
}

// times bounds the expiry time by the type and refuses what expired already.
func (r *run) times(e *headgate.Event, longest time.Duration) *headgate.Error {
	if !writable(e.Time) {
		return badEnvelope("time is outside of the years 0001 to 9999")
	}
	if !writable(e.ExpiryTime) {
		return badEnvelope("expirytime is outside of the years 0001 to 9999")
	}
	if longest > 0 {
		if limit := r.now.Add(longest); e.ExpiryTime.IsZero() || e.ExpiryTime.After(limit) {
			e.ExpiryTime = limit
		}
	}
	if !e.ExpiryTime.IsZero() && !e.ExpiryTime.After(r.now) {
		return headgate.NewError(headgate.CodeExpired, "expirytime is %s, now is %s", e.ExpiryTime.UTC().Format(time.RFC3339), r.now.Format(time.RFC3339))
	}
	return nil
}

// writable reports whether RFC 3339 can express the time.
func writable(t time.Time) bool {
	if t.IsZero() {
		return true
	}
	y := t.UTC().Year()
	return y >= 1 && y <= 9999
}

// text checks a CloudEvents String (1.0.2, section 2.4): UTF-8 without control
// characters and non-characters, and not longer than the limit.
func text(name, value string, limit int) *headgate.Error {
	if len(value) > limit {
		return badEnvelope("%s has %d bytes; at most %d are allowed", name, len(value), limit)
	}
	for k, c := range value {
		switch {
		case c < 0x20 || c >= 0x7f && c <= 0x9f:
			return badEnvelope("%s holds a control character at byte %d", name, k)
		case c == utf8.RuneError && !strings.HasPrefix(value[k:], "\uFFFD"):
			return badEnvelope("%s is not UTF-8 at byte %d", name, k)
		case c&0xfffe == 0xfffe || c >= 0xfdd0 && c <= 0xfdef:
			return badEnvelope("%s holds a Unicode non-character at byte %d", name, k)
		}
	}
	return nil
}

// printable returns the value of an attribute that may not have been checked
// yet, or "" if it would not pass.
func printable(name, value string, limit int) string {
	if text(name, value, limit) != nil {
		return ""
	}
	return value
}

// validURIReference checks the characters of a URI reference (RFC 3986,
// section 2), which may be relative.
func validURIReference(s string) bool {
	for k := 0; k < len(s); k++ {
		c := s[k]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case strings.IndexByte("-._~:/?#[]@!$&'()*+,;=", c) >= 0:
		case c == '%' && k+2 < len(s) && isHex(s[k+1]) && isHex(s[k+2]):
			k += 2
		default:
			return false
		}
	}
	return s != ""
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

func validName(s string) bool {
	for k := range len(s) {
		if c := s[k]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && len(s) <= MaxExtensionName
}

// reserved reports whether only the perimeter sets the attribute.
func reserved(x headgate.Extension) bool {
	switch x.Name {
	case "rootid", "causationid", "ttl", "hop", "origin", "principal", "actor", "recordedtime", "fence":
		return true
	}
	return false
}

// hasField reports whether the attribute has a field of its own in the event.
func hasField(name string) bool {
	switch name {
	case "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data",
		"partitionkey", "traceparent", "tracestate", "expirytime":
		return true
	}
	return false
}
