package contract

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// replace sets a value, unless it may not be shown: a patch would show it.
func (s *stepper) replace(v int32, step headgate.RepairStep, confidence float64, text []byte) bool {
	if s.e.hiddenWithin(v) || s.e.hiddenPath(v) >= 0 {
		return false
	}
	return s.take(s.e.t.replace(v, step, confidence, text))
}

// wrongType turns a value into one of the wanted types, where there is one way
// to do so.
func (s *stepper) wrongType(f *finding) bool {
	want := f.n.types
	if f.types != 0 {
		want = f.types
	}
	v := &s.e.t.values[f.val]
	if v.kind == kindString {
		text := s.e.t.str(f.val)
		if want&(typeNumber|typeInteger) != 0 && isPlainInteger(text) && len(text) <= DefaultNumberLength {
			return s.replace(f.val, headgate.StepIntegerString, 1, bytes.Clone(text))
		}
	}
	if s.level == levelLossless {
		return false
	}
	switch {
	case v.kind == kindString && s.fromString(f.val, want):
		return true
	case v.kind == kindNull && v.nameEnd > 0:
		return s.drop(f.val, headgate.StepDropNull, 0.9)
	case v.kind == kindNumber && want&typeBoolean != 0 && isBit(s.e.t.raw(f.val)):
		return s.replace(f.val, headgate.StepTruthWord, 0.6, truthText(s.e.t.raw(f.val)[0] == '1'))
	case (v.kind == kindNumber || v.kind == kindBoolean) && want&typeString != 0:
		return s.replace(f.val, headgate.StepStringNumber, 0.9, jsontext.AppendString(nil, s.e.t.raw(f.val)))
	case v.kind == kindArray && v.count == 1 && want&typeArray == 0:
		return s.replace(f.val, headgate.StepUnwrapArray, 0.6, bytes.Clone(s.e.t.raw(f.val+1)))
	case v.kind != kindArray && v.kind != kindNull && want&typeArray != 0:
		wrapped := append(append([]byte{'['}, s.e.t.raw(f.val)...), ']')
		return s.replace(f.val, headgate.StepWrapArray, 0.8, wrapped)
	}
	return false
}

// fromString reads what a string says as another type.
func (s *stepper) fromString(v int32, want typeSet) bool {
	raw := s.e.t.str(v)
	if want&(typeArray|typeObject) != 0 && len(raw) <= maxPatchValue && startsContainer(raw) {
		if jsontext.Check(raw, jsontext.Limits{}) == nil {
			return s.replace(v, headgate.StepDecodeText, 0.95, bytes.Clone(raw))
		}
	}
	text := strings.TrimSpace(string(raw))
	if len(text) > DefaultNumberLength {
		return false
	}
	if want&(typeNumber|typeInteger) != 0 && isNumberText(text) {
		return s.replace(v, headgate.StepNumberString, 0.9, []byte(text))
	}
	if want&typeBoolean != 0 {
		switch strings.ToLower(text) {
		case "true":
			return s.replace(v, headgate.StepTruthWord, 0.95, truthText(true))
		case "false":
			return s.replace(v, headgate.StepTruthWord, 0.95, truthText(false))
		case "yes", "y", "on", "1":
			return s.replace(v, headgate.StepTruthWord, 0.7, truthText(true))
		case "no", "n", "off", "0":
			return s.replace(v, headgate.StepTruthWord, 0.7, truthText(false))
		}
	}
	if want&typeNull != 0 {
		switch strings.ToLower(text) {
		case "null", "none", "nil":
			return s.replace(v, headgate.StepNullWord, 0.8, []byte("null"))
		case "":
			return s.replace(v, headgate.StepNullWord, 0.5, []byte("null"))
		}
	}
	return false
}

func truthText(b bool) []byte { return strconv.AppendBool(nil, b) }

func isBit(raw []byte) bool { return len(raw) == 1 && (raw[0] == '0' || raw[0] == '1') }

// isPlainInteger reports whether a text is the exact decimal form of an
// integer, which is the only one that it has.
func isPlainInteger(text []byte) bool {
	digits := bytes.TrimPrefix(text, []byte("-"))
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' || len(digits) < len(text) && digits[0] == '0' {
		return false
	}
	_, ok := allDigits(string(digits))
	return ok
}

// isNumberText reports whether a text is a JSON number and nothing else.
func isNumberText(text string) bool {
	if text == "" || text[0] != '-' && (text[0] < '0' || text[0] > '9') || strings.TrimSpace(text) != text {
		return false
	}
	return jsontext.Check([]byte(text), jsontext.Limits{}) == nil
}

// notInEnum sets a value to the nearest that is allowed.
func (s *stepper) notInEnum(f *finding) bool {
	if s.level == levelLossless {
		return false
	}
	list, v := f.wanted(), &s.e.t.values[f.val]
	if f.list == nil && v.kind < kindArray {
		got := string(s.e.t.raw(f.val))
		if v.kind == kindString {
			got = string(s.e.t.str(f.val))
		}
		if text := list.writtenAs(got, v.kind == kindString); text != nil {
			return s.replace(f.val, headgate.StepNearestValue, 0.9, text)
		}
	}
	if v.kind != kindString {
		return false
	}
	got := string(s.e.t.str(f.val))
	same := list.folded(strings.TrimSpace(got))
	if len(same) == 1 {
		return s.replace(f.val, headgate.StepNearestValue, 0.95, jsontext.AppendString(nil, same[0]))
	}
	s.e.looked += len(list.names)
	near := list.near(got, &s.e.distances)
	if len(same) == 0 && len(near) == 1 && s.e.distances > 0 {
		return s.replace(f.val, headgate.StepNearestValue, 0.6, jsontext.AppendString(nil, near[0]))
	}
	return false
}

// badFormat writes a string in the form that its format wants.
func (s *stepper) badFormat(f *finding) bool {
	text := string(s.e.t.str(f.val))
	if len(text) > maxPatchValue {
		return false
	}
	fits := func(out string) bool { return out != text && f.n.format.check(out) }
	if f.n.format.name == "date-time" && len(text) > 10 && text[10] == ' ' {
		if out := text[:10] + "T" + text[11:]; fits(out) {
			return s.replace(f.val, headgate.StepTimeSeparator, 1, jsontext.AppendString(nil, out))
		}
	}
	if s.level == levelLossless {
		return false
	}
	switch f.n.format.name {
	case "uuid":
		if out := uuidForm(text); fits(out) {
			return s.replace(f.val, headgate.StepUUIDForm, 0.95, jsontext.AppendString(nil, out))
		}
	case "date":
		if out := strings.NewReplacer("/", "-", ".", "-").Replace(strings.TrimSpace(text)); fits(out) {
			return s.replace(f.val, headgate.StepDateForm, 0.8, jsontext.AppendString(nil, out))
		}
	}
	return s.trimmed(f.val)
}

// uuidForm writes the 32 digits of a UUID as 8-4-4-4-12.
func uuidForm(text string) string {
	s := strings.ToLower(strings.TrimSpace(text))
	s = strings.TrimPrefix(s, "urn:uuid:")
	if in, ok := strings.CutPrefix(s, "{"); ok {
		s, ok = strings.CutSuffix(in, "}")
		if !ok {
			return text
		}
	}
	if strings.Contains(s, "-") {
		return s
	}
	if len(s) != 32 {
		return text
	}
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// trimmed takes white space away from both ends of a string.
func (s *stepper) trimmed(v int32) bool {
	if s.level == levelLossless || s.e.t.values[v].kind != kindString {
		return false
	}
	text := string(s.e.t.str(v))
	out := strings.TrimSpace(text)
	return out != text && s.replace(v, headgate.StepTrim, 0.8, jsontext.AppendString(nil, out))
}
