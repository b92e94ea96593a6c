package contract

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	libkind "github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// oracle is the schema library by itself: its own formats where ownFormats is
// set, ours otherwise.
func oracle(t testing.TB, schema []byte, ownFormats bool) *jsonschema.Schema {
	t.Helper()
	s, err := oracleCompile(schema, ownFormats)
	if err != nil {
		t.Fatalf("the library refuses a schema: %v", err)
	}
	return s
}

func oracleCompile(schema []byte, ownFormats bool) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, err
	}
	lib := jsonschema.NewCompiler()
	lib.AssertFormat()
	lib.UseLoader(refuseLoader{})
	if !ownFormats {
		for _, f := range libraryFormats() {
			lib.RegisterFormat(f)
		}
	}
	if err := lib.AddResource(rootURL, doc); err != nil {
		return nil, err
	}
	return lib.Compile(rootURL)
}

// oracleFaults validates a payload and returns the instance locations of the
// leaves of the library's error; nil means valid.
func oracleFaults(t testing.TB, s *jsonschema.Schema, payload []byte) map[string]bool {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Validate(doc)
	if err == nil {
		return nil
	}
	var verr *jsonschema.ValidationError
	if !errors.As(err, &verr) {
		t.Fatal(err)
	}
	out := map[string]bool{}
	leaves(verr, out)
	return out
}

func leaves(e *jsonschema.ValidationError, out map[string]bool) {
	ptr := ""
	for _, tok := range e.InstanceLocation {
		ptr += "/" + escapeToken(tok)
	}
	switch k := e.ErrorKind.(type) {
	case *libkind.Required:
		for _, name := range k.Missing {
			out[ptr+"/"+escapeToken(name)] = true
		}
	case *libkind.AdditionalProperties:
		for _, name := range k.Properties {
			out[ptr+"/"+escapeToken(name)] = true
		}
	default:
		if len(e.Causes) == 0 || strings.HasSuffix(strings.ToLower(e.Error()), "of") {
			out[ptr] = true
		}
	}
	for _, c := range e.Causes {
		leaves(c, out)
	}
}
