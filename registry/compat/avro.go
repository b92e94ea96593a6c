package compat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/avro"
)

// compareAvro applies the resolution rules of the Avro specification.
func compareAvro(rules *ruleSet, writer, reader Schema) []Difference {
	w, err := parseAvro(writer.Text, writer.References)
	if err == nil {
		var r *avro.Schema
		if r, err = parseAvro(reader.Text, reader.References); err == nil {
			return resolve(rules, w, r)
		}
	}
	return []Difference{{Rule: rules.unreadable, At: "#", Writer: "#", Detail: clip(err.Error())}}
}

// parseAvro parses an Avro schema whose references are in the order in which
// they need one another. Names, defaults and symbols are checked as the
// specification demands.
func parseAvro(text []byte, references []Document) (*avro.Schema, error) {
	var cache avro.SchemaCache
	for _, ref := range references {
		if _, err := cache.Parse(string(ref.Text)); err != nil {
			return nil, fmt.Errorf("the reference %s: %w", clip(ref.Name), err)
		}
	}
	return cache.Parse(string(text))
}

// CheckAvro reports why a text is no Avro schema; the error's text is safe to
// echo. References come in the order in which they need one another.
func CheckAvro(text []byte, references []Document) error {
	if _, err := parseAvro(text, references); err != nil {
		return errors.New(printable(err.Error()))
	}
	return nil
}

// printable bounds and cleans a text of another module, which may echo input.
func printable(s string) string {
	const most = 300
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r == '\uFFFD' {
			return '.'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return s
}

// resolve reports the first place where resolution fails.
func resolve(rules *ruleSet, w, r *avro.Schema) []Difference {
	err := avro.CheckCompatibility(w, r)
	if err == nil {
		return nil
	}
	d := Difference{Rule: rules.avro, At: "#", Writer: "#", Detail: clip(err.Error())}
	var ce *avro.CompatibilityError
	if errors.As(err, &ce) {
		d.At = "#" + printable(ce.Path)
		d.Detail = fmt.Sprintf("%s: reader %s, writer %s.", printable(ce.Detail), printable(ce.ReaderType), printable(ce.WriterType))
	}
	return []Difference{d}
}
