package registry

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate"
)

// DefaultContext is the name of the context of subjects that name none.
const DefaultContext = "."

// maxSubject bounds the bytes of a subject, its context included.
const maxSubject = 512

// name is a subject with its context.
type name struct {
	context string // starts with a dot
	plain   string // without the context
}

// parseName reads SUBJECT or :.CONTEXT:SUBJECT. The subject may be empty,
// which means the context itself.
func parseName(s string) (name, error) {
	if len(s) > maxSubject || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return name{}, fault(FaultInvalidSubject, "The specified subject '%s' is not a valid subject: want at most %d bytes of printable UTF-8.", show(s), maxSubject)
	}
	if !strings.HasPrefix(s, ":.") {
		return name{DefaultContext, s}, nil
	}
	context, plain, ok := strings.Cut(s[1:], ":")
	if !ok {
		return name{}, fault(FaultInvalidSubject, "The specified subject '%s' is not a valid subject: the context has no end.", show(s))
	}
	return name{context, plain}, nil
}

// parseSubject is [parseName] for a subject that must not be empty.
func parseSubject(s string) (name, error) {
	n, err := parseName(s)
	if err == nil && (n.plain == "" || n.plain == "__GLOBAL" || n.plain == "__EMPTY") {
		err = fault(FaultInvalidSubject, "The specified subject '%s' is not a valid subject.", show(s))
	}
	return n, err
}

// String returns the one way in which the subject is stored.
func (n name) String() string {
	if n.context == DefaultContext {
		return n.plain
	}
	return ":" + n.context + ":" + n.plain
}

// gated reports whether the subject can be that of an event type, so that
// contracts registered under it are enforced at the perimeter.
func (n name) gated() bool { return n.context == DefaultContext && headgate.ValidType(n.plain) }

// relative reads the subject of a reference within a context.
func (n name) relative(subject string) (name, error) {
	ref, err := parseSubject(subject)
	if err == nil && !strings.HasPrefix(subject, ":.") {
		ref.context = n.context
	}
	return ref, err
}
