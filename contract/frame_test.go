package contract

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// TestFrames: what is taken for a frame, and what is not.
func TestFrames(t *testing.T) {
	avroText := func(version int, text string) *Contract {
		return compileAvroText(t, text).WithVersion(version)
	}
	one := avroText(1, `{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}`)
	two := avroText(2, `{"type":"record","name":"R","fields":[{"name":"a","type":"string"},{"name":"b","type":"int","default":0}]}`)
	ints := avroText(1, `{"type":"record","name":"I","fields":[{"name":"a","type":"int"},{"name":"f","type":{"type":"fixed","name":"F","size":4}},{"name":"s","type":"string"}]}`)
	text, _, err := Compile("s", 2, []byte(`{"type":"object","required":["a"]}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	named := func(f Frame) (*Contract, error) {
		switch {
		case f.Kind == FrameConfluent && f.ID == 1, f.Kind == FrameSingleObject && f.Fingerprint == one.AvroFingerprint():
			return one, nil
		case f.Kind == FrameConfluent && f.ID == 2, f.Kind == FrameSingleObject && f.Fingerprint == two.AvroFingerprint():
			return two, nil
		case f.Kind == FrameConfluent && f.ID == 3:
			return ints, nil
		case f.Kind == FrameConfluent && f.ID == 4:
			return text, nil
		case f.Kind == FrameConfluent && f.ID == 66:
			return nil, errors.New("the store is away")
		}
		return nil, nil
	}
	id := func(id uint32, rest string) string {
		return "\x00" + string(binary.BigEndian.AppendUint32(nil, id)) + rest
	}
	single := func(print uint64, rest string) string {
		return "\xc3\x01" + string(binary.LittleEndian.AppendUint64(nil, print)) + rest
	}
	const json, bin = "application/json", "application/avro"
	for name, c := range map[string]struct {
		asked   *Contract
		media   string
		payload string
		decided *Contract
		data    string
		code    string
		offset  int
	}{
		"bare":                         {two, bin, "\x02x\x04", two, "\x02x\x04", "", 0},
		"bare of an older version":     {two, bin, "\x02x", two, "\x02x", "syntax", 2},
		"confluent":                    {two, bin, id(2, "\x02x\x04"), two, "\x02x\x04", "", 0},
		"confluent, older version":     {two, bin, id(1, "\x02x"), one, "\x02x", "", 0},
		"confluent, of that version":   {two, bin, id(1, "\x02x\x04"), one, id(1, "\x02x\x04"), "syntax", 7},
		"confluent, unknown":           {two, bin, id(9, "\x02x\x04"), two, id(9, "\x02x\x04"), "bad_frame", 0},
		"confluent, cut short":         {two, bin, "\x00\x00\x00", two, "\x00\x00\x00", "syntax", 2},
		"confluent, an id of -1":       {two, bin, id(1<<32-1, "\x02x\x04"), two, id(1<<32-1, "\x02x\x04"), "bad_frame", 0},
		"confluent, of a JSON Schema":  {two, bin, id(4, "\x02x\x04"), two, id(4, "\x02x\x04"), "bad_frame", 0},
		"single object":                {two, bin, single(two.AvroFingerprint(), "\x02x\x04"), two, "\x02x\x04", "", 0},
		"single object, older":         {two, bin, single(one.AvroFingerprint(), "\x02x"), one, "\x02x", "", 0},
		"single object, bad":           {two, bin, single(one.AvroFingerprint(), "\x02\xff"), one, single(one.AvroFingerprint(), "\x02\xff"), "bad_utf8", 10},
		"single object, unknown":       {two, bin, single(7, "\x02x\x04"), two, single(7, "\x02x\x04"), "bad_frame", 0},
		"single object, cut short":     {two, bin, "\xc3\x01abc", two, "\xc3\x01abc", "bad_frame", 0},
		"begins like a frame":          {ints, bin, "\x00\x00\x00\x00\x09\x02x", ints, "\x00\x00\x00\x00\x09\x02x", "", 0},
		"a frame and a value":          {ints, bin, id(1, "\x02x"), ints, id(1, "\x02x"), "bad_frame", 0},
		"a frame, and no value":        {ints, bin, id(3, "\x00abcd\x02x"), ints, "\x00abcd\x02x", "", 0},
		"JSON for Avro":                {two, json, `{"a":"x"}`, two, `{"a":"x"}`, "", 0},
		"framed JSON for Avro":         {two, json, id(1, `{"a":"x"}`), two, `{"a":"x"}`, "", 0},
		"JSON":                         {text, json, `{"a":1}`, text, `{"a":1}`, "", 0},
		"framed JSON":                  {text, json, id(4, `{"a":1}`), text, `{"a":1}`, "", 0},
		"framed JSON, bad":             {text, json, id(4, `{"b":1}`), text, id(4, `{"b":1}`), "missing_required", 5},
		"framed JSON, unknown":         {text, json, id(9, `{"a":1}`), text, id(9, `{"a":1}`), "bad_frame", 0},
		"framed JSON, cut short":       {text, json, "\x00\x00", text, "\x00\x00", "bad_frame", 0},
		"framed JSON without the JSON": {text, json, id(4, ""), text, id(4, ""), "syntax", 5},
	} {
		j, err := c.asked.Judge(c.media, []byte(c.payload), named)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		code, offset := "", 0
		if j.Verdict != nil {
			code, offset = string(j.Verdict.Violations[0].Code), j.Verdict.Violations[0].Offset
			if j.Verdict.Contract != j.Contract.Ref() {
				t.Errorf("%s: the verdict is of %v, not of %v", name, j.Verdict.Contract, j.Contract.Ref())
			}
		}
		if j.Contract.Ref() != c.decided.Ref() || string(j.Data) != c.data || code != c.code || offset != c.offset {
			t.Errorf("%s: by %v, data %q, %q at %d; want by %v, data %q, %q at %d", name,
				j.Contract.Ref(), j.Data, code, offset, c.decided.Ref(), c.data, c.code, c.offset)
		}
	}
	for _, c := range []struct {
		asked *Contract
		media string
	}{{text, bin}, {text, "text/plain"}, {two, "application/octet-stream"}} {
		if _, err := c.asked.Judge(c.media, nil, named); headgate.CodeOf(err) != headgate.CodeUnsupportedMediaType {
			t.Errorf("%s for %s: %v", c.media, c.asked.Type(), err)
		}
	}
	for _, media := range []string{json, bin} {
		if _, err := two.Judge(media, []byte(id(66, "\x02")), named); err == nil || err.Error() != "the store is away" {
			t.Errorf("%s: %v", media, err)
		}
	}
}

// TestUnknownFrameKeepsTheOtherReading: a value that only looks framed has the
// faults of the value in its report, too, within the bound.
func TestUnknownFrameKeepsTheOtherReading(t *testing.T) {
	c := compileAvroText(t, `{"type":"record","name":"R","fields":[{"name":"z","type":{"type":"fixed","name":"Z","size":5}},{"name":"b","type":{"type":"array","items":"boolean"}}]}`)
	payload := "\x00\x00\x00\x00\x09" + "\x80\x01" + strings.Repeat("\x02", 64) + "\x00"
	j, err := c.Judge("avro/binary", []byte(payload), func(Frame) (*Contract, error) { return nil, nil })
	if err != nil || j.Verdict == nil {
		t.Fatal(j, err)
	}
	var codes []string
	for _, v := range j.Verdict.Violations {
		codes = append(codes, string(v.Code))
	}
	if len(codes) != headgate.MaxViolations || j.Verdict.Truncated != 33 || codes[0] != "bad_frame" || slices.Contains(codes[1:], "bad_frame") {
		t.Errorf("%v, %d more", codes, j.Verdict.Truncated)
	}
}
