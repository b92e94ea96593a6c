package contract

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"strings"
)

// reasons collects why a contract is refused, each with the place of the
// fault. It keeps the first maxReasons and counts the rest.
type reasons struct {
	list []string
	more int
}

const maxReasons = 10

func (r *reasons) add(ptr, format string, args ...any) {
	if len(r.list) >= maxReasons {
		r.more++
		return
	}
	r.list = append(r.list, "at "+placeWords(ptr)+": "+fmt.Sprintf(format, args...))
}

func (r *reasons) empty() bool { return len(r.list) == 0 }

func (r *reasons) String() string {
	s := strings.Join(r.list, "; ")
	if r.more > 0 {
		s += fmt.Sprintf("; and %d more", r.more)
	}
	return s
}

// lint looks at a schema document before the library compiles it: what the
// library would fetch, leave unchecked, or read wrongly is refused here, with
// the pointer of the keyword.
type lint struct {
	doc     any
	opts    *compileHooks
	rsn     *reasons
	places  []place
	ids     map[string]bool // absolute URLs of resources in the document
	counted int             // enum values
	warn    []Warning
}

// Bounds of what one document may hold.
const (
	maxEnumValues = 16384
	maxResources  = 256
)

func (l *lint) run(root *url.URL, draft int) {
	l.ids = map[string]bool{root.String(): true}
	resources := 0
	walkSchemas(l.doc, root, draft, func(p place) {
		l.places = append(l.places, p)
		if p.resource {
			l.ids[p.base.String()] = true
			resources++
		}
	})
	if len(l.places) > maxDocumentSchemas {
		l.rsn.add("", "the document holds %d schemas, more than %d", len(l.places), maxDocumentSchemas)
		return
	}
	if resources > maxResources {
		l.rsn.add("", "the document holds %d schemas with an identifier of their own, more than %d", resources, maxResources)
		return
	}
	for _, p := range l.places {
		l.place(p)
	}
	if l.counted > maxEnumValues {
		l.rsn.add("", "the document lists %d enum values, more than %d", l.counted, maxEnumValues)
	}
}

func (l *lint) place(p place) {
	ref, hasRef := p.obj["$ref"].(string)
	if hasRef {
		l.reference(p, "$ref", ref)
		if p.draft < 2019 {
			l.refSiblings(p)
			return // the drafts before 2019-09 ignore what stands beside it
		}
	}
	for _, kw := range []string{"$dynamicRef", "$recursiveRef"} {
		if ref, ok := p.obj[kw].(string); ok {
			l.reference(p, kw, ref)
		}
	}
	if s, ok := p.obj["$schema"].(string); ok && p.ptr != "" && p.resource && draftOf(s) == 0 && !l.opts.known(s) {
		l.rsn.add(p.ptr+"/$schema", "the dialect %s is not known; nothing is fetched", clipQuote(s))
	}
	if s, ok := p.obj["pattern"].(string); ok {
		if _, err := compilePattern(s); err != nil {
			l.rsn.add(p.ptr+"/pattern", "%v", err)
		}
	}
	if m, ok := p.obj["patternProperties"].(map[string]any); ok {
		for _, src := range sortedKeys(m) {
			if _, err := compilePattern(src); err != nil {
				l.rsn.add(p.ptr+"/patternProperties/"+escapeToken(src), "%v", err)
			}
		}
	}
	if s, ok := p.obj["format"].(string); ok && lookupFormat(s) == nil && !l.opts.anyFormat {
		l.unknownFormat(p.ptr+"/format", s)
	}
	if list, ok := p.obj["enum"].([]any); ok {
		l.counted += len(list)
	}
	for _, kw := range countKeywords {
		if n, ok := p.obj[kw].(json.Number); ok {
			l.count(p.ptr+"/"+kw, n)
		}
	}
	l.properties(p)
}

// countKeywords are the keywords whose value counts something.
var countKeywords = [...]string{
	"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains",
}

// count refuses counts beyond 2^53, which the library would wrap around.
func (l *lint) count(ptr string, n json.Number) {
	if r := ratOf([]byte(n)); r.Cmp(new(big.Rat).SetInt64(1<<53)) > 0 {
		l.rsn.add(ptr, "%s is larger than 2^53; leave the keyword out", clip(string(n), 40))
	}
}

func (l *lint) unknownFormat(ptr, name string) {
	advice := "."
	if near := nearest(name, Formats()); len(near) > 0 {
		advice = fmt.Sprintf("; did you mean %s?", near[0])
	}
	l.rsn.add(ptr, "the format %s is not checked here, so it cannot be promised%s Use one of %s, or a pattern",
		clipQuote(name), advice, strings.Join(Formats(), ", "))
}

// reference refuses a reference that leaves the document. Only the dialects'
// own schemas may be named from outside.
func (l *lint) reference(p place, kw, ref string) {
	ptr := p.ptr + "/" + kw
	target, fragment, _ := strings.Cut(ref, "#")
	u, err := url.Parse(target)
	if err != nil {
		l.rsn.add(ptr, "%s is not a URI reference", clipQuote(ref))
		return
	}
	abs := resolveURL(p.base, u)
	if !l.ids[abs.String()] {
		if isMetaURL(abs) || l.opts.known(abs.String()) {
			return
		}
		where := ""
		if abs.Scheme != p.base.Scheme || abs.String() != ref && p.base.String() != rootURL {
			where = ", that is " + clipQuote(abs.String()) + ","
		}
		l.rsn.add(ptr, "%s%s is outside of this document and nothing is fetched: copy it under $defs and refer to it there", clipQuote(ref), where)
		return
	}
	if target == "" && strings.HasPrefix(fragment, "/") && p.base.String() == rootURL {
		if frag, err := url.PathUnescape(fragment); err != nil {
			l.rsn.add(ptr, "%s is not a URI reference", clipQuote(ref))
		} else if _, ok := lookupPointer(l.doc, frag); !ok {
			l.rsn.add(ptr, "%s points at nothing in this document", clipQuote(ref))
		}
	}
}

func isMetaURL(u *url.URL) bool {
	return (u.Scheme == "http" || u.Scheme == "https") && u.Host == "json-schema.org"
}

// refSiblings warns of keywords that the drafts up to 7 ignore.
func (l *lint) refSiblings(p place) {
	var ignored []string
	for _, name := range sortedKeys(p.obj) {
		switch name {
		case "$ref", "$schema", "$id", "id", "$comment", "title", "description", "default", "examples", "definitions", "$defs", "readOnly", "writeOnly", "deprecated":
		default:
			ignored = append(ignored, name)
		}
	}
	if len(ignored) > 0 {
		l.warn = append(l.warn, Warning{
			Code: WarnRefSiblings, At: p.ptr,
			Detail: fmt.Sprintf("this draft ignores what stands beside $ref: %s; put both under allOf", clip(strings.Join(ignored, ", "), 120)),
		})
	}
}

// properties warns of names that are easily taken for one another.
func (l *lint) properties(p place) {
	if req, ok := p.obj["required"].([]any); ok {
		props, _ := p.obj["properties"].(map[string]any)
		for _, r := range req {
			name, ok := r.(string)
			if _, declared := props[name]; ok && !declared && len(props) > 0 {
				if near := nearest(name, sortedKeys(props)); len(near) > 0 && !slices.Contains(req, any(near[0])) {
					l.warn = append(l.warn, Warning{
						Code: WarnRequiredUndeclared, At: p.ptr + "/required",
						Detail: fmt.Sprintf("%s is required but not declared; did you mean %s?", clipQuote(name), clipQuote(near[0])),
					})
				}
			}
		}
	}
}
