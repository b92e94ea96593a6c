package topology

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/condition"
	"github.com/headgate/headgate/internal/resource"
)

// Bounds of what may be declared. Beyond them a limit limits nothing, and spans
// of time overflow where they are added.
const (
	MaxPartitions = 256
	MaxTTL        = 64
	MaxGas        = 1_000_000_000
	MaxBreadth    = 1_000_000
	MaxRepeats    = 64
	// MaxPayload bounds every PayloadMax, so that an event fits a broker message.
	MaxPayload = 6 << 20
	MaxRetain  = 50 * 365 * 24 * time.Hour
	MaxExpire  = 10 * 365 * 24 * time.Hour
)

// Fault is one thing wrong with a declaration.
type Fault struct {
	In      string // "defaults", "streams" or "types"
	Name    string // of the stream, or the type's pattern; empty in defaults
	Setting string // such as "retain"; empty: the declaration itself
	What    string
}

// Error returns the place and what is wrong there.
func (f *Fault) Error() string {
	at := f.In
	if f.In != "defaults" {
		at += fmt.Sprintf(" %q", f.Name)
	}
	if f.Setting != "" {
		at += ": " + f.Setting
	}
	return at + ": " + f.What
}

// faults are all that is wrong with declarations, as one error.
type faults []*Fault

func (f faults) Error() string {
	texts := make([]string, len(f))
	for i := range f {
		texts[i] = f[i].Error()
	}
	return strings.Join(texts, "; ")
}

// Faults returns what an error of [New] reports.
func Faults(err error) []*Fault {
	var all faults
	errors.As(err, &all)
	return all
}

// problems collects what is wrong with a declaration.
type problems struct{ found faults }

// at returns what adds faults of one declaration.
func (p *problems) at(in, name string) func(setting, format string, args ...any) {
	return func(setting, format string, args ...any) {
		p.found = append(p.found, &Fault{In: in, Name: name, Setting: setting, What: fmt.Sprintf(format, args...)})
	}
}

// err returns all problems as one error, or nil.
func (p *problems) err() error {
	if len(p.found) == 0 {
		return nil
	}
	return &headgate.Error{Code: headgate.CodeInvalidConfig, Detail: p.found.Error(), Err: p.found}
}

func (p *problems) defaults(d Defaults) Defaults {
	add := p.at("defaults", "")
	limits(add, d.TTL, d.Gas, d.Breadth, d.Repeats, d.PayloadMax)
	retain(add, d.Retain)
	return Defaults{
		TTL:        cmp.Or(d.TTL, DefaultTTL),
		Gas:        cmp.Or(d.Gas, DefaultGas),
		Breadth:    cmp.Or(d.Breadth, DefaultBreadth),
		Repeats:    cmp.Or(d.Repeats, DefaultRepeats),
		PayloadMax: cmp.Or(d.PayloadMax, DefaultPayloadMax),
		Retain:     cmp.Or(d.Retain, DefaultRetain),
	}
}

func limits(add func(setting, format string, args ...any), ttl, gas, breadth, repeats, payloadMax int) {
	for _, l := range [...]struct {
		name       string
		value, max int
	}{{"ttl", ttl, MaxTTL}, {"gas", gas, MaxGas}, {"breadth", breadth, MaxBreadth}, {"repeats", repeats, MaxRepeats}} {
		if l.value < 0 || l.value > l.max {
			add(l.name, "%d, want 1 to %d", l.value, l.max)
		}
	}
	if payloadMax < 0 || payloadMax > MaxPayload {
		add("payload_max", "%d bytes, want at most 6MiB", payloadMax)
	}
}

func retain(add func(setting, format string, args ...any), d time.Duration) {
	if d < 0 || d > MaxRetain {
		add("retain", "%s, want at most 18250d, which is 50 years", d)
	}
}

// streams checks the declared streams, fills in the defaults and notes who owns
// which pattern. The default stream is added unless it was declared.
func (p *problems) streams(declared []Stream, owners map[string]string, keep time.Duration) []Stream {
	var all []Stream
	names := map[string]bool{}
	for _, s := range declared {
		add := p.at("streams", s.Name)
		if !validStreamName(s.Name) {
			add("", "a name is 1 to 63 of a–z, 0–9, \"-\" and \"_\", starting with a letter or digit")
		}
		if names[s.Name] {
			add("", "the name is taken")
		}
		names[s.Name] = true
		if len(s.Types) == 0 && s.Name != DefaultStream {
			add("types", "is empty, so nothing can reach the stream")
		}
		if s.Partitions < 0 || s.Partitions > MaxPartitions {
			add("partitions", "%d, want 1 to %d", s.Partitions, MaxPartitions)
		}
		retain(add, s.Retain)
		for _, pattern := range s.Types {
			owner, taken := owners[pattern]
			switch {
			case !headgate.ValidPattern(pattern):
				add("types", "%q is not a type, \"prefix.*\" or \"*\"", pattern)
			case taken:
				add("types", "%q is already taken by the stream %q", pattern, owner)
			default:
				owners[pattern] = s.Name
			}
		}
		all = append(all, s.withDefaults(keep))
	}
	if !names[DefaultStream] {
		all = append(all, Stream{Name: DefaultStream}.withDefaults(keep))
	}
	return all
}

func validStreamName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (i == 0 || c != '-' && c != '_') {
			return false
		}
	}
	return len(s) > 0 && len(s) <= 63
}

// typ checks one declared type and compiles its key and its fence.
func (p *problems) typ(t Type, before map[string]*declared) (keyOf, fenceOf *condition.Value) {
	add := p.at("types", t.Pattern)
	if !headgate.ValidPattern(t.Pattern) {
		add("", "not a type, \"prefix.*\" or \"*\"")
	}
	if _, twice := before[t.Pattern]; twice {
		add("", "declared twice")
	}
	limits(add, t.TTL, t.Gas, t.Breadth, t.Repeats, t.PayloadMax)
	if t.Contract != "" && !headgate.ValidType(t.Contract) {
		add("contract", "%q is not the name of a subject", t.Contract)
	}
	for _, o := range t.Origins {
		if !slices.Contains(origins(), o) {
			add("origins", "%q is not one of human, agent, system, timer, webhook, change", o)
		}
	}
	if t.Expire < 0 || t.Expire > 0 && t.Expire < time.Millisecond || t.Expire > MaxExpire {
		add("expire", "%s, want 1ms to 3650d, which is 10 years", t.Expire)
	}
	var err error
	if t.Key != "" {
		if keyOf, err = condition.CompileValue(t.Key); err != nil {
			add("key", "%s", headgate.AsError(err).Detail)
		}
	}
	if t.Fence != "" {
		if fenceOf, err = condition.CompileTemplate(t.Fence); err != nil {
			add("fence", "%s", headgate.AsError(err).Detail)
		} else if fault := resource.TemplateFault(fenceOf); fault != "" {
			add("fence", "%s", fault)
		}
	}
	return keyOf, fenceOf
}

func origins() []headgate.Origin {
	return []headgate.Origin{
		headgate.OriginHuman, headgate.OriginAgent, headgate.OriginSystem,
		headgate.OriginTimer, headgate.OriginWebhook, headgate.OriginChange,
	}
}
