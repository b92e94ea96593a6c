package contract

import (
	"bytes"
	"fmt"
	"net/url"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/jsontext"
)

// MaxBundleBytes bounds the document that [Bundle] cuts from.
const MaxBundleBytes = 16 << 20

// Bundle cuts the definition at a JSON Pointer out of a schema document,
// together with everything that it refers to, as a schema of its own. The
// result accepts exactly what the definition accepts in its document.
//
// References must be local ("#", "#/…" or "#anchor"); a definition that
// reaches an identifier of its own ($id) or a dynamic reference is refused, as
// its meaning depends on where it stands. Errors have code contract_invalid,
// or not_found for a pointer that points at nothing.
func Bundle(document []byte, pointer string) ([]byte, error) {
	src, err := readSource(document)
	if err != nil {
		return nil, err
	}
	return src.bundle(pointer)
}

// source is a document to cut from.
type source struct {
	doc     any
	draft   int
	dialect string // $schema; empty when there is none
}

func readSource(document []byte) (*source, error) {
	if len(document) > MaxBundleBytes {
		return nil, headgate.NewError(headgate.CodeTooLarge, "the document has %d bytes, more than %d", len(document), MaxBundleBytes)
	}
	if fault := jsontext.Check(document, schemaLimits()); fault != nil {
		return nil, headgate.NewError(headgate.CodeContractInvalid, "%s", fault.Error())
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return nil, headgate.NewError(headgate.CodeContractInvalid, "%v", err)
	}
	src := &source{doc: doc, draft: 2020}
	if obj, ok := doc.(map[string]any); ok {
		if s, ok := obj["$schema"].(string); ok {
			if src.draft = draftOf(s); src.draft == 0 {
				return nil, headgate.NewError(headgate.CodeContractInvalid, "at /$schema: the dialect %s is not known", clipQuote(s))
			}
			src.dialect = s
		}
	}
	return src, nil
}

func (s *source) bundle(pointer string) ([]byte, error) {
	root, ok := lookupPointer(s.doc, pointer)
	if !ok {
		return nil, headgate.NewError(headgate.CodeNotFound, "the document has nothing at %s", clipQuote(pointer))
	}
	b := &bundler{doc: s.doc, draft: s.draft, root: pointer, names: map[string]string{}, defs: map[string]any{}, container: "$defs"}
	if s.draft < 2019 {
		b.container = "definitions"
	}
	out, err := b.assemble(root)
	if err != nil {
		return nil, err
	}
	if s.dialect != "" {
		out["$schema"] = s.dialect
	}
	return encodeSchema(out)
}

// bundler copies definitions into one schema and redirects what refers to
// them.
type bundler struct {
	doc       any
	draft     int
	root      string            // pointer of the definition that becomes the root
	names     map[string]string // pointer → name under the container
	defs      map[string]any    // name → copy
	container string            // $defs or definitions
	pending   []string          // pointers that were named and not yet copied
}

func (b *bundler) assemble(root any) (map[string]any, error) {
	switch root := root.(type) {
	case bool:
		if root {
			return map[string]any{}, nil
		}
		return map[string]any{"not": map[string]any{}}, nil
	case map[string]any:
	default:
		return nil, headgate.NewError(headgate.CodeContractInvalid, "there is no schema at %s", clipQuote(b.root))
	}
	top, ok := clone(root).(map[string]any)
	if !ok {
		return nil, headgate.NewError(headgate.CodeInternal, "a copy of an object is none")
	}
	if b.root == "" { // unused definitions of the document itself stay behind
		delete(top, "definitions")
		delete(top, "$defs")
	}
	own, _ := top[b.container].(map[string]any)
	for name := range own {
		b.defs[name] = nil // taken
	}
	if err := b.redirect(top); err != nil {
		return nil, err
	}
	for len(b.pending) > 0 {
		ptr := b.pending[0]
		b.pending = b.pending[1:]
		def, ok := lookupPointer(b.doc, ptr)
		if !ok {
			return nil, headgate.NewError(headgate.CodeContractInvalid, "a reference points at nothing: %s", clipQuote(ptr))
		}
		def = clone(def)
		if err := b.redirect(def); err != nil {
			return nil, err
		}
		b.defs[b.names[ptr]] = def
	}
	for name, def := range own {
		b.defs[name] = def
	}
	if len(b.defs) > 0 {
		top[b.container] = b.defs
	}
	return top, nil
}

// redirect rewrites the references inside a copy.
func (b *bundler) redirect(v any) error {
	base, err := url.Parse(rootURL)
	if err != nil {
		return headgate.NewError(headgate.CodeInternal, "%v", err)
	}
	var failed error
	fail := func(format string, args ...any) {
		if failed == nil {
			failed = headgate.NewError(headgate.CodeContractInvalid, format, args...)
		}
	}
	walkSchemas(v, base, b.draft, func(p place) {
		if p.resource {
			fail("at %s: a definition with an identifier of its own cannot be cut out", clip(p.ptr, 200))
		}
		for _, kw := range []string{"$dynamicRef", "$recursiveRef"} {
			if _, ok := p.obj[kw].(string); ok {
				fail("at %s/%s: a dynamic reference cannot be cut out", clip(p.ptr, 200), kw)
			}
		}
		delete(p.obj, "$anchor") // nothing refers to it any more, and a second copy would clash
		ref, ok := p.obj["$ref"].(string)
		if !ok {
			return
		}
		target, err := b.target(ref)
		if err != nil {
			fail("at %s/$ref: %v", clip(p.ptr, 200), err)
			return
		}
		p.obj["$ref"] = target
	})
	return failed
}

// target returns the reference that stands for ref in the bundle.
func (b *bundler) target(ref string) (string, error) {
	frag, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return "", fmt.Errorf("%s refers to another document", clipQuote(ref))
	}
	ptr, err := url.PathUnescape(frag)
	if err != nil {
		return "", fmt.Errorf("%s is not a URI reference", clipQuote(ref))
	}
	if ptr != "" && ptr[0] != '/' {
		if ptr, err = b.anchor(ptr); err != nil {
			return "", err
		}
	}
	if ptr == b.root {
		return "#", nil
	}
	name, ok := b.names[ptr]
	if !ok {
		name = b.newName(ptr)
		b.names[ptr], b.defs[name] = name, nil
		b.pending = append(b.pending, ptr)
	}
	return "#/" + b.container + "/" + encodeFragment(escapeToken(name)), nil
}

func (b *bundler) newName(ptr string) string {
	last := "root"
	if i := strings.LastIndexByte(ptr, '/'); i >= 0 {
		last = strings.ReplaceAll(strings.ReplaceAll(ptr[i+1:], "~1", "/"), "~0", "~")
	}
	name := last
	for i := 2; ; i++ {
		if _, taken := b.defs[name]; !taken {
			return name
		}
		name = fmt.Sprintf("%s_%d", last, i)
	}
}

func (b *bundler) anchor(name string) (string, error) {
	base, err := url.Parse(rootURL)
	if err != nil {
		return "", err
	}
	found, ok := "", false
	walkSchemas(b.doc, base, b.draft, func(p place) {
		if a, _ := p.obj["$anchor"].(string); a == name && !ok {
			found, ok = p.ptr, true
		}
	})
	if !ok {
		return "", fmt.Errorf("there is no anchor %s", clipQuote(name))
	}
	return found, nil
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = clone(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = clone(e)
		}
		return out
	default:
		return v
	}
}
