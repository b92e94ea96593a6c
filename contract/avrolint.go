package contract

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/avro"
)

// The codes of warnings of Avro schemas.
const (
	// WarnUnknownLogical: Avro has no logical type of the name, so that values
	// are checked as the plain type.
	WarnUnknownLogical = "unknown_logical_type"
	// WarnIgnoredLogical: a logical type stands where Avro ignores it, so that
	// values are checked as the plain type.
	WarnIgnoredLogical = "ignored_logical_type"
)

// avroLogicalTypes are Avro's logical types with the types that have them.
// Source: Avro 1.12, logical types.
var avroLogicalTypes = map[string]struct {
	ops   []avroOp
	words string
}{
	"decimal":                {[]avroOp{avroBytes, avroFixed}, "bytes or fixed, with a precision"},
	"big-decimal":            {[]avroOp{avroBytes}, "bytes"},
	"uuid":                   {[]avroOp{avroString, avroFixed}, "string, or fixed of 16 bytes"},
	"duration":               {[]avroOp{avroFixed}, "fixed of 12 bytes"},
	"date":                   {[]avroOp{avroInt}, "int"},
	"time-millis":            {[]avroOp{avroInt}, "int"},
	"time-micros":            {[]avroOp{avroLong}, "long"},
	"timestamp-millis":       {[]avroOp{avroLong}, "long"},
	"timestamp-micros":       {[]avroOp{avroLong}, "long"},
	"timestamp-nanos":        {[]avroOp{avroLong}, "long"},
	"local-timestamp-millis": {[]avroOp{avroLong}, "long"},
	"local-timestamp-micros": {[]avroOp{avroLong}, "long"},
	"local-timestamp-nanos":  {[]avroOp{avroLong}, "long"},
}

// takesLogical reports whether a logical type belongs to the type.
func (n *avroNode) takesLogical(logical string) bool {
	if !slices.Contains(avroLogicalTypes[logical].ops, n.op) {
		return false
	}
	switch {
	case n.op == avroFixed && logical == "uuid":
		return n.size == 16
	case n.op == avroFixed && logical == "duration":
		return n.size == 12
	case logical == "decimal":
		return n.decimal != nil
	}
	return true
}

func (l *avroLowering) warning(code, at, format string, args ...any) {
	if len(l.warn) <= maxWarnings { // one more than are told
		l.warn = append(l.warn, Warning{Code: code, At: at, Detail: fmt.Sprintf(format, args...)})
	}
}

// ignored warns of the logical type of a type that has none.
func (l *avroLowering) ignored(s *avro.SchemaNode, at, what string) {
	if s.LogicalType != "" {
		l.ignoredName(s.LogicalType, at+"/logicalType", what)
	}
}

func (l *avroLowering) ignoredName(logical, at, what string) {
	if t, known := avroLogicalTypes[logical]; known {
		l.warning(WarnIgnoredLogical, at, "Avro ignores the logical type %s of %s; it belongs to %s", logical, what, t.words)
		return
	}
	advice := ""
	if near := nearest(logical, sortedKeys(avroLogicalTypes)); len(near) > 0 {
		advice = "; did you mean " + near[0] + "?"
	}
	l.warning(WarnUnknownLogical, at, "Avro has no logical type %s: values are checked as %s alone%s", clipQuote(logical), what, advice)
}

// Attributes that Avro reads, in types and in fields.
var (
	avroTypeAttributes  = []string{"type", "name", "namespace", "aliases", "doc", "fields", "items", "values", "symbols", "size", "default", "logicalType", "precision", "scale"}
	avroFieldAttributes = []string{"type", "name", "aliases", "doc", "default", "order"}
)

// attributes warns of attributes of a type that say nothing and were likely
// meant to. Attributes that are like none of Avro's are the owner's own.
func (l *avroLowering) attributes(s *avro.SchemaNode, at string) {
	l.others(s.Props, at, avroTypeAttributes)
	if v, ok := s.Props["logicalType"]; ok {
		if _, isText := v.(string); !isText {
			l.warning(WarnUnknownLogical, at+"/logicalType", "the name of a logical type is a string: this one is ignored")
		}
	}
}

// fieldAttributes is attributes for a field.
func (l *avroLowering) fieldAttributes(f *avro.SchemaField, at string) {
	l.others(f.Props, at, avroFieldAttributes)
	if v, ok := f.Props["logicalType"].(string); ok {
		l.warning(WarnIgnoredLogical, at+"/logicalType", `Avro ignores the logical type %s of a field: write it into the field's type, as in {"type":…,"logicalType":…}`, clipQuote(v))
	}
}

func (l *avroLowering) others(props map[string]any, at string, known []string) {
	for _, name := range sortedKeys(props) {
		switch {
		case slices.Contains(avroTypeAttributes, name), name == defaultProp, name == keySensitive, name == keyRepair && at == "":
		case strings.HasPrefix(name, keyPrefix):
			l.warning(WarnUnknownKeyword, at+"/"+escapeToken(name), "%s says nothing here: Avro schemas have %s, %s at the root, and aliases", clipQuote(name), keySensitive, keyRepair)
		default:
			if near := nearest(name, known); len(near) > 0 {
				l.warning(WarnUnknownKeyword, at+"/"+escapeToken(name), "%s says nothing in Avro; did you mean %s?", clipQuote(name), near[0])
			}
		}
	}
}

// marked reads whether a type or a field is marked as sensitive. What is no
// truth value counts as a mark: too little is shown rather than too much.
func (l *avroLowering) marked(props map[string]any, at string) bool {
	v, ok := props[keySensitive]
	if !ok || v == false {
		return false
	}
	if v != true {
		l.warning(WarnUnknownKeyword, at+"/"+keySensitive, "want true or false: this is taken for true")
	}
	l.p.sensitive = true
	return true
}

// repairMode reads the mode of repair at the root.
func (l *avroLowering) repairMode(root *avro.SchemaNode) RepairMode {
	v, ok := root.Props[keyRepair]
	if !ok {
		return RepairPropose
	}
	s, _ := v.(string)
	switch mode := RepairMode(s); mode {
	case RepairOff, RepairPropose, RepairLossless:
		return mode
	}
	l.warning(WarnUnknownKeyword, "/"+keyRepair, "want %s, %s or %s: the default holds", RepairOff, RepairPropose, RepairLossless)
	return RepairPropose
}
