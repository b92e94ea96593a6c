package contract

import (
	"bytes"
	"encoding/json"
	"strings"
)

// RepairMode says what becomes of proposals to mend a payload.
type RepairMode string

// The modes, as the root of a schema names them under x-headgate-repair.
const (
	// RepairOff: no proposals are made.
	RepairOff RepairMode = "off"
	// RepairPropose: reports hold proposals; nothing is applied. The default.
	RepairPropose RepairMode = "propose"
	// RepairLossless: proposals of lossless steps alone are applied at the gate,
	// which keeps the original.
	RepairLossless RepairMode = "apply-lossless"
)

// The keywords of ours. None of them changes what is valid.
const (
	keyPrefix    = "x-headgate-"
	keyRepair    = "x-headgate-repair"
	keyAliases   = "x-headgate-aliases"
	keySensitive = "x-headgate-sensitive"
)

// Bounds of the aliases of one property.
const (
	maxAliases   = 16
	maxAliasName = 128 // bytes
)

// annotation is what a schema says beyond what is valid.
type annotation struct {
	aliases   []string
	sensitive bool
	fallback  json.RawMessage // of default
}

// annotate reads our own keywords and the default of one schema. An unknown
// keyword of ours is refused: a setting that is not kept to is worse than none.
func (l *lint) annotate(p place) {
	var a annotation
	for _, name := range sortedKeys(p.obj) {
		at := p.ptr + "/" + escapeToken(name)
		switch v := p.obj[name]; {
		case name == keyAliases:
			a.aliases = l.aliases(at, v)
		case name == keySensitive:
			on, ok := v.(bool)
			if !ok {
				l.rsn.add(at, "want true or false")
			}
			a.sensitive = on
		case name == keyRepair:
			l.repairMode(p, at, v)
		case name == "default":
			a.fallback = fallbackOf(v)
		case strings.HasPrefix(name, keyPrefix):
			advice := ""
			if near := nearest(name, []string{keyAliases, keyRepair, keySensitive}); len(near) > 0 {
				advice = "; did you mean " + near[0] + "?"
			}
			l.rsn.add(at, "there is no keyword %s%s", clipQuote(name), advice)
		}
	}
	l.uniqueAliases(p)
	if len(a.aliases) > 0 || a.sensitive || a.fallback != nil {
		l.notes[p.ptr] = &a
	}
}

// maxFallback bounds a default that is proposed, in bytes.
const maxFallback = 1024

func fallbackOf(v any) json.RawMessage {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil || buf.Len() > maxFallback {
		return nil
	}
	return bytes.TrimSpace(buf.Bytes())
}

func (l *lint) repairMode(p place, at string, v any) {
	s, _ := v.(string)
	switch mode := RepairMode(s); {
	case p.ptr != "":
		l.rsn.add(at, "the mode of repair is said once, at the root of the schema")
	case mode != RepairOff && mode != RepairPropose && mode != RepairLossless:
		l.rsn.add(at, "want %s, %s or %s", RepairOff, RepairPropose, RepairLossless)
	default:
		l.repair = mode
	}
}

func (l *lint) aliases(at string, v any) []string {
	list, ok := v.([]any)
	if !ok || len(list) == 0 || len(list) > maxAliases {
		l.rsn.add(at, "want a list of 1 to %d names", maxAliases)
		return nil
	}
	var out []string
	for _, e := range list {
		s, ok := e.(string)
		if !ok || s == "" || len(s) > maxAliasName {
			l.rsn.add(at, "an alias is a name of 1 to %d bytes", maxAliasName)
			return nil
		}
		out = append(out, s)
	}
	return out
}

// uniqueAliases refuses aliases that could mean two properties of one object.
func (l *lint) uniqueAliases(p place) {
	props, _ := p.obj["properties"].(map[string]any)
	taken := map[string]string{}
	for _, name := range sortedKeys(props) {
		sub, _ := props[name].(map[string]any)
		list, _ := sub[keyAliases].([]any)
		for _, e := range list {
			alias, _ := e.(string)
			at := p.ptr + "/properties/" + escapeToken(name) + "/" + keyAliases
			if _, declared := props[alias]; declared {
				l.rsn.add(at, "%s is the name of a property itself", clipQuote(alias))
			} else if other, ok := taken[alias]; ok && other != name {
				l.rsn.add(at, "%s is an alias of %s already", clipQuote(alias), clipQuote(other))
			}
			taken[alias] = name
		}
	}
}

// annotateNodes hands the notes to the schemas that they stand at.
func (p *program) annotateNodes(l *lint) {
	p.repair = l.repair
	for _, n := range p.nodes {
		if a := l.notes[n.at]; a != nil {
			n.aliases, n.fallback, n.sensitive = a.aliases, a.fallback, a.sensitive
			p.sensitive = p.sensitive || a.sensitive
		}
	}
	p.markSecrets()
	p.indexNames()
}
