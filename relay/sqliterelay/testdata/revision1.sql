CREATE TABLE headgate_outbox_state (
  one          INTEGER PRIMARY KEY CHECK (one = 1),
  version      INTEGER NOT NULL,
  identity     TEXT NOT NULL,
  created      INTEGER NOT NULL,
  epoch        INTEGER NOT NULL DEFAULT 0,
  holder       TEXT,
  confirmed    INTEGER NOT NULL DEFAULT 0,
  confirmed_id TEXT,
  confirmed_at INTEGER,
  repair       TEXT, -- why rows are published again; null: they are not
  repair_until INTEGER
);

CREATE TABLE headgate_outbox_rows (
  seq        INTEGER PRIMARY KEY AUTOINCREMENT,
  id         TEXT NOT NULL,
  type       TEXT NOT NULL,
  source     TEXT,
  subject    TEXT,
  key        TEXT,
  attributes TEXT,
  cause      TEXT,
  origin     TEXT,
  data       BLOB,
  created    INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
);

CREATE TRIGGER headgate_outbox_rows_last AFTER INSERT ON headgate_outbox_rows
BEGIN
  SELECT RAISE(ABORT, 'headgate HG109: rows of the outbox get their numbers by themselves')
  WHERE NEW.seq < 1 OR EXISTS (SELECT 1 FROM headgate_outbox_rows WHERE seq > NEW.seq);
END;

CREATE TRIGGER headgate_outbox_rows_stay BEFORE DELETE ON headgate_outbox_rows
WHEN OLD.seq >= (SELECT confirmed FROM headgate_outbox_state)
BEGIN
  SELECT RAISE(ABORT, 'headgate HG109: rows of the outbox stay until they are published');
END;

CREATE TRIGGER headgate_outbox_rows_fixed BEFORE UPDATE ON headgate_outbox_rows
BEGIN
  SELECT RAISE(ABORT, 'headgate HG109: rows of the outbox do not change');
END;

CREATE TABLE headgate_outbox_never (id INTEGER PRIMARY KEY CHECK (id <> id));

CREATE TABLE headgate_outbox_mark (
  one   INTEGER PRIMARY KEY CHECK (one = 1),
  token TEXT NOT NULL,
  never INTEGER NOT NULL DEFAULT 1 REFERENCES headgate_outbox_never (id) DEFERRABLE INITIALLY DEFERRED
);

CREATE TABLE headgate_outbox_asked (id INTEGER PRIMARY KEY);

CREATE TABLE headgate_outbox_answer (id INTEGER PRIMARY KEY REFERENCES headgate_outbox_asked (id) ON DELETE CASCADE);

CREATE VIEW headgate_cause AS SELECT token FROM headgate_outbox_mark;

CREATE TRIGGER headgate_cause_set INSTEAD OF INSERT ON headgate_cause
BEGIN
  SELECT RAISE(ABORT, 'headgate HG104: this is no causal token; pass it exactly as it came with the delivery')
  WHERE typeof(NEW.token) <> 'text' OR length(NEW.token) NOT BETWEEN 1 AND 4096 OR NEW.token GLOB '*[^A-Za-z0-9_-]*';
  INSERT INTO headgate_outbox_asked (id) VALUES (1);
  INSERT INTO headgate_outbox_answer (id) VALUES (1);
  DELETE FROM headgate_outbox_asked;
  SELECT RAISE(ABORT, 'headgate HG107: a cause needs PRAGMA foreign_keys = ON, set before the transaction begins')
  WHERE EXISTS (SELECT 1 FROM headgate_outbox_answer);
  DELETE FROM headgate_outbox_mark;
  INSERT INTO headgate_outbox_mark (one, token) VALUES (1, NEW.token);
END;

CREATE TRIGGER headgate_cause_unset INSTEAD OF DELETE ON headgate_cause
BEGIN
  DELETE FROM headgate_outbox_mark;
END;

CREATE VIEW headgate_outbox AS
SELECT seq, id, type, source, subject, key, attributes, cause, origin, data, created FROM headgate_outbox_rows;

CREATE TRIGGER headgate_outbox_emit INSTEAD OF INSERT ON headgate_outbox
BEGIN
  SELECT RAISE(ABORT, 'headgate HG101: this is no event type; types are dotted lower-case words such as order.placed, at most 200 bytes')
  WHERE NEW.type IS NULL OR typeof(NEW.type) <> 'text' OR length(NEW.type) NOT BETWEEN 1 AND 200 OR NEW.type GLOB '*[^a-z0-9_.-]*'
     OR NEW.type GLOB '.*' OR NEW.type GLOB '*.' OR NEW.type GLOB '*..*';
  SELECT RAISE(ABORT, 'headgate HG108: data is neither text nor blob')
  WHERE typeof(NEW.data) NOT IN ('text', 'blob', 'null');
  SELECT RAISE(ABORT, 'headgate HG102: the payload has more than 6291456 bytes; keep large content elsewhere and send a reference')
  WHERE length(CAST(NEW.data AS BLOB)) > 6291456;
  SELECT RAISE(ABORT, 'headgate HG103: an attribute is longer than allowed: id 256, source 1024, subject and key 4096 bytes')
  WHERE length(CAST(NEW.id AS BLOB)) > 256 OR length(CAST(NEW.source AS BLOB)) > 1024 OR length(CAST(NEW.subject AS BLOB)) > 4096
     OR length(CAST(NEW.key AS BLOB)) > 4096 OR length(CAST(NEW.attributes AS BLOB)) > 32768;
  SELECT RAISE(ABORT, 'headgate HG103: attributes is no JSON object')
  WHERE NEW.attributes IS NOT NULL AND CASE WHEN json_valid(NEW.attributes) THEN json_type(NEW.attributes) <> 'object' ELSE 1 END;
  SELECT RAISE(ABORT, 'headgate HG104: this is no causal token; pass it exactly as it came with the delivery')
  WHERE length(NEW.cause) > 4096 OR NEW.cause GLOB '*[^A-Za-z0-9_-]*';
  SELECT RAISE(ABORT, 'headgate HG109: seq, origin and created are not for writers')
  WHERE NEW.seq IS NOT NULL OR NEW.origin IS NOT NULL OR NEW.created IS NOT NULL;
  INSERT INTO headgate_outbox_rows (id, type, source, subject, key, attributes, cause, data) VALUES (
    coalesce(nullif(NEW.id, ''), (SELECT lower(substr(t, 1, 8) || '-' || substr(t, 9, 4) || '-7' || substr(hex(randomblob(2)), 2) || '-' || substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))
      FROM (SELECT printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) AS t))),
    NEW.type, nullif(NEW.source, ''), nullif(NEW.subject, ''), nullif(NEW.key, ''), NEW.attributes,
    coalesce(nullif(NEW.cause, ''), (SELECT token FROM headgate_outbox_mark)), CAST(NEW.data AS BLOB));
END;

CREATE TABLE headgate_outbox_watched (
  name    TEXT PRIMARY KEY,
  prefix  TEXT NOT NULL,
  columns TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE headgate_outbox_replaced (
  name   TEXT NOT NULL,
  keys   TEXT NOT NULL,
  before TEXT NOT NULL,
  PRIMARY KEY (name, keys)
) WITHOUT ROWID;

INSERT INTO headgate_outbox_state (one, version, identity, created) VALUES (1, 1, lower(hex(randomblob(16))), CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER));
