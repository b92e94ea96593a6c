package compat

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Kind is a language of schemas.
type Kind string

// The kinds that can be compared, in the words of registry clients.
const (
	JSON Kind = "JSON"
	Avro Kind = "AVRO"
)

// Document is a schema that another one refers to.
type Document struct {
	Name string // as the reference is written
	Text []byte
}

// Schema is one version of a subject.
type Schema struct {
	Kind Kind
	Text []byte
	// References are all documents that can be reached from Text; for Avro
	// each one after those that it needs.
	References []Document
	Version    int // named in reasons; 0 for the new one
}

// Difference is one reason why two schemas are incompatible.
type Difference struct {
	Rule Rule
	// Backward is true when the new version could not read the earlier one's
	// data, false when the earlier one could not read the new one's.
	Backward bool
	// Version is the earlier version.
	Version int
	// At is the place in the reader's schema, Writer that in the writer's.
	At, Writer string
	// Detail says what exactly differs; bounded and escaped.
	Detail string
}

// String returns one line.
func (d Difference) String() string {
	line := fmt.Sprintf("%s at %s (", d.Rule.ID, d.At)
	if d.Backward {
		line += "the new schema cannot read"
	} else {
		line += "unable to read the new schema's data:"
	}
	line += fmt.Sprintf(" version %d): %s", d.Version, d.Rule.Says)
	if d.Detail != "" {
		line += " " + d.Detail
	}
	return line + " " + d.Rule.Fix
}

// maxReasons bounds the differences of one answer.
const maxReasons = 32

// Check compares a new schema with earlier versions, oldest first, and returns
// the reasons why the level does not allow it; none means compatible.
func Check(level Level, policy Policy, candidate Schema, earlier []Schema) []Difference {
	if level == None || len(earlier) == 0 {
		return nil
	}
	if !level.Transitive() {
		earlier = earlier[len(earlier)-1:]
	}
	var all []Difference
	total := 0
	compare := func(writer, reader Schema, version int, backward bool) {
		if total > maxTotalWork {
			return
		}
		ds, work := counted(policy, writer, reader)
		if total += work; total > maxTotalWork {
			ds = append(ds, Difference{Rule: newRules().tooComplex, At: "#", Writer: "#", Detail: "Earlier versions were not compared any more."})
		}
		for i := range ds {
			ds[i].Version, ds[i].Backward = version, backward
		}
		all = append(all, ds...)
	}
	for i := len(earlier) - 1; i >= 0 && len(all) < maxReasons; i-- {
		old := earlier[i]
		if level.Backward() {
			compare(old, candidate, old.Version, true)
		}
		if level.Forward() {
			compare(candidate, old, old.Version, false)
		}
	}
	return all[:min(len(all), maxReasons)]
}

// Compare returns why a reader with one schema cannot take everything that a
// writer with another one may write, ordered by place and rule.
func Compare(policy Policy, writer, reader Schema) []Difference {
	ds, _ := counted(policy, writer, reader)
	return ds
}

// counted is Compare, with the steps that it took.
func counted(policy Policy, writer, reader Schema) ([]Difference, int) {
	rules, work := newRules(), 0
	if writer.Kind != reader.Kind {
		return []Difference{{Rule: rules.kind, At: "#", Writer: "#", Detail: fmt.Sprintf("It is %s, and was %s.", reader.Kind, writer.Kind)}}, 0
	}
	var ds []Difference
	switch reader.Kind {
	case JSON:
		ds, work = compareJSON(rules, policy, writer, reader)
	case Avro:
		ds = compareAvro(rules, writer, reader)
	default:
		ds = []Difference{{Rule: rules.unreadable, At: "#", Writer: "#", Detail: "The kind is unknown."}}
	}
	slices.SortFunc(ds, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Rule.ID, b.Rule.ID), cmp.Compare(a.Detail, b.Detail), cmp.Compare(a.Writer, b.Writer))
	})
	ds = slices.CompactFunc(ds, func(a, b Difference) bool { return a.At == b.At && a.Rule.ID == b.Rule.ID && a.Detail == b.Detail })
	return ds[:min(len(ds), maxReasons)], work
}

// clip bounds and escapes what is echoed of a schema.
func clip(s string) string {
	const most = 64
	s = strings.ToValidUTF8(s, "\uFFFD")
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	q := fmt.Sprintf("%q", s)
	return q
}
