package store

import "context"

// RegistrySchema is one content of the registry: a text under an id that its
// context never gives to another one.
type RegistrySchema struct {
	Context string // "." or "" is the default one, as the caller has it
	ID      int    // above 0
	Type    string // AVRO or JSON
	Text    []byte // as registered, byte for byte
	Refs    []byte // JSON: what the text refers to
	Extras  []byte // JSON: metadata and rules
	// Identity is equal for contents that are the same schema. It is unique
	// within a context.
	Identity string
	GUID     string
}

// RegistryVersion says that a subject's version is a schema.
type RegistryVersion struct {
	Subject string
	Version int
	Context string
	ID      int
	Deleted bool // softly
}

// RegistryReference names a version that another one refers to.
type RegistryReference struct {
	Subject string
	Version int
}

// RegistryFilter selects versions, by the first of its parts that is set; by
// none it selects all. Deleted ones are always among them.
type RegistryFilter struct {
	RefersTo RegistryReference // versions that refer to this one
	Context  string
	ID       int    // versions that are this schema of Context
	Subject  string // versions of this subject
	Prefix   string // versions of subjects that start so
}

// Registry keeps what clients of a registry know a schema by: ids, versions
// with soft deletion, and references. Its versions, unlike those of
// [Contracts], can be removed for good.
type Registry interface {
	// PutSchema adds a schema, or fails with conflict when its id or identity
	// is taken in its context.
	PutSchema(ctx context.Context, s RegistrySchema) error
	// Schema returns a schema, or not_found.
	Schema(ctx context.Context, context string, id int) (RegistrySchema, error)
	// FindSchema returns the schema of an identity, or not_found.
	FindSchema(ctx context.Context, context, identity string) (RegistrySchema, error)
	// SchemasByGUID returns the schemas of all contexts that have the GUID,
	// ordered by context.
	SchemasByGUID(ctx context.Context, guid string) ([]RegistrySchema, error)
	// PutVersion adds or replaces a version with what it refers to.
	PutVersion(ctx context.Context, v RegistryVersion, refs []RegistryReference) error
	// Versions returns versions ordered by subject and version.
	Versions(ctx context.Context, f RegistryFilter) ([]RegistryVersion, error)
	// RemoveVersion removes a version for good, and its schema with it when no
	// other version is that schema; not_found when there is none.
	RemoveVersion(ctx context.Context, subject string, version int) error
}
