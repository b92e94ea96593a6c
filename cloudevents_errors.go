package headgate

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/jsontext"
)

func badAttr(attribute, format string, args ...any) *Error {
	return &Error{Code: CodeBadEnvelope, Attribute: clip(attribute), Detail: fmt.Sprintf(format, args...)}
}

func badName(name string) *Error {
	if attrOf(name) != attrCount {
		return badAttr(name, "%s cannot be set as an extension.", quoteName(name))
	}
	return badAttr(name, "%s is not an attribute name: use 1 to %d of a–z and 0–9.", quoteName(name), MaxExtensionName)
}

func missingType() *Error { return badAttr("type", "The attribute type is missing.") }

func tooManyExtensions() *Error {
	return &Error{Code: CodeTooLarge, Detail: fmt.Sprintf("The event has more than %d extension attributes.", MaxExtensions)}
}

func tooLongEnvelope() *Error {
	return &Error{Code: CodeTooLarge, Detail: fmt.Sprintf("The attributes of the event have more than %d bytes together.", MaxEnvelopeLength)}
}

func tooLongEvent(limit int) *Error {
	return &Error{Code: CodeTooLarge, Detail: fmt.Sprintf("The event has more than %d bytes.", limit)}
}

// syntaxError turns a fault of the JSON text into an error.
func syntaxError(f *jsontext.Fault) *Error {
	detail := f.Detail
	if f.At != "" {
		detail = "At " + quote(f.At) + ": " + detail
	}
	return &Error{Code: CodeSyntax, Detail: detail, Where: &Place{Offset: f.Offset, Line: f.Line, Column: f.Column}}
}

// at adds the place of an offset in the text that was sent.
func (e *Error) at(text []byte, offset int) *Error {
	if e == nil {
		return nil
	}
	line, column := jsontext.Place(text, offset)
	e.Where = &Place{Offset: offset, Line: line, Column: column}
	return e
}

// quote makes client text fit to be shown: clipped, ASCII, on one line.
func quote(s string) string {
	c := clip(s)
	q := strconv.QuoteToASCII(c)
	if len(c) < len(s) {
		q += "…"
	}
	return q
}

// quoteName is quote without the quotes where a name needs none.
func quoteName(s string) string {
	if validName(s) {
		return s
	}
	return quote(s)
}

func clip(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	cut := maxQuoted
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}
