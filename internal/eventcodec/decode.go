package eventcodec

import (
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"

	"github.com/headgate/headgate"
)

// maxZone is the widest offset from UTC that a decoded time may have, in
// seconds: RFC 3339 writes at most 23:59.
const maxZone = 24 * 60 * 60

// Decode reads one event from the front of b and returns what follows it. The
// event shares memory with b, which must not be modified afterwards. Errors
// wrap [ErrMalformed].
func Decode(b []byte) (e *headgate.Event, rest []byte, err error) {
	e = new(headgate.Event)
	rest, err = DecodeInto(e, b)
	if err != nil {
		return nil, nil, err
	}
	return e, rest, nil
}

// DecodeInto is [Decode] into memory of the caller, so that many events can
// share one allocation. The event's earlier content is overwritten; after an
// error it is undefined.
func DecodeInto(e *headgate.Event, b []byte) (rest []byte, err error) {
	body, rest, err := split(b)
	if err != nil {
		return nil, err
	}
	r := reader{b: body}
	r.event(e)
	if r.fault != "" {
		return nil, fmt.Errorf("%w: %s", ErrMalformed, r.fault)
	}
	if len(r.b) != 0 {
		return nil, fmt.Errorf("%w: %d bytes left over", ErrMalformed, len(r.b))
	}
	return rest, nil
}

// Size returns how many bytes the record at the front of b takes, without
// looking into its body. Errors wrap [ErrMalformed].
func Size(b []byte) (int, error) {
	_, rest, err := split(b)
	return len(b) - len(rest), err
}

func split(b []byte) (body, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, fmt.Errorf("%w: empty", ErrMalformed)
	}
	if b[0] != Version {
		return nil, nil, fmt.Errorf("%w: version %d, want %d", ErrMalformed, b[0], Version)
	}
	size, n := binary.Uvarint(b[1:])
	if n <= 0 || size > uint64(len(b)-1-n) {
		return nil, nil, fmt.Errorf("%w: cut off", ErrMalformed)
	}
	b = b[1+n:]
	return b[:size:size], b[size:], nil
}

// reader reads fields from the front of b. The first fault sticks, and every
// later read answers a zero value.
type reader struct {
	b     []byte
	fault string
}

func (r *reader) event(e *headgate.Event) {
	m := r.uvarint()
	if m&^uint64(knownBits) != 0 {
		r.fail("unknown field")
		return
	}
	has := func(bit uint64) bool { return m&bit != 0 }
	*e = headgate.Event{}
	h := &e.Header
	e.ID = r.text(has(hasID))
	e.Source = r.text(has(hasSource))
	e.Type = r.text(has(hasType))
	e.Subject = r.text(has(hasSubject))
	e.Time = r.time(has(hasTime))
	e.DataContentType = r.text(has(hasContentType))
	e.DataSchema = r.text(has(hasDataSchema))
	e.Key = r.text(has(hasKey))
	e.TraceParent = r.text(has(hasTraceParent))
	e.TraceState = r.text(has(hasTraceState))
	e.ExpiryTime = r.time(has(hasExpiryTime))
	if has(hasExtensions) {
		e.Extensions = r.extensions()
	}
	if has(hasData) {
		e.Data = r.bytes()
	}
	h.RootID = r.text(has(hasRootID))
	if has(hasCauses) {
		h.Causes = r.causes()
	}
	h.TTL = r.int(has(hasTTL))
	h.Hop = r.int(has(hasHop))
	h.Origin = headgate.Origin(r.text(has(hasOrigin)))
	h.Principal = r.text(has(hasPrincipal))
	h.Actor = headgate.Kind(r.text(has(hasActor)))
	h.RecordedTime = r.time(has(hasRecordedTime))
	h.Fence = r.text(has(hasFence))
	if has(hasLineage) {
		if h.Lineage = r.bytes(); len(h.Lineage) == 0 {
			r.fail("empty lineage")
		}
	}
}

func (r *reader) fail(why string) {
	if r.fault == "" {
		r.fault = why
	}
	r.b = nil
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("cut off in a number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail("cut off in a number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int(present bool) int {
	if !present {
		return 0
	}
	v := r.varint()
	if int64(int(v)) != v {
		r.fail("number out of range")
	}
	return int(v)
}

// bytes returns a non-nil slice whose capacity ends with it, so that an append
// by a careless reader cannot touch its neighbour.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fail("cut off in a text")
		return []byte{}
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	if b == nil {
		return []byte{}
	}
	return b
}

// text shares memory with the input: the contract of [Decode] forbids changing
// it, which is what a string needs.
func (r *reader) text(present bool) string {
	if !present {
		return ""
	}
	b := r.bytes()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

func (r *reader) time(present bool) time.Time {
	if !present {
		return time.Time{}
	}
	sec, nsec, zone := r.varint(), r.uvarint(), r.varint()
	if nsec >= uint64(time.Second) || zone <= -maxZone || zone >= maxZone {
		r.fail("time out of range")
		return time.Time{}
	}
	t := time.Unix(sec, int64(nsec))
	if zone == 0 {
		return t.UTC()
	}
	return t.In(time.FixedZone("", int(zone)))
}

func (r *reader) extensions() []headgate.Extension {
	n := r.uvarint()
	// Each takes three bytes at least: a count beyond that is a lie, and
	// refusing it bounds the allocation.
	if n == 0 || n > uint64(len(r.b))/3 {
		r.fail("extension count out of range")
		return nil
	}
	xs := make([]headgate.Extension, n)
	for i := range xs {
		if len(r.b) == 0 {
			r.fail("cut off in an extension")
			return nil
		}
		kind := headgate.ExtensionKind(r.b[0])
		r.b = r.b[1:]
		if kind > headgate.ExtensionInteger {
			r.fail("unknown kind of extension")
			return nil
		}
		xs[i] = headgate.Extension{Kind: kind, Name: r.text(true), Value: r.text(true)}
	}
	return xs
}

func (r *reader) causes() []string {
	n := r.uvarint()
	if n == 0 || n > uint64(len(r.b)) {
		r.fail("cause count out of range")
		return nil
	}
	ids := make([]string, n)
	for i := range ids {
		ids[i] = r.text(true)
	}
	return ids
}
