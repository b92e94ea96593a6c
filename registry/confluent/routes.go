package confluent

import (
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/registry"
	"github.com/headgate/headgate/registry/compat"
)

func (f *face) routes() {
	f.mux = http.NewServeMux()
	f.on("GET /{$}", reads, func(*call) (answer, error) { return answer{body: struct{}{}}, nil })
	f.on("POST /{$}", reads, func(*call) (answer, error) { return answer{body: struct{}{}}, nil })

	f.on("GET /schemas", reads, listSchemas)
	f.on("GET /schemas/types", reads, func(*call) (answer, error) {
		return answer{body: []compat.Kind{compat.JSON, compat.Avro}}, nil
	})
	f.on("GET /schemas/ids/{id}", reads, schemaByID)
	f.on("GET /schemas/ids/{id}/schema", reads, schemaText)
	f.on("GET /schemas/ids/{id}/subjects", reads, subjectsOfID)
	f.on("GET /schemas/ids/{id}/versions", reads, versionsOfID)
	f.on("GET /schemas/guids/{guid}", reads, schemaByGUID)
	f.on("GET /schemas/guids/{guid}/ids", reads, idsOfGUID)

	f.on("GET /subjects", reads, listSubjects)
	f.on("POST /subjects/{subject}", reads, lookUp)
	f.on("DELETE /subjects/{subject}", registers, deleteSubject)
	f.on("GET /subjects/{subject}/metadata", reads, latestWith)
	f.on("GET /subjects/{subject}/versions", reads, listVersions)
	f.on("POST /subjects/{subject}/versions", registers, register)
	f.on("GET /subjects/{subject}/versions/{version}", reads, getVersion)
	f.on("GET /subjects/{subject}/versions/{version}/schema", reads, getVersionText)
	f.on("GET /subjects/{subject}/versions/{version}/referencedby", reads, referencedBy)
	f.on("DELETE /subjects/{subject}/versions/{version}", registers, deleteVersion)

	f.on("POST /compatibility/subjects/{subject}/versions", reads, testAll)
	f.on("POST /compatibility/subjects/{subject}/versions/{version}", reads, testOne)

	for _, path := range []string{"/config", "/config/{subject}"} {
		f.on("GET "+path, reads, getConfig)
		f.on("PUT "+path, registers, putConfig)
		f.on("DELETE "+path, registers, deleteConfig)
	}
	for _, path := range []string{"/mode", "/mode/{subject}"} {
		f.on("GET "+path, reads, getMode)
		f.on("PUT "+path, operates, putMode)
		f.on("DELETE "+path, operates, deleteMode)
	}
	f.on("GET /contexts", reads, listContexts)
	f.on("DELETE /contexts/{context}", registers, deleteContext)
	f.on("GET /v1/metadata/id", reads, func(*call) (answer, error) {
		return answer{body: map[string]any{"scope": map[string]any{
			"path": []string{}, "clusters": map[string]string{"kafka-cluster": "headgate", "schema-registry-cluster": "headgate"},
		}}}, nil
	})
	f.on("GET /v1/metadata/version", reads, func(c *call) (answer, error) {
		return answer{body: map[string]string{"version": c.face.cfg.Version, "commitId": ""}}, nil
	})
}

func listSubjects(c *call) (answer, error) {
	prefix := ":*:"
	if c.query.Has("subjectPrefix") {
		prefix = c.query.Get("subjectPrefix")
	}
	if c.context != "" && !strings.HasPrefix(prefix, ":.") {
		prefix = c.qualify(strings.TrimPrefix(prefix, ":*:"))
	}
	all, err := c.face.cfg.Registry.ListSubjects(c.Context(), prefix, c.seen())
	return answer{body: window(c, all)}, err
}

// window cuts a list to offset and limit.
func window[T any](c *call, all []T) []T {
	all = all[min(c.count("offset"), len(all)):]
	if n := c.count("limit"); n > 0 {
		all = all[:min(n, len(all))]
	}
	if all == nil {
		all = []T{}
	}
	return all
}

func listSchemas(c *call) (answer, error) {
	prefix := ":*:"
	if c.query.Has("subjectPrefix") {
		prefix = c.query.Get("subjectPrefix")
	}
	if c.context != "" && !strings.HasPrefix(prefix, ":.") {
		prefix = c.qualify(strings.TrimPrefix(prefix, ":*:"))
	}
	limit := c.count("limit")
	if limit == 0 || limit > 1000 {
		limit = 1000
	}
	var all []registry.Entry
	var err error
	if rule := c.query.Get("ruleType"); rule != "" {
		all, err = c.withRule(prefix, rule, limit)
	} else {
		all, err = c.face.cfg.Registry.Entries(c.Context(), prefix, c.seen(), c.flag("latestOnly"), c.count("offset"), limit)
	}
	out := make([]described, len(all))
	for i := range all {
		out[i] = c.describe(&all[i])
	}
	return answer{body: out}, err
}

// withRule lists versions that have a rule of a type.
func (c *call) withRule(prefix, rule string, limit int) ([]registry.Entry, error) {
	var out []registry.Entry
	leave := c.count("offset")
	for skip := 0; ; {
		page, err := c.face.cfg.Registry.Entries(c.Context(), prefix, c.seen(), c.flag("latestOnly"), skip, 0)
		if err != nil || len(page) == 0 {
			return out, err
		}
		skip += len(page)
		for i := range page {
			switch {
			case !page[i].HasRule(rule):
			case leave > 0:
				leave--
			default:
				if out = append(out, page[i]); len(out) == limit {
					return out, nil
				}
			}
		}
	}
}

// byID reads the schema of the id in the path.
func (c *call) byID() (registry.Entry, error) {
	id, err := c.id()
	if err != nil {
		return registry.Entry{}, err
	}
	return c.face.cfg.Registry.Schema(c.Context(), c.qualify(c.query.Get("subject")), id)
}

func schemaByID(c *call) (answer, error) {
	e, err := c.byID()
	if err != nil {
		return answer{}, err
	}
	d := c.bare(&e)
	if c.flag("fetchMaxId") {
		d.MaxID, err = c.face.cfg.Registry.MaxID(c.Context(), c.qualify(c.query.Get("subject")))
	}
	return answer{body: d}, err
}

func schemaText(c *call) (answer, error) {
	e, err := c.byID()
	return answer{raw: e.Schema}, err
}

func subjectsOfID(c *call) (answer, error) {
	id, err := c.id()
	if err != nil {
		return answer{}, err
	}
	uses, err := c.face.cfg.Registry.Uses(c.Context(), c.qualify(c.query.Get("subject")), id, c.seen())
	out := []string{}
	for _, v := range uses {
		if len(out) == 0 || out[len(out)-1] != v.Subject {
			out = append(out, v.Subject)
		}
	}
	return answer{body: window(c, out)}, err
}

type subjectVersion struct {
	Subject string `json:"subject"`
	Version int    `json:"version"`
}

func versionsOfID(c *call) (answer, error) {
	id, err := c.id()
	if err != nil {
		return answer{}, err
	}
	uses, err := c.face.cfg.Registry.Uses(c.Context(), c.qualify(c.query.Get("subject")), id, c.seen())
	out := []subjectVersion{}
	for _, v := range uses {
		out = append(out, subjectVersion{v.Subject, v.Version})
	}
	return answer{body: window(c, out)}, err
}

func schemaByGUID(c *call) (answer, error) {
	all, err := c.face.cfg.Registry.ByGUID(c.Context(), c.PathValue("guid"))
	if err != nil {
		return answer{}, err
	}
	return answer{body: c.bare(&all[0])}, nil
}

func idsOfGUID(c *call) (answer, error) {
	type contextID struct {
		Context string `json:"context"`
		ID      int    `json:"id"`
	}
	all, err := c.face.cfg.Registry.ByGUID(c.Context(), c.PathValue("guid"))
	out := []contextID{}
	for _, e := range all {
		out = append(out, contextID{e.Subject, e.ID})
	}
	return answer{body: out}, err
}

func lookUp(c *call) (answer, error) {
	s, err := c.submission()
	if err != nil {
		return answer{}, err
	}
	e, err := c.face.cfg.Registry.Find(c.Context(), c.subject(), s, c.seen())
	return answer{body: c.describe(&e)}, err
}

func register(c *call) (answer, error) {
	s, err := c.submission()
	if err != nil {
		return answer{}, err
	}
	e, err := c.face.cfg.Registry.Submit(c.Context(), c.subject(), s, c.principal.Name)
	if c.takesUnknown() {
		d := c.describe(&e)
		d.Subject = ""
		return answer{body: d}, err
	}
	return answer{body: map[string]int{"id": e.ID}}, err
}

func listVersions(c *call) (answer, error) {
	all, err := c.face.cfg.Registry.ListVersions(c.Context(), c.subject(), c.seen())
	return answer{body: window(c, all)}, err
}

func (c *call) entry() (registry.Entry, error) {
	v, err := c.version()
	if err != nil {
		return registry.Entry{}, err
	}
	return c.face.cfg.Registry.Entry(c.Context(), c.subject(), v, c.seen())
}

func getVersion(c *call) (answer, error) {
	e, err := c.entry()
	return answer{body: c.describe(&e)}, err
}

// latestWith pairs the values of key and value in order; what is left over of
// one of them says nothing.
func latestWith(c *call) (answer, error) {
	keys, values := c.query["key"], c.query["value"]
	properties := map[string]string{}
	for i := range min(len(keys), len(values)) {
		properties[keys[i]] = values[i]
	}
	e, err := c.face.cfg.Registry.EntryWith(c.Context(), c.subject(), properties, c.seen())
	return answer{body: c.describe(&e)}, err
}

func getVersionText(c *call) (answer, error) {
	e, err := c.entry()
	return answer{raw: e.Schema}, err
}

func referencedBy(c *call) (answer, error) {
	v, err := c.version()
	if err != nil {
		return answer{}, err
	}
	ids, err := c.face.cfg.Registry.ReferencedBy(c.Context(), c.subject(), v, c.seen())
	return answer{body: window(c, ids)}, err
}

func deleteVersion(c *call) (answer, error) {
	v, err := c.version()
	if err != nil {
		return answer{}, err
	}
	n, err := c.face.cfg.Registry.Remove(c.Context(), c.subject(), v, c.flag("permanent"))
	return answer{body: n}, err
}

func deleteSubject(c *call) (answer, error) {
	all, err := c.face.cfg.Registry.RemoveSubject(c.Context(), c.subject(), c.flag("permanent"))
	return answer{body: all}, err
}

type compatible struct {
	Compatible bool      `json:"is_compatible"`
	Messages   *[]string `json:"messages,omitempty"`
}

func (c *call) test(version int) (answer, error) {
	s, err := c.submission()
	if err != nil {
		return answer{}, err
	}
	ds, err := c.face.cfg.Registry.Compare(c.Context(), c.subject(), version, s)
	if err != nil {
		return answer{}, err
	}
	out := compatible{Compatible: len(ds) == 0}
	if c.flag("verbose") {
		messages := []string{}
		for _, d := range ds {
			messages = append(messages, d.String())
		}
		out.Messages = &messages
	}
	return answer{body: out}, nil
}

func testAll(c *call) (answer, error) { return c.test(0) }

func testOne(c *call) (answer, error) {
	v, err := c.version()
	if err != nil {
		return answer{}, err
	}
	return c.test(v)
}

func listContexts(c *call) (answer, error) {
	all, err := c.face.cfg.Registry.Contexts(c.Context())
	prefix := strings.TrimPrefix(c.query.Get("contextPrefix"), ":")
	all = slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	return answer{body: window(c, all)}, err
}

func deleteContext(c *call) (answer, error) {
	err := c.face.cfg.Registry.RemoveContext(c.Context(), strings.Trim(c.PathValue("context"), ":"))
	return answer{status: http.StatusNoContent}, err
}
