package contract

import (
	"bytes"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// mendText makes the text of a draft well-formed, as far as there are steps for
// it, and reports whether it is. Where the text is a JSON string that holds
// JSON, and guesses are allowed, it is decoded.
func (r *repairer) mendText(d *draft, level repairLevel) bool {
	lim := r.c.policy.limits()
	if !r.looked(d.text) && !d.cut(&d.Cuts, lim) {
		return false
	}
	if level == levelLossless {
		return true
	}
	raw := bytes.Trim(d.text, " \t\r\n")
	if len(raw) < 2 || raw[0] != '"' || r.examine(d.text).valid {
		return true
	}
	inner := jsontext.Unquote(nil, raw)
	if !startsContainer(inner) {
		return true
	}
	before := *d
	d.text, d.Decode = bytes.Clone(inner), true
	d.add(headgate.StepDecodeText, "", 0.95)
	if !d.cut(&d.InnerCuts, lim) {
		*d = before
	}
	return true
}

func startsContainer(text []byte) bool {
	text = bytes.TrimPrefix(text, byteOrderMark)
	text = bytes.TrimLeft(text, " \t\r\n`")
	text = bytes.TrimPrefix(text, []byte("json"))
	text = bytes.TrimLeft(text, " \t\r\n")
	return len(text) > 0 && (text[0] == '{' || text[0] == '[')
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// maxCuts bounds the commas that one proposal takes away.
const maxCuts = 64

// cut takes what is no JSON away from the text, and reports whether the rest is
// well-formed.
func (d *draft) cut(cuts *[]headgate.TextCut, lim jsontext.Limits) bool {
	if jsontext.Check(d.text, lim) == nil {
		return true
	}
	text := d.text
	from, to := 0, len(text)
	steps := d.Steps
	if bytes.HasPrefix(text, byteOrderMark) {
		from = len(byteOrderMark)
		d.add(headgate.StepStripBOM, "", 1)
	}
	if a, b, ok := insideFence(text[from:to]); ok {
		from, to = from+a, from+b
		d.add(headgate.StepStripFence, "", 1)
	}
	found := commaCuts(text[from:to], from)
	if len(found) > 0 && len(found) <= maxCuts {
		d.add(headgate.StepTrailingComma, "", 1)
	} else {
		found = nil
	}
	if from > 0 {
		found = append([]headgate.TextCut{{Offset: 0, Length: from}}, found...)
	}
	if to < len(text) {
		found = append(found, headgate.TextCut{Offset: to, Length: len(text) - to})
	}
	out := applyCuts(text, found)
	if len(found) == 0 || jsontext.Check(out, lim) != nil {
		d.Steps = steps
		return false
	}
	*cuts, d.text = found, out
	return true
}

// applyCuts returns the text without the cuts.
func applyCuts(text []byte, cuts []headgate.TextCut) []byte {
	out := make([]byte, 0, len(text))
	at := 0
	for _, c := range cuts {
		out = append(out, text[at:c.Offset]...)
		at = c.Offset + c.Length
	}
	return append(out, text[at:]...)
}

// insideFence finds what stands in a Markdown fence of three backquotes that
// has nothing but white space around it.
func insideFence(text []byte) (from, to int, ok bool) {
	const fence = "```"
	trimmed := bytes.Trim(text, " \t\r\n")
	start := bytes.Index(text, trimmed)
	if len(trimmed) < 2*len(fence) || !bytes.HasPrefix(trimmed, []byte(fence)) || !bytes.HasSuffix(trimmed, []byte(fence)) {
		return 0, 0, false
	}
	info := bytes.IndexByte(trimmed, '\n')
	if info < 0 {
		info = len(fence) - 1 // all on one line
	} else if !plainInfo(string(trimmed[len(fence):info])) {
		return 0, 0, false
	}
	from, to = start+info+1, start+len(trimmed)-len(fence)
	if from > to || bytes.Contains(text[from:to], []byte(fence)) {
		return 0, 0, false
	}
	return from, to, true
}

// plainInfo reports whether what stands beside the marks of a fence says no more
// than that JSON is inside; anything else would be lost with the fence.
func plainInfo(info string) bool {
	switch strings.ToLower(strings.Trim(info, " \t\r")) {
	case "", "json", "jsonc", "json5":
		return true
	}
	return false
}

// commaCuts finds the commas outside of strings that a closing bracket follows
// and an opening one does not stand before.
func commaCuts(text []byte, shift int) []headgate.TextCut {
	var out []headgate.TextCut
	comma, opened := -1, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case ' ', '\t', '\r', '\n':
			continue
		case ',':
			comma = -1
			if !opened {
				comma = i
			}
		case '}', ']':
			if comma >= 0 {
				out = append(out, headgate.TextCut{Offset: shift + comma, Length: 1})
			}
			comma = -1
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			comma = -1
		default:
			comma = -1
		}
		opened = i < len(text) && (text[i] == '{' || text[i] == '[')
	}
	return out
}
