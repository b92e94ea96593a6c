package headgate

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxResourceLength bounds the name of a leased resource, in bytes.
const MaxResourceLength = 256

// ValidResource reports whether s may name a leased resource: 1 to 256 bytes
// of printable UTF-8, such as "ticket/42". Segments between slashes are not
// empty, "." or "..", and no space stands at either end.
func ValidResource(s string) bool {
	if s == "" || len(s) > MaxResourceLength || !utf8.ValidString(s) || strings.TrimSpace(s) != s {
		return false
	}
	for _, c := range s {
		if !unicode.IsPrint(c) || c == utf8.RuneError {
			return false
		}
	}
	for segment := range strings.SplitSeq(s, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

// MatchResource reports whether a resource matches a pattern: the resource
// itself, "prefix/*" for every resource below the prefix, or "*" for all.
func MatchResource(pattern, resource string) bool {
	if pattern == "*" || pattern == resource {
		return true
	}
	prefix, ok := strings.CutSuffix(pattern, "*")
	return ok && strings.HasSuffix(prefix, "/") && len(resource) > len(prefix) && strings.HasPrefix(resource, prefix)
}

// MayLease reports whether the principal may acquire a lease on the resource
// and hold it. An admin may lease everything.
func (p *Principal) MayLease(resource string) bool {
	if p.Disabled {
		return false
	}
	return p.Can(RoleAdmin) || slices.ContainsFunc(p.Lease, func(pattern string) bool { return MatchResource(pattern, resource) })
}
