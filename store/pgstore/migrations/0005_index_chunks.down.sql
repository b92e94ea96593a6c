-- The index is made from the streams: it is made anew.
DROP TABLE @event_index_keys;
DROP TABLE @event_index_chunks;
DELETE FROM @event_index_cursors;

CREATE TABLE @event_index (
  stream       BYTEA   NOT NULL,
  partition    BIGINT  NOT NULL,
  "offset"     BIGINT  NOT NULL,
  id           BYTEA   NOT NULL,
  source       BYTEA   NOT NULL,
  type         BYTEA   NOT NULL,
  subject      BYTEA   NOT NULL,
  root         BYTEA   NOT NULL,
  causes       BYTEA   NOT NULL,
  ttl          BIGINT  NOT NULL,
  hop          BIGINT  NOT NULL,
  origin       BYTEA   NOT NULL,
  principal    BYTEA   NOT NULL,
  contract     BYTEA   NOT NULL,
  recorded     BIGINT  NOT NULL,
  PRIMARY KEY (stream, partition, "offset")
);
CREATE INDEX event_index_id ON @event_index (id);
CREATE INDEX event_index_root ON @event_index (root, recorded);
