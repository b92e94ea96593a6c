package sqlstore

import (
	"context"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const registrySchemaColumns = "context, id, type, text, refs, extras, identity, guid"

func scanRegistrySchema(q query) store.RegistrySchema {
	return store.RegistrySchema{
		Context: q.ColText(), ID: int(q.ColInt()), Type: q.ColText(), Text: q.ColBlob(), Refs: q.ColBlob(), Extras: q.ColBlob(),
		Identity: q.ColText(), GUID: q.ColText(),
	}
}

// PutSchema implements store.Registry.
func (r registry) PutSchema(_ context.Context, s store.RegistrySchema) error {
	q := r.query("SELECT 1 FROM @registry_schemas WHERE context = ?1 AND id = ?2 UNION ALL SELECT 1 FROM @registry_schemas WHERE context = ?1 AND identity = ?3")
	q.Text(s.Context)
	q.Int(int64(s.ID))
	q.Text(s.Identity)
	taken := q.Next()
	if err := q.Close(); err != nil {
		return err
	}
	if taken {
		return headgate.NewError(headgate.CodeConflict, "the schema's id or identity is taken: %d in context %q", s.ID, Clip(s.Context))
	}
	q = r.query("INSERT INTO @registry_schemas (" + registrySchemaColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?)")
	q.Text(s.Context)
	q.Int(int64(s.ID))
	q.Text(s.Type)
	q.Blob(s.Text)
	q.Blob(s.Refs)
	q.Blob(s.Extras)
	q.Text(s.Identity)
	q.Text(s.GUID)
	return q.Run()
}

// Schema implements store.Registry.
func (r registry) Schema(_ context.Context, context string, id int) (store.RegistrySchema, error) {
	q := r.query("SELECT " + registrySchemaColumns + " FROM @registry_schemas WHERE context = ? AND id = ?")
	q.Text(context)
	q.Int(int64(id))
	return oneRegistrySchema(q, strconv.Itoa(id))
}

// FindSchema implements store.Registry.
func (r registry) FindSchema(_ context.Context, context, identity string) (store.RegistrySchema, error) {
	q := r.query("SELECT " + registrySchemaColumns + " FROM @registry_schemas WHERE context = ? AND identity = ?")
	q.Text(context)
	q.Text(identity)
	return oneRegistrySchema(q, identity)
}

func oneRegistrySchema(q query, name string) (store.RegistrySchema, error) {
	if !q.Next() {
		if err := q.Close(); err != nil {
			return store.RegistrySchema{}, err
		}
		return store.RegistrySchema{}, notFound("schema", name)
	}
	s := scanRegistrySchema(q)
	return s, q.Close()
}

// SchemasByGUID implements store.Registry.
func (r registry) SchemasByGUID(_ context.Context, guid string) ([]store.RegistrySchema, error) {
	q := r.query("SELECT " + registrySchemaColumns + " FROM @registry_schemas WHERE guid = ? ORDER BY context, id")
	q.Text(guid)
	var all []store.RegistrySchema
	for q.Next() {
		all = append(all, scanRegistrySchema(q))
	}
	return all, q.Close()
}

// PutVersion implements store.Registry.
func (r registry) PutVersion(_ context.Context, v store.RegistryVersion, refs []store.RegistryReference) error {
	q := r.query(`INSERT INTO @registry_versions (subject, version, context, schema, deleted) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (subject, version) DO UPDATE SET context = excluded.context, schema = excluded.schema, deleted = excluded.deleted`)
	q.Text(v.Subject)
	q.Int(int64(v.Version))
	q.Text(v.Context)
	q.Int(int64(v.ID))
	q.Bool(v.Deleted)
	if err := q.Run(); err != nil {
		return err
	}
	if err := r.removeReferences(v.Subject, v.Version); err != nil {
		return err
	}
	for _, ref := range refs {
		q = r.query("INSERT INTO @registry_references (subject, version, to_subject, to_version) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING")
		q.Text(v.Subject)
		q.Int(int64(v.Version))
		q.Text(ref.Subject)
		q.Int(int64(ref.Version))
		if err := q.Run(); err != nil {
			return err
		}
	}
	return nil
}

func (r registry) removeReferences(subject string, version int) error {
	q := r.query("DELETE FROM @registry_references WHERE subject = ? AND version = ?")
	q.Text(subject)
	q.Int(int64(version))
	return q.Run()
}

// Versions implements store.Registry.
func (r registry) Versions(_ context.Context, f store.RegistryFilter) ([]store.RegistryVersion, error) {
	const from = "SELECT v.subject, v.version, v.context, v.schema, v.deleted FROM "
	const order = " ORDER BY v.subject, v.version"
	var q query
	switch {
	case f.RefersTo.Subject != "":
		q = r.query(from + `@registry_references AS r JOIN @registry_versions AS v ON v.subject = r.subject AND v.version = r.version
			WHERE r.to_subject = ? AND r.to_version = ? ORDER BY r.subject, r.version`)
		q.Text(f.RefersTo.Subject)
		q.Int(int64(f.RefersTo.Version))
	case f.ID > 0:
		q = r.query(from + "@registry_versions AS v WHERE v.context = ? AND v.schema = ?" + order)
		q.Text(f.Context)
		q.Int(int64(f.ID))
	case f.Subject != "":
		q = r.query(from + "@registry_versions AS v WHERE v.subject = ? ORDER BY v.version")
		q.Text(f.Subject)
	default:
		q = r.subjectsFrom(from, order, f.Prefix)
	}
	var all []store.RegistryVersion
	for q.Next() {
		all = append(all, store.RegistryVersion{
			Subject: q.ColText(), Version: int(q.ColInt()), Context: q.ColText(), ID: int(q.ColInt()), Deleted: q.ColBool(),
		})
	}
	return all, q.Close()
}

func (r registry) subjectsFrom(from, order, prefix string) query {
	end, bounded := successor(prefix)
	sql := from + "@registry_versions AS v WHERE v.subject >= ?"
	if bounded {
		sql += " AND v.subject < ?"
	}
	q := r.query(sql + order)
	q.Text(prefix)
	if bounded {
		q.Text(end)
	}
	return q
}

// RemoveVersion implements store.Registry.
func (r registry) RemoveVersion(_ context.Context, subject string, version int) error {
	q := r.query("SELECT context, schema FROM @registry_versions WHERE subject = ? AND version = ?")
	q.Text(subject)
	q.Int(int64(version))
	var context string
	var id int64
	found := q.Next()
	if found {
		context, id = q.ColText(), q.ColInt()
	}
	if err := q.Close(); err != nil {
		return err
	}
	if !found {
		return notFound("registry version", Clip(subject)+"@"+strconv.Itoa(version))
	}
	q = r.query("DELETE FROM @registry_versions WHERE subject = ? AND version = ?")
	q.Text(subject)
	q.Int(int64(version))
	if err := q.Run(); err != nil {
		return err
	}
	if err := r.removeReferences(subject, version); err != nil {
		return err
	}
	q = r.query(`DELETE FROM @registry_schemas WHERE context = ?1 AND id = ?2
		AND NOT EXISTS (SELECT 1 FROM @registry_versions WHERE context = ?1 AND schema = ?2)`)
	q.Text(context)
	q.Int(id)
	return q.Run()
}
