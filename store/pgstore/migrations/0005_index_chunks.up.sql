-- The index is made from the streams: it is made anew.
DROP TABLE @event_index;
DELETE FROM @event_index_cursors;

CREATE TABLE @event_index_chunks (
  stream       BYTEA   NOT NULL,
  partition    BIGINT  NOT NULL,
  first        BIGINT  NOT NULL,
  last         BIGINT  NOT NULL,
  rows         BYTEA   NOT NULL,
  PRIMARY KEY (stream, partition, first)
);

CREATE TABLE @event_index_keys (
  key          BYTEA   NOT NULL,
  at           BIGINT  NOT NULL,
  stream       BYTEA   NOT NULL,
  partition    BIGINT  NOT NULL,
  first        BIGINT  NOT NULL,
  PRIMARY KEY (key, at, stream, partition, first)
);
