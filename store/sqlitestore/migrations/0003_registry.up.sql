CREATE TABLE registry_schemas (
  context  TEXT    NOT NULL,
  id       INTEGER NOT NULL,
  type     TEXT    NOT NULL,
  text     BLOB,
  refs     BLOB,
  extras   BLOB,
  identity TEXT    NOT NULL,
  guid     TEXT    NOT NULL,
  PRIMARY KEY (context, id),
  UNIQUE (context, identity)
);
CREATE INDEX registry_schemas_guid ON registry_schemas (guid, context, id);

CREATE TABLE registry_versions (
  subject  TEXT    NOT NULL,
  version  INTEGER NOT NULL,
  context  TEXT    NOT NULL,
  schema   INTEGER NOT NULL,
  deleted  INTEGER NOT NULL,
  PRIMARY KEY (subject, version)
) WITHOUT ROWID;
CREATE INDEX registry_versions_schema ON registry_versions (context, schema, subject, version);

CREATE TABLE registry_references (
  subject    TEXT    NOT NULL,
  version    INTEGER NOT NULL,
  to_subject TEXT    NOT NULL,
  to_version INTEGER NOT NULL,
  PRIMARY KEY (subject, version, to_subject, to_version)
) WITHOUT ROWID;
CREATE INDEX registry_references_to ON registry_references (to_subject, to_version, subject, version);
