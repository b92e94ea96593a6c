package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/registry/compat"
	"github.com/headgate/headgate/store"
)

// addition is one registration on its way.
type addition struct {
	name     name
	sub      Submission
	by       string
	compiled *contract.Contract // nil: to be compiled, where there is a contract to
	// unchanged returns the version that the submission is already, or nil.
	unchanged func(*state, *content) *store.RegistryVersion
}

// added is the outcome of an addition.
type added struct {
	version store.RegistryVersion
	created bool
}

// state is what a registration depends on, as of one snapshot.
type state struct {
	versions []store.RegistryVersion
	highest  int             // version ever used
	latest   *store.Contract // in use at the perimeter
	config   Compatibility
	mode     Mode
	stamp    string // equal for equal states
}

// look reads the state of a subject.
func (r *Registry) look(ctx context.Context, tx *store.Tx, n name) (*state, error) {
	var s state
	var err error
	if s.versions, err = tx.Registry.Versions(ctx, store.RegistryFilter{Subject: n.String()}); err != nil {
		return nil, err
	}
	if n.gated() {
		if s.highest, s.latest, err = versions(ctx, tx, n.plain); err != nil {
			return nil, err
		}
	}
	for _, v := range s.versions {
		s.highest = max(s.highest, v.Version)
	}
	if s.config, err = r.effective(ctx, tx, n); err != nil {
		return nil, err
	}
	if s.mode, err = r.effectiveMode(ctx, tx, n); err != nil {
		return nil, err
	}
	digest := ""
	if s.latest != nil {
		digest = s.latest.Digest
	}
	s.stamp = fmt.Sprint(s.versions, s.highest, digest, s.config.Level, s.config.Policy, s.mode)
	return &s, nil
}

// errChanged is what a write meets when its state is no longer so.
var errChanged = errors.New("registry: the subject changed")

// maxTries bounds how often a registration begins anew because its subject
// changed meanwhile.
const maxTries = 16

// add registers. Everything that takes long (compiling, comparing) is done on
// a snapshot; the write is done only if the subject is still the same.
func (r *Registry) add(ctx context.Context, a *addition) (added, error) {
	for try := range maxTries {
		if try == 1 { // from now on one after the other, at least in this process
			r.turn.Lock()
			defer r.turn.Unlock()
		}
		done, err := r.tryAdd(ctx, a)
		if !errors.Is(err, errChanged) {
			return done, err
		}
	}
	return added{}, headgate.NewError(headgate.CodeConflict, "the subject changes too fast: %q", show(a.name.String()))
}

func (r *Registry) tryAdd(ctx context.Context, a *addition) (added, error) {
	var s *state
	var c *content
	var earlier []compat.Schema
	var unchanged *store.RegistryVersion
	err := r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		if c, err = r.read(ctx, tx, a.name, a.sub); err != nil {
			return err
		}
		if s, err = r.look(ctx, tx, a.name); err != nil {
			return err
		}
		if unchanged, err = r.find(ctx, tx, a, s, c); err != nil || unchanged != nil {
			return err
		}
		if err := permitted(a, s); err != nil {
			return err
		}
		earlier, err = r.earlier(ctx, tx, s)
		return err
	})
	if err != nil {
		return added{}, err
	}
	if unchanged != nil {
		return added{version: *unchanged}, nil
	}
	compiled, err := r.checkContent(a.name, c, a.compiled)
	if err != nil {
		return added{}, err
	}
	if s.mode != Import {
		if err := compare(a.name, s, c, earlier); err != nil {
			return added{}, err
		}
	}
	return r.write(ctx, a, s, c, compiled)
}

// find looks for a version that the submission is already.
func (r *Registry) find(ctx context.Context, tx *store.Tx, a *addition, s *state, c *content) (*store.RegistryVersion, error) {
	if a.unchanged != nil {
		return a.unchanged(s, c), nil
	}
	v, err := identical(ctx, tx, a.name, s.versions, c)
	if err != nil || v == nil {
		return nil, err
	}
	if (a.sub.ID > 0 && a.sub.ID != v.ID) || (a.sub.Version > 0 && a.sub.Version != v.Version) {
		return nil, nil
	}
	return v, nil
}

// identical returns the highest live version that is the content.
func identical(ctx context.Context, tx *store.Tx, n name, versions []store.RegistryVersion, c *content) (*store.RegistryVersion, error) {
	schema, err := tx.Registry.FindSchema(ctx, n.context, c.identity)
	if headgate.CodeOf(err) == headgate.CodeNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for i := len(versions) - 1; i >= 0; i-- {
		if versions[i].ID == schema.ID && !versions[i].Deleted {
			return &versions[i], nil
		}
	}
	return nil, nil
}

// permitted refuses what the mode does not allow.
func permitted(a *addition, s *state) error {
	subject := show(a.name.String())
	switch {
	case s.mode == ReadOnly || s.mode == ReadOnlyOverride:
		return fault(FaultNotPermitted, "Subject %s is in read-only mode", subject)
	case s.mode != Import && a.sub.ID > 0:
		return fault(FaultNotPermitted, "Subject %s is not in import mode", subject)
	case s.mode != Import && a.sub.Version > 0 && a.sub.Version != s.highest+1:
		return fault(FaultInvalidSchema, "Version %d is not the next version of subject %s, which is %d", a.sub.Version, subject, s.highest+1)
	case slices.ContainsFunc(s.versions, func(v store.RegistryVersion) bool { return a.sub.Version > 0 && v.Version == a.sub.Version }):
		return fault(FaultIDMismatch, "Version %d of subject %s is another schema", a.sub.Version, subject)
	case a.name.gated() && a.sub.Version > 0 && a.sub.Version != s.highest+1:
		return fault(FaultNotPermitted, "Subject %s has contracts, whose versions have no gaps: the next one is %d", subject, s.highest+1)
	}
	return nil
}

// earlier returns the schemas that a new version is compared with.
func (r *Registry) earlier(ctx context.Context, tx *store.Tx, s *state) ([]compat.Schema, error) {
	if s.config.Level == compat.None || s.mode == Import {
		return nil, nil
	}
	versions := live(s.versions)
	if !s.config.Level.Transitive() && len(versions) > 0 {
		versions = versions[len(versions)-1:]
	}
	var out []compat.Schema
	for _, v := range versions {
		schema, err := readSchema(ctx, tx, v)
		if err != nil {
			return nil, err
		}
		out = append(out, schema)
	}
	return out, nil
}

// readSchema returns a stored version, with what it refers to, for comparison.
func readSchema(ctx context.Context, tx *store.Tx, v store.RegistryVersion) (compat.Schema, error) {
	s, err := tx.Registry.Schema(ctx, v.Context, v.ID)
	if err != nil {
		return compat.Schema{}, err
	}
	w := &refWalk{tx: tx, seen: map[string]bool{}}
	for _, ref := range readRefs(s.Refs) {
		if _, err := w.add(ctx, ref, compat.Kind(s.Type)); err != nil {
			return compat.Schema{}, err
		}
	}
	return compat.Schema{Kind: compat.Kind(s.Type), Text: s.Text, References: w.documents, Version: v.Version}, nil
}

// compare applies the level of compatibility.
func compare(n name, s *state, c *content, earlier []compat.Schema) error {
	next := compat.Schema{Kind: c.Type, Text: c.Schema, References: c.documents}
	differences := compat.Check(s.config.Level, s.config.Policy, next, earlier)
	if len(differences) == 0 && (s.latest == nil || s.latest.Draft || kindOf(s.latest.Type) == c.Type) {
		return nil
	}
	if len(differences) == 0 {
		return fault(FaultIncompatible, "Subject %s has a contract of type %s in use at the perimeter: delete it before it becomes %s.",
			show(n.String()), kindOf(s.latest.Type), c.Type)
	}
	return fault(FaultIncompatible, "Schema being registered is incompatible with an earlier schema for subject \"%s\" (compatibility: %s): %s",
		show(n.String()), s.config.Level, reasons(differences))
}

// reasons joins the first differences to one text.
func reasons(ds []compat.Difference) string {
	const most = 8
	lines := make([]string, 0, most)
	for _, d := range ds[:min(len(ds), most)] {
		lines = append(lines, show2(d.String()))
	}
	if n := len(ds) - most; n > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(lines, "; ")
}

// show2 cleans a line whose parts are bounded already.
func show2(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return '.'
		}
		return r
	}, s)
}

// checkContent refuses schemas that are none, and compiles those that the
// perimeter can enforce.
func (r *Registry) checkContent(n name, c *content, compiled *contract.Contract) (*contract.Contract, error) {
	if compiled == nil {
		var err error
		if compiled, err = r.compileContent(n, c); err != nil {
			return nil, err
		}
	}
	if !n.gated() {
		return nil, nil
	}
	return compiled, nil
}

// compileContent compiles a schema with what it refers to. In a subject that
// is no event type an Avro schema need only be one.
func (r *Registry) compileContent(n name, c *content) (*contract.Contract, error) {
	opts := &contract.CompileOpts{Policy: r.policy}
	text := c.Schema
	if c.Type == compat.Avro {
		for _, d := range c.documents {
			opts.References = append(opts.References, d.Text)
		}
	}
	switch {
	case c.Type == compat.Avro && !n.gated():
		if err := contract.ScreenAvro(c.Schema, opts.References); err != nil {
			return nil, fault(FaultInvalidSchema, "Invalid schema: %s", show2(headgate.AsError(err).Detail))
		}
		if err := compat.CheckAvro(c.Schema, c.documents); err != nil {
			return nil, fault(FaultInvalidSchema, "Invalid schema: %s", err)
		}
		return nil, nil
	case c.Type == compat.Avro:
		opts.Type = contract.TypeAvro
	default:
		var err error
		if text, err = bundle(c); err != nil {
			return nil, err
		}
	}
	compiled, _, err := contract.Compile(n.plain, 0, text, opts)
	if err != nil {
		return nil, fault(FaultInvalidSchema, "Invalid schema: %s", show2(headgate.AsError(err).Detail))
	}
	return compiled, nil
}

// kindOf says how clients of a registry call a type of contracts.
func kindOf(stored string) compat.Kind {
	if stored == string(contract.TypeAvro) {
		return compat.Avro
	}
	return compat.JSON
}

// bundle makes one document of a schema and all that it refers to: each is
// embedded under the name by which it is referred to.
func bundle(c *content) ([]byte, error) {
	if len(c.documents) == 0 {
		return c.Schema, nil
	}
	invalid := func(err error) error { return fault(FaultInvalidSchema, "Invalid schema: %s", show(err.Error())) }
	root := map[string]json.RawMessage{}
	if err := json.Unmarshal(c.Schema, &root); err != nil {
		return nil, invalid(err)
	}
	id, defs := "$id", "$defs"
	if d := string(root["$schema"]); strings.Contains(d, "draft-04") {
		id, defs = "id", "definitions"
	} else if strings.Contains(d, "draft-06") || strings.Contains(d, "draft-07") {
		defs = "definitions"
	}
	all := map[string]json.RawMessage{}
	if own := root[defs]; own != nil {
		if err := json.Unmarshal(own, &all); err != nil {
			return nil, invalid(err)
		}
	}
	for _, d := range c.documents {
		part := map[string]json.RawMessage{}
		if err := json.Unmarshal(d.Text, &part); err != nil {
			return nil, invalid(err)
		}
		delete(part, "$schema")
		part[id], _ = json.Marshal(d.Name)
		text, err := json.Marshal(part)
		if err != nil {
			return nil, invalid(err)
		}
		all["reference "+d.Name] = text
	}
	var err error
	if root[defs], err = json.Marshal(all); err != nil {
		return nil, invalid(err)
	}
	return json.Marshal(root)
}

// write commits a version, unless the subject changed since the snapshot.
func (r *Registry) write(ctx context.Context, a *addition, seen *state, c *content, compiled *contract.Contract) (added, error) {
	var done added
	err := r.store.Update(ctx, func(ctx context.Context, tx *store.Tx) error {
		done = added{}
		s, err := r.look(ctx, tx, a.name)
		if err != nil {
			return err
		}
		if s.stamp != seen.stamp {
			return errChanged
		}
		if len(c.refs) > 0 { // what it refers to may be gone by now, or another
			again, err := r.read(ctx, tx, a.name, a.sub)
			if err != nil {
				return err
			}
			if again.identity != c.identity {
				return errChanged
			}
		}
		version := s.highest + 1
		if a.sub.Version > 0 {
			version = a.sub.Version
		}
		if s.latest != nil && s.latest.Draft {
			if _, err := tx.Contracts.Delete(ctx, a.name.plain, s.latest.Version); err != nil {
				return err
			}
		}
		if compiled != nil {
			row := r.row(compiled, a.by)
			row.Version = version
			if err := tx.Contracts.Put(ctx, row); err != nil {
				return err
			}
		}
		done.created = true
		done.version, err = r.link(ctx, tx, a.name, version, c, a.sub.ID)
		return err
	})
	return done, err
}

// link gives a version its schema, under the id that the context has for the
// content, or a new one.
func (r *Registry) link(ctx context.Context, tx *store.Tx, n name, version int, c *content, id int) (store.RegistryVersion, error) {
	v := store.RegistryVersion{Subject: n.String(), Version: version, Context: n.context}
	schema, err := tx.Registry.FindSchema(ctx, n.context, c.identity)
	switch code := headgate.CodeOf(err); {
	case err == nil && (id == 0 || id == schema.ID):
		v.ID = schema.ID
	case err == nil:
		return v, fault(FaultIDMismatch, "Overwrite new schema with id %d is not permitted: the schema has id %d", id, schema.ID)
	case code == headgate.CodeNotFound:
		if v.ID, err = r.newSchema(ctx, tx, n.context, c, id); err != nil {
			return v, err
		}
	default:
		return v, err
	}
	var refs []store.RegistryReference
	for _, ref := range c.refs {
		refs = append(refs, store.RegistryReference{Subject: ref.Subject, Version: ref.Version})
	}
	return v, tx.Registry.PutVersion(ctx, v, refs)
}

func (r *Registry) newSchema(ctx context.Context, tx *store.Tx, space string, c *content, id int) (int, error) {
	last := 0
	if _, err := setting(ctx, tx, keyLastID+space, &last); err != nil {
		return 0, err
	}
	if id == 0 {
		id = last + 1
	} else if taken, err := tx.Registry.Schema(ctx, space, id); err == nil {
		return 0, fault(FaultIDMismatch, "Overwrite new schema with id %d is not permitted: the id is that of another schema, of type %s", id, taken.Type)
	} else if headgate.CodeOf(err) != headgate.CodeNotFound {
		return 0, err
	}
	if err := put(ctx, tx, keyLastID+space, max(last, id)); err != nil {
		return 0, err
	}
	s := store.RegistrySchema{
		Context: space, ID: id, Type: string(c.Type), Text: c.Schema, Extras: c.extras, Identity: c.identity, GUID: guidOf(c.identity),
	}
	if len(c.refs) > 0 {
		var err error
		if s.Refs, err = json.Marshal(c.refs); err != nil {
			return 0, err
		}
	}
	return id, tx.Registry.PutSchema(ctx, s)
}

// Submit registers a schema for a client: the same schema under a subject
// gives the version that it has. A JSON schema of a subject that can be an
// event type is a contract like any other.
//
// Refusals are *[Fault].
func (r *Registry) Submit(ctx context.Context, subject string, sub Submission, by string) (Entry, error) {
	n, err := parseSubject(subject)
	if err != nil {
		return Entry{}, err
	}
	done, err := r.add(ctx, &addition{name: n, sub: sub, by: by})
	if err != nil {
		return Entry{}, err
	}
	if done.created && n.gated() {
		if err := r.publish(context.WithoutCancel(ctx), n.plain, nil); err != nil {
			return Entry{}, err
		}
	}
	return r.Entry(ctx, n.String(), done.version.Version, WithDeleted)
}

// Find returns the version of a subject that a schema is. The fault says
// whether the subject or the schema is unknown.
func (r *Registry) Find(ctx context.Context, subject string, sub Submission, seen Seen) (Entry, error) {
	n, err := parseSubject(subject)
	if err != nil {
		return Entry{}, err
	}
	var e Entry
	err = r.store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		all, err := tx.Registry.Versions(ctx, store.RegistryFilter{Subject: n.String()})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(all, seen.sees) {
			return noSubject(subject)
		}
		c, err := r.read(ctx, tx, n, sub)
		if err != nil {
			return err
		}
		schema, err := tx.Registry.FindSchema(ctx, n.context, c.identity)
		if err != nil && headgate.CodeOf(err) != headgate.CodeNotFound {
			return err
		}
		for i := len(all) - 1; i >= 0 && err == nil; i-- {
			if all[i].ID == schema.ID && seen.sees(all[i]) {
				e = entryOf(all[i], schema)
				return nil
			}
		}
		return fault(FaultSchemaNotFound, "Schema not found")
	})
	return e, err
}

// Compare tells why a schema could not be registered beside a version
// ([Latest]; 0: as the subject's level demands). None: it could.
func (r *Registry) Compare(ctx context.Context, subject string, version int, sub Submission) ([]compat.Difference, error) {
	n, err := parseSubject(subject)
	if err != nil {
		return nil, err
	}
	var c *content
	var s *state
	var earlier []compat.Schema
	err = r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		if c, err = r.read(ctx, tx, n, sub); err != nil {
			return err
		}
		if s, err = r.look(ctx, tx, n); err != nil {
			return err
		}
		if version == 0 {
			earlier, err = r.earlier(ctx, tx, s)
			return err
		}
		all := live(s.versions)
		if version == Latest && len(all) == 0 {
			return nil // there is nothing to be incompatible with
		}
		if len(all) == 0 {
			return noSubject(subject)
		}
		i := slices.IndexFunc(all, func(v store.RegistryVersion) bool { return v.Version == version })
		if version == Latest {
			i = len(all) - 1
		}
		if i < 0 {
			return fault(FaultVersionNotFound, "Version %d not found.", version)
		}
		old, err := readSchema(ctx, tx, all[i])
		earlier = []compat.Schema{old}
		return err
	})
	if err != nil {
		return nil, err
	}
	if _, err := r.checkContent(n, c, nil); err != nil {
		return nil, err
	}
	next := compat.Schema{Kind: c.Type, Text: c.Schema, References: c.documents}
	return compat.Check(s.config.Level, s.config.Policy, next, earlier), nil
}
