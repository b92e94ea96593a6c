package registry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/google/uuid"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/contract"
	"github.com/headgate/headgate/registry/compat"
	"github.com/headgate/headgate/store"
)

// Reference says that a schema refers to a version of a subject by a name.
type Reference struct {
	Name    string `json:"name"`
	Subject string `json:"subject"`
	Version int    `json:"version"`
}

// Submission is a schema as a client sends it.
type Submission struct {
	Type       compat.Kind // empty: Avro
	Schema     []byte
	References []Reference
	// Metadata and RuleSet are kept and returned as they are: JSON objects.
	Metadata, RuleSet json.RawMessage
	// ID and Version are demanded by an import; 0: none.
	ID, Version int
}

// Entry is one version of a subject as clients see it.
type Entry struct {
	Subject           string
	Version, ID       int
	GUID              string
	Type              compat.Kind
	Schema            []byte
	References        []Reference
	Metadata, RuleSet json.RawMessage
	Deleted           bool
}

// extras is how metadata and rules are stored.
type extras struct {
	Metadata json.RawMessage `json:"metadata,omitempty"`
	RuleSet  json.RawMessage `json:"ruleSet,omitempty"`
}

// Bounds of what a schema refers to.
const (
	maxReferences     = 64
	maxReferenceBytes = 1 << 20
)

// content is a submission that was read: what it refers to is at hand.
type content struct {
	Submission
	refs      []Reference // with full subjects
	documents []compat.Document
	identity  string
	extras    []byte
}

// read resolves the references of a submission and finds its identity. It
// does not check the schema.
func (r *Registry) read(ctx context.Context, tx *store.Tx, n name, s Submission) (*content, error) {
	if s.Type == "" {
		s.Type = compat.Avro
	}
	if s.Type != compat.Avro && s.Type != compat.JSON {
		return nil, fault(FaultInvalidSchema, "Invalid schema of type %s: this registry takes AVRO and JSON.", show(string(s.Type)))
	}
	if len(s.Schema) > contract.MaxSchemaBytes {
		return nil, fault(FaultTooLarge, "The schema is larger than %d bytes.", contract.MaxSchemaBytes)
	}
	c := &content{Submission: s}
	h := sha256.New()
	canon, err := contract.Canonical(s.Schema)
	if err != nil {
		return nil, fault(FaultInvalidSchema, "Invalid schema: %s", show(headgate.AsError(err).Detail))
	}
	h.Write([]byte("headgate schema\n" + string(s.Type) + "\n"))
	h.Write(canon)
	if err := r.resolve(ctx, tx, n, c, h.Write); err != nil {
		return nil, err
	}
	if c.extras, err = joinExtras(s.Metadata, s.RuleSet); err != nil {
		return nil, err
	}
	h.Write([]byte("\nextras "))
	h.Write(c.extras)
	c.identity = hex.EncodeToString(h.Sum(nil))
	return c, nil
}

func joinExtras(metadata, ruleSet json.RawMessage) ([]byte, error) {
	empty := func(m json.RawMessage) bool { return len(m) == 0 || string(m) == "null" }
	var e extras
	for _, p := range []struct {
		from json.RawMessage
		to   *json.RawMessage
	}{{metadata, &e.Metadata}, {ruleSet, &e.RuleSet}} {
		if empty(p.from) {
			continue
		}
		canon, err := contract.Canonical(p.from)
		if err != nil {
			return nil, fault(FaultInvalidSchema, "Invalid metadata or rules: %s", show(err.Error()))
		}
		*p.to = canon
	}
	if e.Metadata == nil && e.RuleSet == nil {
		return nil, nil
	}
	return json.Marshal(e)
}

// resolve reads what a submission refers to, each document after those that it
// needs, and feeds the identities of the direct ones to sum. The order in which
// references are written does not count.
func (r *Registry) resolve(ctx context.Context, tx *store.Tx, n name, c *content, sum func([]byte) (int, error)) error {
	if len(c.References) > maxReferences {
		return fault(FaultInvalidSchema, "Invalid schema: more than %d references.", maxReferences)
	}
	w := &refWalk{tx: tx, seen: map[string]bool{}}
	sorted := slices.Clone(c.References)
	slices.SortFunc(sorted, func(a, b Reference) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Version, b.Version))
	})
	for _, ref := range sorted {
		to, err := n.relative(ref.Subject)
		if err != nil {
			return err
		}
		ref.Subject = to.String()
		target, err := w.add(ctx, ref, c.Type)
		if err != nil {
			return err
		}
		if ref.Version < 1 {
			ref.Version = target.version
		}
		c.refs = append(c.refs, ref)
		_, _ = sum([]byte("\nreference " + ref.Name + "\n" + target.identity))
	}
	c.documents = w.documents
	return nil
}

// refWalk collects documents.
type refWalk struct {
	tx        *store.Tx
	seen      map[string]bool
	documents []compat.Document
	bytes     int
}

type refTarget struct {
	identity string
	version  int
}

func (w *refWalk) add(ctx context.Context, ref Reference, kind compat.Kind) (refTarget, error) {
	missing := fault(FaultInvalidSchema, "Invalid schema: there is no schema for the reference '%s' to version %d of subject '%s'.",
		show(ref.Name), ref.Version, show(ref.Subject))
	versions, err := w.tx.Registry.Versions(ctx, store.RegistryFilter{Subject: ref.Subject})
	if err != nil {
		return refTarget{}, err
	}
	var found *store.RegistryVersion
	for i, v := range versions {
		if v.Version == ref.Version || (ref.Version == -1 && !v.Deleted) {
			found = &versions[i]
		}
	}
	if ref.Name == "" || found == nil {
		return refTarget{}, missing
	}
	s, err := w.tx.Registry.Schema(ctx, found.Context, found.ID)
	if err != nil {
		return refTarget{}, err
	}
	if s.Type != string(kind) {
		return refTarget{}, fault(FaultInvalidSchema, "Invalid schema: the reference '%s' is of type %s.", show(ref.Name), s.Type)
	}
	target := refTarget{s.Identity, found.Version}
	if w.seen[ref.Name] {
		return target, nil
	}
	w.seen[ref.Name] = true
	if w.bytes += len(s.Text); w.bytes > maxReferenceBytes || len(w.seen) > maxReferences {
		return refTarget{}, fault(FaultTooLarge, "The schema refers to more than %d documents or %d bytes.", maxReferences, maxReferenceBytes)
	}
	for _, next := range readRefs(s.Refs) {
		if _, err := w.add(ctx, next, kind); err != nil {
			return refTarget{}, err
		}
	}
	w.documents = append(w.documents, compat.Document{Name: ref.Name, Text: s.Text})
	return target, nil
}

// readRefs reads stored references; what cannot be read was never written.
func readRefs(stored []byte) []Reference {
	var refs []Reference
	if len(stored) == 0 || json.Unmarshal(stored, &refs) != nil {
		return nil
	}
	return refs
}

// entryOf joins a version and its schema.
func entryOf(v store.RegistryVersion, s store.RegistrySchema) Entry {
	e := Entry{
		Subject: v.Subject, Version: v.Version, ID: s.ID, GUID: s.GUID, Type: compat.Kind(s.Type), Schema: s.Text,
		References: readRefs(s.Refs), Deleted: v.Deleted,
	}
	var x extras
	if len(s.Extras) > 0 && json.Unmarshal(s.Extras, &x) == nil {
		e.Metadata, e.RuleSet = x.Metadata, x.RuleSet
	}
	return e
}

// guidOf makes the GUID of an identity: the same in every context and node.
func guidOf(identity string) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("headgate schema "+identity)).String()
}
