package contract

import (
	"net/url"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// rootURL is where a contract is compiled. Its scheme is no protocol: a
// relative reference resolves to a place that nobody serves.
const rootURL = "headgate://contract/schema.json"

// location returns the pointer of a schema in the contract, or the URL of one
// outside of it.
func location(loc string) string {
	u, frag, _ := strings.Cut(loc, "#")
	if u != rootURL {
		return loc
	}
	if dec, err := url.PathUnescape(frag); err == nil {
		return dec
	}
	return frag
}

// resources finds the schema resource that a compiled schema belongs to, which
// the library keeps to itself.
type resources struct {
	lib  *jsonschema.Compiler
	low  *lowering
	docs map[string]*document // by URL
	raw  map[string]any       // documents at hand, by URL
}

// document holds the resources of one document, by the pointer of their root.
type document struct {
	byPtr map[string]*resource
}

func (r *resources) of(loc string) (*resource, error) {
	u, frag, _ := strings.Cut(loc, "#")
	d, err := r.document(u)
	if err != nil {
		return nil, err
	}
	ptr, err := url.PathUnescape(frag)
	if err != nil {
		ptr = frag
	}
	for {
		if res, ok := d.byPtr[ptr]; ok {
			return res, nil
		}
		slash := strings.LastIndexByte(ptr, '/')
		if slash < 0 {
			return d.byPtr[""], nil
		}
		ptr = ptr[:slash]
	}
}

func (r *resources) document(u string) (*document, error) {
	if d, ok := r.docs[u]; ok {
		return d, nil
	}
	root, err := r.lib.Compile(u)
	if err != nil {
		return nil, err
	}
	d := &document{byPtr: map[string]*resource{}}
	r.docs[u] = d
	res := &resource{root: r.low.node(root), recursiveAnchor: root.RecursiveAnchor, anchors: map[string]*node{}}
	d.byPtr[""] = res
	raw, ok := r.raw[u]
	if !ok { // one of the dialects' schemas: one resource each
		if root.DynamicAnchor != "" {
			res.anchors[root.DynamicAnchor] = res.root
		}
		return d, nil
	}
	return d, r.scan(u, raw, root.DraftVersion, d)
}

// scan finds the resources and dynamic anchors inside a document.
func (r *resources) scan(u string, raw any, draft int, d *document) error {
	base, err := url.Parse(u)
	if err != nil {
		return err
	}
	var failed error
	walkSchemas(raw, base, draft, func(p place) {
		if failed != nil || p.draft < 2019 {
			return
		}
		anchor, _ := p.obj["$dynamicAnchor"].(string)
		if !p.resource && anchor == "" {
			return
		}
		if p.ptr != "" && p.resource {
			s, err := r.lib.Compile(u + "#" + encodeFragment(p.ptr))
			if err != nil {
				failed = err
				return
			}
			d.byPtr[p.ptr] = &resource{root: r.low.node(s), recursiveAnchor: s.RecursiveAnchor, anchors: map[string]*node{}}
		}
		if anchor != "" && p.draft >= 2020 {
			s, err := r.lib.Compile(u + "#" + encodeFragment(p.ptr))
			if err != nil {
				failed = err
				return
			}
			nearestResource(d, p.ptr).anchors[anchor] = r.low.node(s)
		}
	})
	return failed
}

func nearestResource(d *document, ptr string) *resource {
	for {
		if res, ok := d.byPtr[ptr]; ok {
			return res
		}
		ptr = ptr[:strings.LastIndexByte(ptr, '/')]
	}
}

// encodeFragment writes a pointer as a URL fragment.
func encodeFragment(ptr string) string {
	toks := strings.Split(ptr, "/")
	for i, t := range toks {
		toks[i] = url.PathEscape(t)
	}
	return strings.Join(toks, "/")
}
