package registry

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Seen says which versions a question is about.
type Seen int

// What is seen: versions in use, those that are softly deleted too, or those alone.
const (
	Live Seen = iota
	WithDeleted
	OnlyDeleted
)

func (s Seen) sees(v store.RegistryVersion) bool {
	return s == WithDeleted || v.Deleted == (s == OnlyDeleted)
}

// ListSubjects returns the subjects that start with a prefix, in order.
// ":*:" at its start means every context, none the default one.
func (r *Registry) ListSubjects(ctx context.Context, prefix string, seen Seen) ([]string, error) {
	rows, err := r.browse(ctx, prefix, seen)
	if err != nil {
		return nil, err
	}
	out := []string{}
	for _, v := range rows {
		if len(out) == 0 || out[len(out)-1] != v.Subject {
			out = append(out, v.Subject)
		}
	}
	return out, nil
}

// browse returns versions by the prefix of their subjects.
func (r *Registry) browse(ctx context.Context, prefix string, seen Seen) ([]store.RegistryVersion, error) {
	plain, everywhere := strings.CutPrefix(prefix, ":*:")
	n := name{DefaultContext, plain}
	f := store.RegistryFilter{}
	if !everywhere {
		var err error
		if n, err = parseName(prefix); err != nil {
			return nil, err
		}
		f.Prefix = n.String()
	}
	var rows []store.RegistryVersion
	err := r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		rows, err = tx.Registry.Versions(ctx, f)
		return err
	})
	return slices.DeleteFunc(rows, func(v store.RegistryVersion) bool {
		own, _ := parseName(v.Subject)
		return !seen.sees(v) || !strings.HasPrefix(own.plain, n.plain) || (!everywhere && own.context != n.context)
	}), err
}

// ListVersions returns the numbers of a subject's versions, in order.
func (r *Registry) ListVersions(ctx context.Context, subject string, seen Seen) ([]int, error) {
	n, err := parseSubject(subject)
	if err != nil {
		return nil, err
	}
	var out []int
	err = r.store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Registry.Versions(ctx, store.RegistryFilter{Subject: n.String()})
		for _, v := range rows {
			if seen.sees(v) {
				out = append(out, v.Version)
			}
		}
		return err
	})
	if err == nil && len(out) == 0 {
		err = noSubject(subject)
	}
	return out, err
}

func noSubject(subject string) error {
	return fault(FaultSubjectNotFound, "Subject '%s' not found.", show(subject))
}

// Latest is the version number that means the highest one in use.
const Latest = -1

// Entry returns a version, or [Latest].
func (r *Registry) Entry(ctx context.Context, subject string, version int, seen Seen) (Entry, error) {
	n, err := parseSubject(subject)
	if err != nil {
		return Entry{}, err
	}
	var e Entry
	err = r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		e, err = entry(ctx, tx, n, version, seen)
		return err
	})
	return e, err
}

func entry(ctx context.Context, tx *store.Tx, n name, version int, seen Seen) (Entry, error) {
	rows, err := tx.Registry.Versions(ctx, store.RegistryFilter{Subject: n.String()})
	if err != nil {
		return Entry{}, err
	}
	rows = slices.DeleteFunc(rows, func(v store.RegistryVersion) bool { return !seen.sees(v) })
	if len(rows) == 0 {
		return Entry{}, noSubject(n.String())
	}
	i := slices.IndexFunc(rows, func(v store.RegistryVersion) bool { return v.Version == version })
	if version == Latest {
		i = len(rows) - 1
	}
	if i < 0 {
		return Entry{}, fault(FaultVersionNotFound, "Version %d not found.", version)
	}
	s, err := tx.Registry.Schema(ctx, rows[i].Context, rows[i].ID)
	return entryOf(rows[i], s), err
}

// EntryWith returns the highest version whose metadata has all of the
// properties; it fails when no version has, or the subject has none.
func (r *Registry) EntryWith(ctx context.Context, subject string, properties map[string]string, seen Seen) (Entry, error) {
	n, err := parseSubject(subject)
	if err != nil {
		return Entry{}, err
	}
	var found Entry
	err = r.store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Registry.Versions(ctx, store.RegistryFilter{Subject: n.String()})
		if err != nil {
			return err
		}
		rows = slices.DeleteFunc(rows, func(v store.RegistryVersion) bool { return !seen.sees(v) })
		if len(rows) == 0 {
			return noSubject(n.String())
		}
		for _, v := range slices.Backward(rows) {
			s, err := tx.Registry.Schema(ctx, v.Context, v.ID)
			if err != nil {
				return err
			}
			if found = entryOf(v, s); found.has(properties) {
				return nil
			}
		}
		return fault(FaultSchemaNotFound, "Schema not found")
	})
	return found, err
}

// has reports whether the metadata has all of the properties.
func (e *Entry) has(properties map[string]string) bool {
	var m struct{ Properties map[string]string }
	if json.Unmarshal(e.Metadata, &m) != nil && len(e.Metadata) > 0 {
		return false
	}
	for k, v := range properties {
		if own, ok := m.Properties[k]; !ok || own != v {
			return false
		}
	}
	return true
}

// HasRule reports whether the rules have one of a type.
func (e *Entry) HasRule(ruleType string) bool {
	type rules []struct{ Type string }
	var set struct{ MigrationRules, DomainRules, EncodingRules rules }
	if len(e.RuleSet) == 0 || json.Unmarshal(e.RuleSet, &set) != nil {
		return false
	}
	for _, r := range slices.Concat(set.MigrationRules, set.DomainRules, set.EncodingRules) {
		if r.Type == ruleType {
			return true
		}
	}
	return false
}

// MaxID returns the highest id that was ever given in the context of a subject.
func (r *Registry) MaxID(ctx context.Context, subject string) (int, error) {
	n, err := parseName(subject)
	if err != nil {
		return 0, err
	}
	last := 0
	err = r.store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		_, err := setting(ctx, tx, keyLastID+n.context, &last)
		return err
	})
	return last, err
}

// Entries returns versions by a prefix of their subjects, as [Registry.ListSubjects]
// reads it; with latest only the highest one of each. It skips the first and
// returns at most limit (0: all), and fewer when their texts are long together:
// whoever wants all skips as many as it got, until there are none.
func (r *Registry) Entries(ctx context.Context, prefix string, seen Seen, latest bool, skip, limit int) ([]Entry, error) {
	rows, err := r.browse(ctx, prefix, seen)
	if err != nil {
		return nil, err
	}
	if latest {
		var last []store.RegistryVersion
		for i, v := range rows {
			if i+1 == len(rows) || rows[i+1].Subject != v.Subject {
				last = append(last, v)
			}
		}
		rows = last
	}
	rows = rows[min(skip, len(rows)):]
	if limit > 0 {
		rows = rows[:min(limit, len(rows))]
	}
	var out []Entry
	err = r.store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		bytes := 0
		for _, v := range rows {
			if bytes > maxEntriesBytes {
				return nil
			}
			s, err := tx.Registry.Schema(ctx, v.Context, v.ID)
			if headgate.CodeOf(err) == headgate.CodeNotFound {
				continue // removed meanwhile
			}
			if err != nil {
				return err
			}
			bytes += len(s.Text) + len(s.Extras)
			out = append(out, entryOf(v, s))
		}
		return nil
	})
	return out, err
}

// maxEntriesBytes bounds the texts of one answer.
const maxEntriesBytes = 16 << 20

// Schema returns the schema of an id in the context of a subject ("": the
// default one).
func (r *Registry) Schema(ctx context.Context, subject string, id int) (Entry, error) {
	n, err := parseName(subject)
	if err != nil {
		return Entry{}, err
	}
	var e Entry
	err = r.store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		s, err := tx.Registry.Schema(ctx, n.context, id)
		if headgate.CodeOf(err) == headgate.CodeNotFound {
			return fault(FaultSchemaNotFound, "Schema %d not found", id)
		}
		e = entryOf(store.RegistryVersion{}, s)
		return err
	})
	return e, err
}

// Uses returns the versions that are the schema of an id.
func (r *Registry) Uses(ctx context.Context, subject string, id int, seen Seen) ([]store.RegistryVersion, error) {
	n, err := parseName(subject)
	if err != nil {
		return nil, err
	}
	var rows []store.RegistryVersion
	err = r.store.View(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		rows, err = tx.Registry.Versions(ctx, store.RegistryFilter{Context: n.context, ID: id})
		return err
	})
	if err == nil && len(rows) == 0 {
		return nil, fault(FaultSchemaNotFound, "Schema %d not found", id)
	}
	return slices.DeleteFunc(rows, func(v store.RegistryVersion) bool { return !seen.sees(v) || (n.plain != "" && v.Subject != n.String()) }), err
}

// ByGUID returns the schemas of a GUID, one for each context, whose names come
// as the subjects of the entries.
func (r *Registry) ByGUID(ctx context.Context, guid string) ([]Entry, error) {
	var out []Entry
	err := r.store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		all, err := tx.Registry.SchemasByGUID(ctx, strings.ToLower(guid))
		for _, s := range all {
			e := entryOf(store.RegistryVersion{}, s)
			e.Subject = s.Context
			out = append(out, e)
		}
		return err
	})
	if err == nil && len(out) == 0 {
		err = fault(FaultSchemaNotFound, "Schema %s not found", show(guid))
	}
	return out, err
}

// ReferencedBy returns the ids of the schemas that refer to a version.
func (r *Registry) ReferencedBy(ctx context.Context, subject string, version int, seen Seen) ([]int, error) {
	e, err := r.Entry(ctx, subject, version, WithDeleted)
	if err != nil {
		return nil, err
	}
	ids := []int{}
	err = r.store.View(ctx, func(ctx context.Context, tx *store.Tx) error {
		rows, err := tx.Registry.Versions(ctx, store.RegistryFilter{RefersTo: store.RegistryReference{Subject: e.Subject, Version: e.Version}})
		for _, v := range rows {
			if seen.sees(v) {
				ids = append(ids, v.ID)
			}
		}
		return err
	})
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// Contexts returns the names of the contexts that have subjects, and the
// default one.
func (r *Registry) Contexts(ctx context.Context) ([]string, error) {
	rows, err := r.browse(ctx, ":*:", WithDeleted)
	out := []string{DefaultContext}
	for _, v := range rows {
		out = append(out, v.Context)
	}
	slices.Sort(out)
	return slices.Compact(out), err
}
