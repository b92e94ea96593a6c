// Package resource says what is wrong with names of leased resources, with
// patterns of them, and with templates that yield them: whatever can never
// match is a mistake that should be told when it is written, not a lease that
// nobody ever gets.
//
// Names are compared by their bytes. So that two spellings of one name are not
// two resources, a name is in Unicode normalization form NFC (Unicode Standard
// Annex 15).
package resource

import (
	"fmt"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/headgate/headgate"
)

// Reserved starts the resources of Headgate's own roles. No principal may
// lease them.
const Reserved = "headgate/"

// Fault says why s is no name of a resource, "" when it is one.
func Fault(s string) string {
	switch {
	case !headgate.ValidResource(s):
		return fmt.Sprintf("a resource is 1 to %d bytes of printable text such as ticket/42, without empty, \".\" or \"..\" segments between slashes and without spaces at its ends", headgate.MaxResourceLength)
	case !norm.NFC.IsNormalString(s):
		return "a resource is written in Unicode normalization form NFC; normalize the name"
	}
	return ""
}

// PatternFault says why a pattern of resources is none, or can never match
// what a principal may lease; "" when it is good.
func PatternFault(s string) string {
	if s == "*" {
		return ""
	}
	prefix, all := strings.CutSuffix(s, "/*")
	switch {
	case strings.Contains(prefix, "*"):
		return `"*" stands alone or at the end, after a slash: a resource, PREFIX/* or *`
	case all && len(prefix)+2 > headgate.MaxResourceLength:
		return fmt.Sprintf("no resource below it has at most %d bytes", headgate.MaxResourceLength)
	case strings.HasPrefix(s, Reserved):
		return "resources below " + Reserved + " are Headgate's own, and no principal may lease them"
	}
	return Fault(prefix)
}

// template is text with expressions in it, whose values are not known yet.
type template interface {
	// Outline returns the text with every expression replaced.
	Outline(value string) string
}

// some stands for the value of an expression. It is no letter that a mark
// could combine with.
const some = "0"

// TemplateFault says why no value of its expressions makes a template a
// resource that a principal may lease; "" when one may.
func TemplateFault(t template) string {
	s := t.Outline(some)
	if strings.HasPrefix(s, Reserved) {
		return "resources below " + Reserved + " are Headgate's own, and no principal may lease them"
	}
	if fault := Fault(s); fault != "" {
		return "whatever its expressions yield, it is no resource: " + fault
	}
	return ""
}

// MayMeet reports whether some value of a template's expressions is a resource
// that the pattern matches.
func MayMeet(pattern string, t template) bool {
	const gap = "\x00"
	begins, _, open := strings.Cut(t.Outline(gap), gap)
	prefix, all := strings.CutSuffix(pattern, "*")
	switch {
	case !open:
		return headgate.MatchResource(pattern, begins)
	case all && (prefix == "" || strings.HasSuffix(prefix, "/")):
		return strings.HasPrefix(begins, prefix) || strings.HasPrefix(prefix, begins)
	}
	return strings.HasPrefix(pattern, begins)
}
