package contract

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/headgate/headgate"
)

// FrameKind is a way to put the name of a schema before a payload.
type FrameKind uint8

// The frames.
const (
	FrameNone FrameKind = iota
	// FrameConfluent is a zero byte and the id of a schema in a registry, 4
	// bytes, most significant first.
	FrameConfluent
	// FrameSingleObject is Avro's single-object encoding: C3 01 and the
	// CRC-64-AVRO fingerprint of the schema, 8 bytes, least significant first.
	FrameSingleObject
)

// Frame is the head of a payload that names a schema.
type Frame struct {
	Kind        FrameKind
	ID          uint32 // of FrameConfluent
	Fingerprint uint64 // of FrameSingleObject
}

// Sizes of the frames in bytes.
const (
	confluentBytes    = 5
	singleObjectBytes = 10
)

var singleObjectMark = []byte{0xc3, 0x01}

// Judged is the verdict on a payload that may be framed.
type Judged struct {
	// Contract is the version that decided: the one that the frame named for
	// Avro, and else the one that was asked.
	Contract *Contract
	// Data is the payload without its frame; the payload itself if it has none
	// or is refused.
	Data    []byte
	Verdict *headgate.Verdict // nil: valid
	// Mended is the payload as lossless repairs made it; see Contract.Report.
	Mended []byte
}

// Judge checks a payload of a media type ([headgate.IsJSON], [headgate.IsAvro]),
// and takes its frame off. A frame must name a version of the contract's
// subject, which named returns, or nil for a name that is unknown or foreign.
//
// JSON begins with no zero byte, so that a Confluent frame before it is plain;
// whatever version it names, the payload is checked against c. An Avro datum
// may begin with any byte: what reads as a single-object frame with a known
// fingerprint is one; a Confluent frame with a known id is one if the rest
// passes the version that it names and the whole is no datum of c; if both
// read well, the payload is refused rather than guessed at. Avro is checked
// against the version that its frame names, since it can be read with no other.
//
// The error is what named returned, or has the code unsupported_media_type.
func (c *Contract) Judge(mediaType string, payload []byte, named func(Frame) (*Contract, error)) (Judged, error) {
	j := Judged{Contract: c, Data: payload}
	switch {
	case headgate.IsAvro(mediaType) && c.avro != nil:
		return c.judgeAvro(payload, named)
	case headgate.IsAvro(mediaType):
		return j, &headgate.Error{
			Code: headgate.CodeUnsupportedMediaType, Detail: fmt.Sprintf("the contract %s is a JSON Schema", c.ref), Fix: "Send JSON in UTF-8.",
		}
	case !headgate.IsJSON(mediaType):
		return j, headgate.NewError(headgate.CodeUnsupportedMediaType, "no contract engine reads this content type; send JSON in UTF-8, or Avro as %s where the contract is Avro", headgate.MediaTypeAvro)
	case len(payload) == 0 || payload[0] != 0:
		j.Verdict, j.Mended = c.Report(payload)
		return j, nil
	}
	f, ok := confluentFrame(payload)
	if !ok {
		j.Verdict = c.badFrame("the start of a frame of "+plural(confluentBytes, "byte", "bytes")+", cut short", "an id of 4 bytes behind the zero byte", "Send the whole frame, or the JSON alone.")
		return j, nil
	}
	version, err := named(f)
	switch {
	case err != nil:
		return j, err
	case version == nil:
		j.Verdict = c.unknownID(f)
		return j, nil
	}
	j.Data = payload[confluentBytes:]
	if j.Verdict, j.Mended = c.Report(j.Data); j.Verdict != nil {
		shift(j.Verdict, confluentBytes)
		if j.Mended == nil {
			j.Data = payload
		}
	}
	return j, nil
}

func (c *Contract) judgeAvro(payload []byte, named func(Frame) (*Contract, error)) (Judged, error) {
	j := Judged{Contract: c, Data: payload}
	if f, ok := singleObjectFrame(payload); ok {
		version, err := named(f)
		if err != nil {
			return j, err
		}
		if version != nil && version.avro != nil {
			return version.judgeRest(payload, singleObjectBytes), nil
		}
	}
	bare := c.avro.accept(payload, c.policy.Depth)
	f, framed := confluentFrame(payload)
	var version *Contract
	if framed {
		var err error
		if version, err = named(f); err != nil {
			return j, err
		}
	}
	switch {
	case version == nil || version.avro == nil:
	case !bare:
		return version.judgeRest(payload, confluentBytes), nil
	case version.avro.accept(payload[confluentBytes:], version.policy.Depth):
		j.Verdict = c.badFrame(fmt.Sprintf("bytes that are a value, and also a frame of id %d with a value", f.ID),
			"a payload that can be read in one way", "Send it in single-object encoding, which cannot be mistaken.")
		return j, nil
	}
	if bare {
		return j, nil
	}
	j.Verdict = c.unreadable(payload, f, framed)
	return j, nil
}

// judgeRest checks what comes behind a frame that named c.
func (c *Contract) judgeRest(payload []byte, head int) Judged {
	j := Judged{Contract: c, Data: payload[head:]}
	if j.Verdict = c.CheckAvro(j.Data); j.Verdict != nil {
		shift(j.Verdict, head)
		j.Data = payload
	}
	return j
}

// unreadable is the verdict on a payload that is no datum and has no frame
// that names a version; it guesses whether it was meant to have one.
func (c *Contract) unreadable(payload []byte, f Frame, framed bool) *headgate.Verdict {
	single, whole := singleObjectFrame(payload)
	switch {
	case whole:
		return c.badFrame(fmt.Sprintf("single-object encoding with the fingerprint %016x", single.Fingerprint),
			fmt.Sprintf("the fingerprint of a live version of %s; that of version %d is %016x", clip(c.ref.Subject, 200), c.ref.Version, c.avro.fingerprint),
			"Write the value with a schema that is registered for the type.")
	case len(payload) >= 2 && len(payload) < singleObjectBytes && bytes.HasPrefix(payload, singleObjectMark):
		return c.badFrame("the start of single-object encoding, cut short", "a fingerprint of 8 bytes behind C3 01", "Send the whole frame, or the value alone.")
	}
	v := c.CheckAvro(payload)
	// Ids count from 1, and serializers that were given none write -1.
	if framed && (f.ID > 0 && f.ID < 1<<24 || f.ID == math.MaxUint32) {
		v.Violations = append(c.unknownID(f).Violations, v.Violations...)
		if over := len(v.Violations) - headgate.MaxViolations; over > 0 {
			v.Violations, v.Truncated = v.Violations[:headgate.MaxViolations], v.Truncated+over
		}
	}
	return v
}

func (c *Contract) unknownID(f Frame) *headgate.Verdict {
	return c.badFrame(fmt.Sprintf("a frame with the schema id %d", f.ID), "the id of a live version of "+clip(c.ref.Subject, 200),
		"Write the value with a schema that is registered for the type, and put its id into the frame; or send the value without a frame.")
}

func (c *Contract) badFrame(got, want, fix string) *headgate.Verdict {
	return &headgate.Verdict{Contract: c.ref, Violations: []headgate.Violation{
		{Code: headgate.ViolationBadFrame, Line: 1, Column: 1, Got: got, Want: want, Fix: fix},
	}}
}

// shift moves the places of a verdict behind a frame.
func shift(v *headgate.Verdict, head int) {
	for i := range v.Violations {
		x := &v.Violations[i]
		x.Offset += head
		if x.Line == 1 {
			x.Column += head
		}
	}
}

func confluentFrame(payload []byte) (Frame, bool) {
	if len(payload) < confluentBytes || payload[0] != 0 {
		return Frame{}, false
	}
	return Frame{Kind: FrameConfluent, ID: binary.BigEndian.Uint32(payload[1:])}, true
}

func singleObjectFrame(payload []byte) (Frame, bool) {
	if len(payload) < singleObjectBytes || !bytes.HasPrefix(payload, singleObjectMark) {
		return Frame{}, false
	}
	return Frame{Kind: FrameSingleObject, Fingerprint: binary.LittleEndian.Uint64(payload[2:])}, true
}
