package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/condition"
	"github.com/headgate/headgate/internal/resource"
)

// MaxPartitions bounds the partitions of one stream.
const MaxPartitions = 256

// MaxHops bounds the TTL of a type: a deeper tree is no design.
const MaxHops = 1000

// problems collects what is wrong with a declaration.
type problems struct{ found []error }

func (p *problems) add(format string, args ...any) {
	p.found = append(p.found, fmt.Errorf(format, args...))
}

// err returns all problems as one error, or nil.
func (p *problems) err() error {
	if len(p.found) == 0 {
		return nil
	}
	texts := make([]string, len(p.found))
	for i, f := range p.found {
		texts[i] = f.Error()
	}
	return &headgate.Error{Code: headgate.CodeInvalidConfig, Detail: strings.Join(texts, "; "), Err: errors.Join(p.found...)}
}

func (p *problems) defaults(d Defaults) Defaults {
	p.limits("defaults", d.TTL, d.Gas, d.Breadth, d.Repeats, d.PayloadMax)
	return Defaults{
		TTL:        withDefault(d.TTL, DefaultTTL),
		Gas:        withDefault(d.Gas, DefaultGas),
		Breadth:    withDefault(d.Breadth, DefaultBreadth),
		Repeats:    withDefault(d.Repeats, DefaultRepeats),
		PayloadMax: withDefault(d.PayloadMax, DefaultPayloadMax),
	}
}

func (p *problems) limits(where string, ttl, gas, breadth, repeats, payloadMax int) {
	if ttl < 0 || ttl > MaxHops {
		p.add("%s: ttl %d is not from 1 to %d", where, ttl, MaxHops)
	}
	for _, l := range [...]struct {
		name  string
		value int
	}{{"gas", gas}, {"breadth", breadth}, {"repeats", repeats}, {"payload_max", payloadMax}} {
		if l.value < 0 {
			p.add("%s: %s %d is negative", where, l.name, l.value)
		}
	}
}

// streams checks the declared streams, fills in the defaults and notes who owns
// which pattern. The default stream is added unless it was declared.
func (p *problems) streams(declared []Stream, owners map[string]string) []Stream {
	var all []Stream
	names := map[string]bool{}
	for i, s := range declared {
		where := fmt.Sprintf("streams[%d] %q", i, s.Name)
		if !validStreamName(s.Name) {
			p.add("%s: a name is 1 to 63 of a–z, 0–9, \"-\" and \"_\", starting with a letter or digit", where)
		}
		if names[s.Name] {
			p.add("%s: the name is taken", where)
		}
		names[s.Name] = true
		if len(s.Types) == 0 && s.Name != DefaultStream {
			p.add("%s: types is empty, so nothing can reach the stream", where)
		}
		if s.Partitions < 0 || s.Partitions > MaxPartitions {
			p.add("%s: partitions %d is not from 1 to %d", where, s.Partitions, MaxPartitions)
		}
		if s.Retain < 0 {
			p.add("%s: retain %s is negative", where, s.Retain)
		}
		for _, pattern := range s.Types {
			owner, taken := owners[pattern]
			switch {
			case !headgate.ValidPattern(pattern):
				p.add("%s: %q is not a type, \"prefix.*\" or \"*\"", where, pattern)
			case taken:
				p.add("%s: %q is already taken by the stream %q", where, pattern, owner)
			default:
				owners[pattern] = s.Name
			}
		}
		all = append(all, s.withDefaults())
	}
	if !names[DefaultStream] {
		all = append(all, Stream{Name: DefaultStream}.withDefaults())
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
func (p *problems) typ(i int, t Type, before map[string]*declared) (keyOf, fenceOf *condition.Value) {
	where := fmt.Sprintf("types[%d] %q", i, t.Pattern)
	if !headgate.ValidPattern(t.Pattern) {
		p.add("%s: not a type, \"prefix.*\" or \"*\"", where)
	}
	if _, twice := before[t.Pattern]; twice {
		p.add("%s: declared twice", where)
	}
	p.limits(where, t.TTL, t.Gas, t.Breadth, t.Repeats, t.PayloadMax)
	if t.Contract != "" && !headgate.ValidType(t.Contract) {
		p.add("%s: contract %q is not the name of a subject", where, t.Contract)
	}
	for _, o := range t.Origins {
		if !slices.Contains(origins(), o) {
			p.add("%s: origin %q is not one of human, agent, system, timer, webhook, change", where, o)
		}
	}
	if t.Expire < 0 || t.Expire > 0 && t.Expire < time.Millisecond {
		p.add("%s: expire %s is not a positive duration of a millisecond or more", where, t.Expire)
	}
	var err error
	if t.Key != "" {
		if keyOf, err = condition.CompileValue(t.Key); err != nil {
			p.add("%s: key: %s", where, headgate.AsError(err).Detail)
		}
	}
	if t.Fence != "" {
		if fenceOf, err = condition.CompileTemplate(t.Fence); err != nil {
			p.add("%s: fence: %s", where, headgate.AsError(err).Detail)
		} else if fault := resource.TemplateFault(fenceOf); fault != "" {
			p.add("%s: fence: %s", where, fault)
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
