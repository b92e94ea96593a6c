package compat

import "strings"

// Level says which earlier versions a new one is compared with, and in which
// direction.
type Level string

// The levels, in the words of configuration files.
const (
	None               Level = "none"
	Backward           Level = "backward"
	BackwardTransitive Level = "backward_transitive"
	Forward            Level = "forward"
	ForwardTransitive  Level = "forward_transitive"
	Full               Level = "full"
	FullTransitive     Level = "full_transitive"
)

// Levels returns all levels, the weakest first.
func Levels() []Level {
	return []Level{None, Backward, BackwardTransitive, Forward, ForwardTransitive, Full, FullTransitive}
}

// ParseLevel reads a level in lower or upper case.
func ParseLevel(s string) (Level, bool) {
	if s != strings.ToLower(s) && s != strings.ToUpper(s) {
		return "", false
	}
	for _, l := range Levels() {
		if strings.EqualFold(s, string(l)) {
			return l, true
		}
	}
	return "", false
}

// Wire returns the level in the words of registry clients: BACKWARD.
func (l Level) Wire() string { return strings.ToUpper(string(l)) }

// Transitive reports whether all earlier versions count, not the last alone.
func (l Level) Transitive() bool { return strings.HasSuffix(string(l), "_transitive") }

// Backward reports whether the new version must read what earlier ones wrote.
func (l Level) Backward() bool {
	return strings.HasPrefix(string(l), "backward") || strings.HasPrefix(string(l), "full")
}

// Forward reports whether earlier versions must read what the new one writes.
func (l Level) Forward() bool {
	return strings.HasPrefix(string(l), "forward") || strings.HasPrefix(string(l), "full")
}

// Policy says which changes of a JSON Schema are forgiven although a value
// can be made that passes the writer's schema and not the reader's. It has no
// say over Avro.
type Policy string

// The policies. Each forgives what the one before does, and more.
const (
	// Logical forgives nothing.
	Logical Policy = "logical"
	// Strict forgives a property that becomes required and has a default,
	// which readers fill in.
	Strict Policy = "strict"
	// Lenient, the default, also takes for granted that writers write no
	// undeclared properties and that readers skip those that they do not know.
	Lenient Policy = "lenient"
)

// ParsePolicy reads a policy in lower or upper case; "" is [Lenient].
func ParsePolicy(s string) (Policy, bool) {
	if s == "" {
		return Lenient, true
	}
	if s != strings.ToLower(s) && s != strings.ToUpper(s) {
		return "", false
	}
	for _, p := range []Policy{Logical, Strict, Lenient} {
		if strings.EqualFold(s, string(p)) {
			return p, true
		}
	}
	return "", false
}

// Wire returns the policy in the words of registry clients: LENIENT.
func (p Policy) Wire() string { return strings.ToUpper(string(p)) }

// rank orders policies from the one that forgives least.
func (p Policy) rank() int {
	switch p {
	case Logical:
		return 0
	case Strict:
		return 1
	default:
		return 2
	}
}
