-- The index is made from the streams: it is made anew.
DROP TABLE event_index_keys;
DROP TABLE event_index_chunks;
DELETE FROM event_index_cursors;

CREATE TABLE event_index (
  stream    TEXT    NOT NULL,
  partition INTEGER NOT NULL,
  "offset"  INTEGER NOT NULL,
  id        TEXT    NOT NULL,
  source    TEXT    NOT NULL,
  type      TEXT    NOT NULL,
  subject   TEXT    NOT NULL,
  root      TEXT    NOT NULL,
  causes    TEXT    NOT NULL,
  ttl       INTEGER NOT NULL,
  hop       INTEGER NOT NULL,
  origin    TEXT    NOT NULL,
  principal TEXT    NOT NULL,
  contract  TEXT    NOT NULL,
  recorded  INTEGER NOT NULL,
  PRIMARY KEY (stream, partition, "offset")
) WITHOUT ROWID;
CREATE INDEX event_index_id ON event_index (id);
CREATE INDEX event_index_root ON event_index (root, recorded);
