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
// fault.
type reasons struct {
	list []string
	more int
}

// Bounds of the reasons that are kept and that are told.
const (
	keptReasons = 1000
	toldReasons = 10
)

func (r *reasons) add(ptr, format string, args ...any) {
	if len(r.list) >= keptReasons {
		r.more++
		return
	}
	r.list = append(r.list, "at "+placeWords(ptr)+": "+fmt.Sprintf(format, args...))
}

func (r *reasons) empty() bool { return len(r.list) == 0 }

// String tells the first reasons in the order of their places, which does not
// depend on the order in which they were found.
func (r *reasons) String() string {
	told := slices.Compact(slices.Sorted(slices.Values(r.list)))
	more := r.more
	if len(told) > toldReasons {
		more += len(told) - toldReasons
		told = told[:toldReasons]
	}
	s := strings.Join(told, "; ")
	if more > 0 {
		s += fmt.Sprintf("; and %d more", more)
	}
	return s
}

// lint looks at a schema document before the library compiles it: what the
// library would fetch, leave unchecked, or read wrongly is refused here, with
// the pointer of the keyword.
type lint struct {
	doc    any
	opts   *compileHooks
	rsn    *reasons
	places []place
	ids    map[string]string // absolute URL of a resource in the document → its pointer
	known  map[string]bool   // pointers of the schemas that were found
	// strays counts the references to places where no keyword puts a schema.
	strays int
	enums  int // enum values
	// patterns and steps count the patterns and their programs.
	patterns, steps int
	resources       int
	warn            []Warning
	notes           map[string]*annotation // by pointer
	repair          RepairMode
}

// Bounds of what one document may hold. The work of the schema library grows
// with the product of some of them.
const (
	maxEnumValues   = 16384
	maxResources    = 256
	maxStrays       = 64
	maxPatterns     = 1024
	maxPatternSteps = 1 << 16
)

func (l *lint) run(root *url.URL, draft int) {
	l.ids, l.known = map[string]string{root.String(): ""}, map[string]bool{}
	l.notes, l.repair = map[string]*annotation{}, RepairPropose
	l.collect(l.doc, "", root, draft)
	for i := 0; i < len(l.places); i++ { // a reference may add to them
		if len(l.places) > maxDocumentSchemas {
			l.rsn.add("", "the document holds more than %d schemas", maxDocumentSchemas)
			return
		}
		if l.resources > maxResources {
			l.rsn.add("", "the document holds %d schemas with an identifier of their own, more than %d", l.resources, maxResources)
			return
		}
		if l.strays > maxStrays {
			l.rsn.add("", "more than %d references point at places that hold no schema by any keyword: move their targets under $defs", maxStrays)
			return
		}
		l.place(l.places[i])
	}
	if l.enums > maxEnumValues {
		l.rsn.add("", "the document lists %d enum values, more than %d", l.enums, maxEnumValues)
	}
}

// collect notes the schemas at and below a pointer.
func (l *lint) collect(v any, ptr string, base *url.URL, draft int) {
	w := walker{fn: func(p place) {
		if l.known[p.ptr] {
			return
		}
		l.known[p.ptr] = true
		l.places = append(l.places, p)
		if p.resource {
			if _, taken := l.ids[p.base.String()]; !taken {
				l.ids[p.base.String()] = p.ptr
			}
			l.resources++
		}
	}}
	w.schema(v, ptr, base, draft)
}

func (l *lint) place(p place) {
	l.annotate(p)
	l.weaknesses(p)
	ref, hasRef := p.obj["$ref"].(string)
	if hasRef {
		l.reference(p, "$ref", ref)
		if p.draft < 2019 {
			if _, ok := p.obj["const"]; ok && p.draft > 4 {
				// Validators disagree on this one, the library among them.
				l.rsn.add(p.ptr+"/const", "this draft ignores what stands beside $ref: put both under allOf")
			}
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
		l.pattern(p.ptr+"/pattern", s)
	}
	if m, ok := p.obj["patternProperties"].(map[string]any); ok {
		for _, src := range sortedKeys(m) {
			l.pattern(p.ptr+"/patternProperties/"+escapeToken(src), src)
		}
	}
	if s, ok := p.obj["format"].(string); ok && lookupFormat(s) == nil && !l.opts.anyFormat {
		l.unknownFormat(p.ptr+"/format", s)
	}
	if list, ok := p.obj["enum"].([]any); ok {
		l.enums += len(list)
	}
	for _, kw := range countKeywords {
		if n, ok := p.obj[kw].(json.Number); ok {
			l.count(p.ptr+"/"+kw, n)
		}
	}
	l.properties(p)
}

// pattern compiles a pattern. All patterns of a document together are bounded,
// as each is compiled more than once.
func (l *lint) pattern(ptr, src string) {
	if l.patterns++; l.patterns > maxPatterns || l.steps > maxPatternSteps {
		l.rsn.add("", "the patterns of the document are too many or too long: at most %d, of %d steps together", maxPatterns, maxPatternSteps)
		return
	}
	re, err := compilePattern(src)
	if err != nil {
		l.rsn.add(ptr, "%v", err)
		return
	}
	l.steps += re.steps
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
	reference, fragment, _ := strings.Cut(ref, "#")
	u, err := url.Parse(reference)
	if err != nil {
		l.rsn.add(ptr, "%s is not a URI reference", clipQuote(ref))
		return
	}
	abs := resolveURL(p.base, u)
	resource, inside := l.ids[abs.String()]
	if !inside {
		l.outside(p, ptr, ref, abs)
		return
	}
	if fragment != "" && fragment[0] != '/' {
		return // an anchor: the library finds it or says so
	}
	frag, err := url.PathUnescape(fragment)
	if err != nil {
		l.rsn.add(ptr, "%s is not a URI reference", clipQuote(ref))
		return
	}
	target := resource + frag
	v, ok := lookupPointer(l.doc, target)
	switch {
	case !ok:
		l.rsn.add(ptr, "%s points at nothing in this document", clipQuote(ref))
	case !l.known[target]:
		// What no keyword holds is a schema all the same once it is referred to.
		if _, ok := v.(map[string]any); ok {
			l.strays++
			l.collect(v, target, abs, p.draft)
		}
	}
}

// outside refuses a reference that leaves the document, unless it names one of
// the dialects' own schemas.
func (l *lint) outside(p place, ptr, ref string, abs *url.URL) {
	if isMetaURL(abs) || l.opts.known(abs.String()) {
		return
	}
	where := ""
	if abs.Scheme != p.base.Scheme || abs.String() != ref && p.base.String() != rootURL {
		where = ", that is " + clipQuote(abs.String()) + ","
	}
	l.rsn.add(ptr, "%s%s is outside of this document and nothing is fetched: copy it under $defs and refer to it there", clipQuote(ref), where)
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
			if strings.HasPrefix(name, keyPrefix) {
				continue // ours are read there all the same
			}
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
