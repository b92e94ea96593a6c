-- The index is made from the streams: it is made anew.
DROP TABLE event_index;
DELETE FROM event_index_cursors;

CREATE TABLE event_index_chunks (
  stream    TEXT    NOT NULL,
  partition INTEGER NOT NULL,
  first     INTEGER NOT NULL,
  last      INTEGER NOT NULL,
  rows      BLOB    NOT NULL,
  PRIMARY KEY (stream, partition, first)
) WITHOUT ROWID;

CREATE TABLE event_index_keys (
  key       TEXT    NOT NULL,
  at        INTEGER NOT NULL,
  stream    TEXT    NOT NULL,
  partition INTEGER NOT NULL,
  first     INTEGER NOT NULL,
  PRIMARY KEY (key, at, stream, partition, first)
) WITHOUT ROWID;
