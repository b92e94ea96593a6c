package principal

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/resource"
)

// Bounds of a principal's fields.
const (
	maxName     = 63
	maxPatterns = 1000
)

// MaxRate bounds the rate and the burst of roots, a second.
const MaxRate = 1_000_000

// Validate checks a principal and names every problem at once
// (invalid_argument). Names are 1 to 63 of a–z, 0–9, ".", "_" and "-", and
// begin with a letter or digit.
func Validate(p headgate.Principal) error {
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if !ValidName(p.Name) {
		add("name: %q, want %s", clip(p.Name), NameForm)
	}
	switch p.Kind {
	case headgate.KindHuman, headgate.KindAgent, headgate.KindSystem:
	default:
		add("kind: %q, want human, agent or system", clip(string(p.Kind)))
	}
	for _, r := range p.Roles {
		if why := RoleFault(p.Kind, r); why != "" {
			add("roles: %s", why)
		}
	}
	for _, field := range []struct {
		name     string
		patterns []string
	}{{"emit", p.Emit}, {"listen", p.Listen}} {
		if len(field.patterns) > maxPatterns {
			add("%s: %d patterns, at most %d", field.name, len(field.patterns), maxPatterns)
			continue
		}
		for i, pattern := range field.patterns {
			if !headgate.ValidPattern(pattern) {
				add("%s[%d]: %q is not a type pattern, want a type, PREFIX.* or *", field.name, i, clip(pattern))
			}
		}
	}
	if len(p.Lease) > maxPatterns {
		add("lease: %d patterns, at most %d", len(p.Lease), maxPatterns)
	} else {
		for i, pattern := range p.Lease {
			if fault := resource.PatternFault(pattern); fault != "" {
				add("lease[%d]: %q: %s", i, clip(pattern), fault)
			}
		}
	}
	if math.IsNaN(p.Roots.Rate) || p.Roots.Rate < 0 || p.Roots.Rate > MaxRate {
		add("roots.rate: %v, want 0 to %d a second", p.Roots.Rate, MaxRate)
	}
	if p.Roots.Burst < 0 || p.Roots.Burst > MaxRate {
		add("roots.burst: %d, want 0 to %d", p.Roots.Burst, MaxRate)
	}
	if len(problems) == 0 {
		return nil
	}
	const most = 10
	if more := len(problems) - most; more > 0 {
		problems = append(problems[:most], fmt.Sprintf("and %d more", more))
	}
	return headgate.NewError(headgate.CodeInvalidArgument, "%s", strings.Join(problems, "; "))
}

// NameForm says in errors what [ValidName] takes.
const NameForm = "1 to 63 of a-z, 0-9, '.', '_', '-', beginning with a letter or digit"

// ValidName reports whether s may name a principal.
func ValidName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// RoleFault says why a kind of principal may not hold a role; "" if it may.
func RoleFault(kind headgate.Kind, r headgate.Role) string {
	known := []headgate.Role{headgate.RoleViewer, headgate.RoleDeveloper, headgate.RoleOperator, headgate.RoleApprover, headgate.RoleAdmin}
	switch {
	case !slices.Contains(known, r):
		return fmt.Sprintf("%q, want viewer, developer, operator, approver or admin", clip(string(r)))
	case r == headgate.RoleApprover && kind != headgate.KindHuman:
		return "approver is for humans only"
	case kind == headgate.KindAgent && (r == headgate.RoleOperator || r == headgate.RoleAdmin):
		return fmt.Sprintf("an agent can never be %s", r)
	}
	return ""
}
