package eventcodec

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/headgate/headgate"
)

// Version is the version of the record form that Append writes.
const Version = 1

// ErrMalformed is wrapped by every error of this package.
var ErrMalformed = errors.New("eventcodec: malformed record")

// The bits of the mask, one for each field, in the order of the body. A new
// field takes the next free bit: an old reader then reports the record as
// malformed instead of dropping what it does not know.
const (
	hasID = 1 << iota
	hasSource
	hasType
	hasSubject
	hasTime
	hasContentType
	hasDataSchema
	hasKey
	hasTraceParent
	hasTraceState
	hasExpiryTime
	hasExtensions
	hasData
	hasRootID
	hasCauses
	hasTTL
	hasHop
	hasOrigin
	hasPrincipal
	hasActor
	hasRecordedTime
	hasFence
	hasLineage
	knownBits = 1<<iota - 1
)

// Append appends the event in its binary form to dst and returns the extended
// slice. The event is not kept.
func Append(dst []byte, e *headgate.Event) []byte {
	dst = append(dst, Version)
	start := len(dst)
	// Most bodies need two or three bytes of length: reserve three, and move
	// the body only when the guess was wrong.
	const guess = 3
	dst = append(dst, 0, 0, 0)
	dst = appendBody(dst, e)
	size := uint64(len(dst) - start - guess)
	var prefix [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(prefix[:], size)
	if n != guess {
		for range n - guess {
			dst = append(dst, 0)
		}
		copy(dst[start+n:], dst[start+guess:start+guess+int(size)])
		dst = dst[:start+n+int(size)]
	}
	copy(dst[start:], prefix[:n])
	return dst
}

func appendBody(dst []byte, e *headgate.Event) []byte {
	h := &e.Header
	dst = binary.AppendUvarint(dst, mask(e))
	dst = appendText(dst, e.ID)
	dst = appendText(dst, e.Source)
	dst = appendText(dst, e.Type)
	dst = appendText(dst, e.Subject)
	dst = appendTime(dst, e.Time)
	dst = appendText(dst, e.DataContentType)
	dst = appendText(dst, e.DataSchema)
	dst = appendText(dst, e.Key)
	dst = appendText(dst, e.TraceParent)
	dst = appendText(dst, e.TraceState)
	dst = appendTime(dst, e.ExpiryTime)
	if len(e.Extensions) > 0 {
		dst = binary.AppendUvarint(dst, uint64(len(e.Extensions)))
		for _, x := range e.Extensions {
			dst = append(dst, byte(x.Kind))
			dst = appendString(dst, x.Name)
			dst = appendString(dst, x.Value)
		}
	}
	if e.Data != nil {
		dst = binary.AppendUvarint(dst, uint64(len(e.Data)))
		dst = append(dst, e.Data...)
	}
	dst = appendText(dst, h.RootID)
	if len(h.Causes) > 0 {
		dst = binary.AppendUvarint(dst, uint64(len(h.Causes)))
		for _, c := range h.Causes {
			dst = appendString(dst, c)
		}
	}
	dst = appendInt(dst, h.TTL)
	dst = appendInt(dst, h.Hop)
	dst = appendText(dst, string(h.Origin))
	dst = appendText(dst, h.Principal)
	dst = appendText(dst, string(h.Actor))
	dst = appendTime(dst, h.RecordedTime)
	dst = appendText(dst, h.Fence)
	if len(h.Lineage) > 0 {
		dst = binary.AppendUvarint(dst, uint64(len(h.Lineage)))
		dst = append(dst, h.Lineage...)
	}
	return dst
}

func mask(e *headgate.Event) uint64 {
	h := &e.Header
	var m uint64
	set := func(bit uint64, present bool) {
		if present {
			m |= bit
		}
	}
	set(hasID, e.ID != "")
	set(hasSource, e.Source != "")
	set(hasType, e.Type != "")
	set(hasSubject, e.Subject != "")
	set(hasTime, !e.Time.IsZero())
	set(hasContentType, e.DataContentType != "")
	set(hasDataSchema, e.DataSchema != "")
	set(hasKey, e.Key != "")
	set(hasTraceParent, e.TraceParent != "")
	set(hasTraceState, e.TraceState != "")
	set(hasExpiryTime, !e.ExpiryTime.IsZero())
	set(hasExtensions, len(e.Extensions) > 0)
	set(hasData, e.Data != nil)
	set(hasRootID, h.RootID != "")
	set(hasCauses, len(h.Causes) > 0)
	set(hasTTL, h.TTL != 0)
	set(hasHop, h.Hop != 0)
	set(hasOrigin, h.Origin != "")
	set(hasPrincipal, h.Principal != "")
	set(hasActor, h.Actor != "")
	set(hasRecordedTime, !h.RecordedTime.IsZero())
	set(hasFence, h.Fence != "")
	set(hasLineage, len(h.Lineage) > 0)
	return m
}

func appendText(dst []byte, s string) []byte {
	if s == "" {
		return dst
	}
	return appendString(dst, s)
}

func appendString(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

func appendInt(dst []byte, n int) []byte {
	if n == 0 {
		return dst
	}
	return binary.AppendVarint(dst, int64(n))
}

func appendTime(dst []byte, t time.Time) []byte {
	if t.IsZero() {
		return dst
	}
	_, zone := t.Zone()
	dst = binary.AppendVarint(dst, t.Unix())
	dst = binary.AppendUvarint(dst, uint64(t.Nanosecond()))
	return binary.AppendVarint(dst, int64(zone))
}
