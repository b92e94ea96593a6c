package contract

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	libkind "github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/headgate/headgate/internal/jsontext"
)

// Limits of a contract's schema.
const (
	MaxSchemaBytes = 256 << 10
	MaxSchemaDepth = 64
	MaxSchemaName  = 1024 // bytes of one name
)

// schemaLimits bound what is parsed of a schema.
func schemaLimits() jsontext.Limits {
	return jsontext.Limits{Depth: MaxSchemaDepth, NumberLength: DefaultNumberLength, Exponent: DefaultExponent}
}

// compileHooks open what a test against outside suites needs and users must
// not have.
type compileHooks struct {
	documents   map[string]any // further documents that may be referred to
	anyFormat   bool           // unknown formats are no fault
	noFormat    bool           // formats are annotations
	draft       int            // dialect of a schema that names none
	maxCost     int            // replaces MaxVisits
	allowCycles bool
	generalOnly bool // no fast engine
	plain       bool // no shortcuts past the schemas
}

func (h *compileHooks) known(u string) bool {
	u, _, _ = strings.Cut(u, "#")
	_, ok := h.documents[u]
	return ok
}

// compileSchema turns a schema into a program. It dials nothing and opens no
// file: the only documents that a schema can name are itself and the dialects'
// own schemas, which are part of this program.
func compileSchema(schema []byte, pol Policy, hooks *compileHooks) (*program, []Warning, *reasons) {
	rsn := &reasons{}
	doc := parseSchema(schema, rsn)
	if !rsn.empty() {
		return nil, nil, rsn
	}
	draft := dialect(doc, hooks, rsn)
	if !rsn.empty() {
		return nil, nil, rsn
	}
	root, err := url.Parse(rootURL)
	if err != nil {
		rsn.add("", "%v", err)
		return nil, nil, rsn
	}
	l := &lint{doc: doc, opts: hooks, rsn: rsn}
	l.run(root, draft)
	if !rsn.empty() {
		return nil, nil, rsn
	}
	prog := compileLibrary(doc, hooks, rsn)
	if !rsn.empty() {
		return nil, nil, rsn
	}
	left := newAutomata()
	prog.makeAutomata(left)
	prog.closing = pol.CloseObjects
	prog.annotateNodes(l)
	if !hooks.allowCycles {
		prog.findCycles(rsn)
	}
	if rsn.empty() {
		prog.detectDiscriminators()
		prog.bound(pol.Depth, hooks, rsn)
	}
	if !rsn.empty() {
		return nil, nil, rsn
	}
	if prog.spare = spareWork(len(schema)); !hooks.plain {
		prog.sortScalars()
		prog.classContainers()
		prog.pickBranches(left)
		prog.groupContains()
	}
	prog.checkLiterals(l)
	warnings := append(l.warn, prog.dear(pol.Depth)...)
	if !pol.CloseObjects {
		warnings = append(warnings, prog.openObjects()...)
	}
	return prog, boundWarnings(warnings), rsn
}

// parseSchema checks the limits and the grammar, and decodes the document
// with exact numbers.
func parseSchema(schema []byte, rsn *reasons) any { return parseWithin(schema, schemaLimits(), rsn) }

func parseWithin(schema []byte, lim jsontext.Limits, rsn *reasons) any {
	if len(schema) > MaxSchemaBytes {
		rsn.add("", "the schema has %d bytes, more than %d", len(schema), MaxSchemaBytes)
		return nil
	}
	if fault := jsontext.Check(schema, lim); fault != nil {
		rsn.add(fault.At, "line %d, column %d: %s", fault.Line, fault.Column, fault.Detail)
		return nil
	}
	checkNames(schema, lim, rsn)
	if !rsn.empty() {
		return nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		rsn.add("", "%s", clip(err.Error(), 200))
		return nil
	}
	return doc
}

func checkNames(schema []byte, lim jsontext.Limits, rsn *reasons) {
	sc := jsontext.NewScanner(schema, lim)
	for {
		tok, fault := sc.Next()
		if fault != nil || tok.Kind == jsontext.EOF {
			return
		}
		if tok.Kind == jsontext.Name && tok.End-tok.Start-2 > MaxSchemaName {
			rsn.add("", "the name at byte %d has %d bytes, more than %d", tok.Start, tok.End-tok.Start-2, MaxSchemaName)
			return
		}
	}
}

// dialect returns the draft of a document.
func dialect(doc any, hooks *compileHooks, rsn *reasons) int {
	draft := hooks.draft
	if draft == 0 {
		draft = 2020
	}
	switch v := doc.(type) {
	case bool:
		return draft
	case map[string]any:
		s, ok := v["$schema"]
		if !ok {
			return draft
		}
		name, ok := s.(string)
		if !ok {
			rsn.add("/$schema", "want the URI of a dialect")
			return 0
		}
		if d := draftOf(name); d != 0 {
			return d
		}
		if hooks.known(name) {
			return draft
		}
		rsn.add("/$schema", "the dialect %s is not known; use draft-04, draft-06, draft-07, 2019-09 or 2020-12 (nothing is fetched)", clipQuote(name))
	default:
		rsn.add("", "a schema is an object, true or false")
	}
	return 0
}

// refuseLoader is the loader that loads nothing.
type refuseLoader struct{}

var errNoLoader = errors.New("nothing is fetched")

func (refuseLoader) Load(string) (any, error) { return nil, errNoLoader }

func libraryDraft(draft int) *jsonschema.Draft {
	switch draft {
	case 4:
		return jsonschema.Draft4
	case 6:
		return jsonschema.Draft6
	case 7:
		return jsonschema.Draft7
	case 2019:
		return jsonschema.Draft2019
	default:
		return jsonschema.Draft2020
	}
}

// compileLibrary has the schema library check the document against its
// dialect's own schema and resolve its references, and lowers the result.
func compileLibrary(doc any, hooks *compileHooks, rsn *reasons) (prog *program) {
	defer func() {
		if r := recover(); r != nil { // the library is not ours: no schema may end the process
			prog = nil
			rsn.add("", "the schema cannot be compiled: %s", clip(fmt.Sprint(r), 200))
		}
	}()
	lib := jsonschema.NewCompiler()
	lib.UseLoader(refuseLoader{})
	lib.UseRegexpEngine(regexpEngine)
	lib.DefaultDraft(libraryDraft(hooks.draft))
	if !hooks.noFormat {
		lib.AssertFormat()
	}
	for _, f := range libraryFormats() {
		lib.RegisterFormat(f)
	}
	raw := map[string]any{rootURL: doc}
	for u, d := range hooks.documents {
		if err := lib.AddResource(u, d); err != nil {
			rsn.add("", "%v", err)
			return nil
		}
		raw[u] = d
	}
	if err := lib.AddResource(rootURL, doc); err != nil {
		rsn.add("", "%v", err)
		return nil
	}
	compiled, err := lib.Compile(rootURL)
	if err != nil {
		explainLibrary(err, rsn)
		return nil
	}
	low := &lowering{byKey: map[*jsonschema.Schema]*node{}}
	low.trueNode = low.add(&node{always: 1})
	low.falseNode = low.add(&node{always: -1})
	low.resources = &resources{lib: lib, low: low, docs: map[string]*document{}, raw: raw}
	root := low.node(compiled)
	if err := low.drain(); err != nil {
		explainLibrary(err, rsn)
		return nil
	}
	low.findReferences()
	p := &program{root: root, nodes: low.nodes}
	p.dynamic = slices.ContainsFunc(p.nodes, func(n *node) bool { return len(p.recursiveTargets(n)) > 1 || len(p.dynamicTargets(n)) > 1 })
	return p
}

// explainLibrary writes the library's error as reasons with pointers.
func explainLibrary(err error, rsn *reasons) {
	var invalid *jsonschema.SchemaValidationError
	if errors.As(err, &invalid) {
		var verr *jsonschema.ValidationError
		if errors.As(invalid.Err, &verr) {
			_, frag, _ := strings.Cut(invalid.URL, "#")
			if dec, err := url.PathUnescape(frag); err == nil {
				frag = dec
			}
			explainMeta(frag, verr, rsn)
			if !rsn.empty() {
				return
			}
		}
	}
	var missing *jsonschema.JSONPointerNotFoundError
	var anchor *jsonschema.AnchorNotFoundError
	switch {
	case errors.As(err, &missing):
		rsn.add("", "a reference points at nothing: %s", clipQuote(strings.TrimPrefix(missing.URL, rootURL)))
	case errors.As(err, &anchor):
		rsn.add("", "a reference names an anchor that does not exist: %s", clipQuote(strings.TrimPrefix(anchor.Reference, rootURL)))
	default:
		rsn.add("", "%s", clip(strings.ReplaceAll(err.Error(), rootURL, ""), 300))
	}
}

// explainMeta lists the leaves of a failed check against the dialect's schema.
func explainMeta(base string, e *jsonschema.ValidationError, rsn *reasons) {
	if len(e.Causes) > 0 {
		if _, ok := e.ErrorKind.(*libkind.AnyOf); !ok {
			for _, c := range e.Causes {
				explainMeta(base, c, rsn)
			}
			return
		}
	}
	ptr := base
	for _, tok := range e.InstanceLocation {
		ptr += "/" + escapeToken(tok)
	}
	_, what, _ := strings.Cut(e.Error(), "': ") // "at 'POINTER': MESSAGE"
	if _, ok := e.ErrorKind.(*libkind.AnyOf); ok {
		what = "the value is none of those that this keyword takes"
		if strings.HasSuffix(ptr, "/type") {
			what = "want one of array, boolean, integer, null, number, object, string, or a list of them"
		}
	}
	if k, ok := e.ErrorKind.(*libkind.ExclusiveMinimum); ok {
		want, _ := k.Want.Float64()
		what = fmt.Sprintf("want a number greater than %v", want)
	}
	rsn.add(ptr, "%s", clip(what, 160))
}
