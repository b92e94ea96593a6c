package headgate

import (
	"slices"
	"strings"
)

// Kind says what sort of actor a principal is.
type Kind string

// The kinds of principal.
const (
	KindHuman  Kind = "human"
	KindAgent  Kind = "agent"
	KindSystem Kind = "system"
)

// Origin is the class of a root: what set the causal tree in motion.
type Origin string

// The origin classes. A client's root has the class of its principal's kind;
// timer, webhook and change roots are started by Headgate's own components.
const (
	OriginHuman   Origin = "human"
	OriginAgent   Origin = "agent"
	OriginSystem  Origin = "system"
	OriginTimer   Origin = "timer"
	OriginWebhook Origin = "webhook"
	OriginChange  Origin = "change"
)

// Role is a set of rights over the node itself, beyond emitting and listening.
type Role string

// The roles. Every principal may publish and consume what its Emit and Listen
// lists name; roles add rights over the node. An agent can never approve.
const (
	// RoleViewer reads everything but secrets.
	RoleViewer Role = "viewer"
	// RoleDeveloper also registers contracts and manages subscriptions.
	RoleDeveloper Role = "developer"
	// RoleOperator also acts on quarantined events and leases.
	RoleOperator Role = "operator"
	// RoleApprover may approve what others proposed. Humans only.
	RoleApprover Role = "approver"
	// RoleAdmin may do everything, principals included, but approve.
	RoleAdmin Role = "admin"
)

// implied lists which roles a role includes.
var implied = map[Role][]Role{
	RoleViewer:    {RoleViewer},
	RoleDeveloper: {RoleViewer, RoleDeveloper},
	RoleOperator:  {RoleViewer, RoleOperator},
	RoleApprover:  {RoleViewer, RoleApprover},
	RoleAdmin:     {RoleViewer, RoleDeveloper, RoleOperator, RoleAdmin},
}

// Principal is who a request comes from, and what they may do. Deny by
// default: the zero value may do nothing.
type Principal struct {
	Name  string
	Kind  Kind
	Roles []Role
	// Emit and Listen are type patterns (see [MatchType]) that the principal
	// may publish and consume.
	Emit, Listen []string
	// Lease are the resource patterns (see [MatchResource]) that the principal
	// may take leases on.
	Lease []string
	// Roots is the right to publish without a cause.
	Roots RootRight
	// Disabled refuses every request.
	Disabled bool
}

// RootRight is the right to start causal trees, within a rate.
type RootRight struct {
	Allowed bool
	// Rate is the sustained number of roots a second, Burst how many may come
	// at once. Zero Rate with Allowed means the configured default rate, never
	// without limit.
	Rate  float64
	Burst int
}

// Can reports whether the principal holds the role, directly or through one
// that includes it.
func (p *Principal) Can(r Role) bool {
	if p.Disabled || (r == RoleApprover && p.Kind != KindHuman) {
		return false
	}
	for _, have := range p.Roles {
		if slices.Contains(implied[have], r) {
			return true
		}
	}
	return false
}

// MayEmit reports whether the principal may publish events of the type.
func (p *Principal) MayEmit(eventType string) bool {
	return !p.Disabled && matchAny(p.Emit, eventType)
}

// MayListen reports whether the principal may consume events of the type. A
// pattern may be passed: it is allowed when one of Listen covers all of it.
func (p *Principal) MayListen(eventType string) bool {
	return !p.Disabled && matchAny(p.Listen, eventType)
}

// Origin returns the class of a root that this principal starts.
func (p *Principal) Origin() Origin {
	switch p.Kind {
	case KindHuman:
		return OriginHuman
	case KindAgent:
		return OriginAgent
	default:
		return OriginSystem
	}
}

// MatchType reports whether an event type matches a pattern: the type itself,
// "prefix.*" for every type below the prefix at any depth, or "*" for all.
// A pattern may stand in for the type: it matches when it is covered whole.
func MatchType(pattern, eventType string) bool {
	if pattern == "*" || pattern == eventType {
		return true
	}
	prefix, ok := strings.CutSuffix(pattern, "*")
	return ok && strings.HasSuffix(prefix, ".") && len(eventType) > len(prefix) && strings.HasPrefix(eventType, prefix)
}

// ValidPattern reports whether s is a type pattern: a type, "prefix.*" or "*".
func ValidPattern(s string) bool {
	if s == "*" {
		return true
	}
	s = strings.TrimSuffix(s, ".*")
	return ValidType(s)
}

// ValidType reports whether s may name an event type: 1 to 200 bytes of
// letters, digits, ".", "_", "-" and "/", not starting or ending with ".".
func ValidType(s string) bool {
	if s == "" || len(s) > 200 || s[0] == '.' || s[len(s)-1] == '.' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '/':
		case c == '.' && s[i-1] != '.':
		default:
			return false
		}
	}
	return true
}

func matchAny(patterns []string, eventType string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return MatchType(p, eventType) })
}
