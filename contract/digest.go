package contract

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// Digest returns the identity of a contract: "sha256:" and the hexadecimal
// SHA-256 over engine version, policy and the canonical form of the schema.
// Two schemas that differ in white space, in the order of members or in the
// spelling of strings and numbers have one digest.
func Digest(schema []byte, pol Policy) (string, error) {
	canon, err := Canonical(schema)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	h.Write([]byte("headgate contract\nengine " + EngineVersion + "\npolicy "))
	h.Write(MarshalPolicy(pol))
	h.Write([]byte("\nschema "))
	h.Write(canon)
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// Canonical writes a JSON text in one form: RFC 8785 (JCS), except that a
// number which a double cannot hold exactly keeps its exact value. Under RFC
// 8785 two schemas with different bounds could have one digest.
func Canonical(text []byte) ([]byte, error) {
	if fault := jsontext.Check(text, jsontext.Limits{Depth: maxDepth}); fault != nil {
		return nil, headgate.NewError(headgate.CodeSyntax, "line %d, column %d: %s", fault.Line, fault.Column, fault.Detail)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, headgate.NewError(headgate.CodeSyntax, "%v", err)
	}
	return appendCanonical(make([]byte, 0, len(text)), v), nil
}

func appendCanonical(dst []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		names := sortedKeys(v)
		slices.SortFunc(names, func(a, b string) int { return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b))) })
		dst = append(dst, '{')
		for i, name := range names {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(jsontext.AppendString(dst, name), ':')
			dst = appendCanonical(dst, v[name])
		}
		return append(dst, '}')
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendCanonical(dst, e)
		}
		return append(dst, ']')
	case string:
		return jsontext.AppendString(dst, v)
	case json.Number:
		return appendCanonicalNumber(dst, []byte(v))
	case bool:
		return strconv.AppendBool(dst, v)
	default:
		return append(dst, "null"...)
	}
}

// appendCanonicalNumber writes a number as ECMAScript does, when the double
// with that text is the number itself; otherwise in exact normal form.
func appendCanonicalNumber(dst, raw []byte) []byte {
	exact := parseDecimal(raw)
	f, err := strconv.ParseFloat(string(raw), 64)
	if err == nil {
		text := ecmaNumber(f)
		if string(parseDecimal([]byte(text)).appendKey(nil)) == string(exact.appendKey(nil)) {
			return append(dst, text...)
		}
	}
	return exact.appendKey(dst)
}

// ecmaNumber writes a double as Number::toString of ECMA-262 does.
func ecmaNumber(f float64) string {
	if f == 0 {
		return "0"
	}
	form := byte('f')
	if a := max(f, -f); a < 1e-6 || a >= 1e21 {
		form = 'e'
	}
	s := strconv.FormatFloat(f, form, -1, 64)
	if form == 'e' { // e-07 is written e-7
		mantissa, exp, _ := strings.Cut(s, "e")
		sign := exp[:1]
		s = mantissa + "e" + sign + strings.TrimLeft(exp[1:], "0")
	}
	return s
}

// VerdictDigest returns the identity of a verdict: "sha256:" and the
// hexadecimal SHA-256 over its JSON form. It covers the contract's digest, and
// so schema, policy and engine, and the report. The same contract and bytes
// give the same one, on every node and on every day; proposals are part of it.
func VerdictDigest(v *headgate.Verdict) string {
	text, err := json.Marshal(v)
	if err != nil { // no verdict does this
		return ""
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}
