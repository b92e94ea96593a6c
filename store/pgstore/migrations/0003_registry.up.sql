CREATE TABLE @registry_schemas (
  context    BYTEA   NOT NULL,
  id         BIGINT  NOT NULL,
  type       BYTEA   NOT NULL,
  text       BYTEA,
  refs       BYTEA,
  extras     BYTEA,
  identity   BYTEA   NOT NULL,
  guid       BYTEA   NOT NULL,
  PRIMARY KEY (context, id),
  UNIQUE (context, identity)
);
CREATE INDEX registry_schemas_guid ON @registry_schemas (guid, context, id);

CREATE TABLE @registry_versions (
  subject    BYTEA   NOT NULL,
  version    BIGINT  NOT NULL,
  context    BYTEA   NOT NULL,
  schema     BIGINT  NOT NULL,
  deleted    BOOLEAN NOT NULL,
  PRIMARY KEY (subject, version)
);
CREATE INDEX registry_versions_schema ON @registry_versions (context, schema, subject, version);

CREATE TABLE @registry_references (
  subject    BYTEA   NOT NULL,
  version    BIGINT  NOT NULL,
  to_subject BYTEA   NOT NULL,
  to_version BIGINT  NOT NULL,
  PRIMARY KEY (subject, version, to_subject, to_version)
);
CREATE INDEX registry_references_to ON @registry_references (to_subject, to_version, subject, version);
