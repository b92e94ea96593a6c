-- What an SQLite database needs for its outbox: version 3.38 or newer, or any
-- with the JSON functions. Writers use the views headgate_outbox and
-- headgate_cause; the tables behind them are the relay's.

-- One row: what this outbox is, and how far it is published. confirmed is the
-- highest seq that is stored, known to the broker or in quarantine, together
-- with every row before it; confirmed_id is the id of that row.
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

-- AUTOINCREMENT: numbers never come again, also when the table was emptied, so
-- that a cursor misses nothing. Times are milliseconds since 1970, UTC.
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
  created    INTEGER NOT NULL DEFAULT ({{now}})
);

CREATE TRIGGER headgate_outbox_rows_last AFTER INSERT ON headgate_outbox_rows
BEGIN
  SELECT RAISE(ABORT, 'headgate HG109: rows of the outbox get their numbers by themselves')
  WHERE NEW.seq < 1 OR EXISTS (SELECT 1 FROM headgate_outbox_rows WHERE seq > NEW.seq);
  SELECT RAISE(ABORT, 'headgate HG102: the payload has more than 6291456 bytes; keep large content elsewhere and send a reference')
  WHERE length(NEW.data) > 6291456;
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

-- The causal token of the running transaction. SQLite has no settings of a
-- transaction, so the token lies in a table while it runs. It cannot be left
-- behind for the next one: it refers, deferred, to a row that never exists, so
-- that COMMIT fails until it is gone.
CREATE TABLE headgate_outbox_never (id INTEGER PRIMARY KEY CHECK (id <> id));
CREATE TABLE headgate_outbox_mark (
  one   INTEGER PRIMARY KEY CHECK (one = 1),
  token TEXT NOT NULL,
  never INTEGER NOT NULL DEFAULT 1 REFERENCES headgate_outbox_never (id) DEFERRABLE INITIALLY DEFERRED
);

-- These two stay empty as well. They show whether foreign keys are enforced,
-- which the mark rests on.
CREATE TABLE headgate_outbox_asked (id INTEGER PRIMARY KEY);
CREATE TABLE headgate_outbox_answer (id INTEGER PRIMARY KEY REFERENCES headgate_outbox_asked (id) ON DELETE CASCADE);

-- INSERT sets the cause of what this transaction writes from here on, DELETE
-- takes it away, which must come before COMMIT.
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

-- What writers insert into. Only type is needed. data is the payload, byte for
-- byte, as text or blob; attributes a JSON object of what has no column of its
-- own; cause the causal token of this one event, when the transaction has none.
CREATE VIEW headgate_outbox AS
SELECT seq, id, type, source, subject, key, attributes, cause, origin, data, created FROM headgate_outbox_rows;

CREATE TRIGGER headgate_outbox_emit INSTEAD OF INSERT ON headgate_outbox
BEGIN
  SELECT RAISE(ABORT, 'headgate HG101: this is no event type; types are dotted lower-case words such as order.placed, at most 200 bytes')
  WHERE NEW.type IS NULL OR typeof(NEW.type) <> 'text' OR length(NEW.type) NOT BETWEEN 1 AND 200 OR NEW.type GLOB '*[^a-z0-9_.-]*'
     OR NEW.type GLOB '.*' OR NEW.type GLOB '*.' OR NEW.type GLOB '*..*';
  SELECT RAISE(ABORT, 'headgate HG108: data is neither text nor blob')
  WHERE typeof(NEW.data) NOT IN ('text', 'blob', 'null');
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
    coalesce(nullif(NEW.id, ''), {{new_id}}),
    NEW.type, nullif(NEW.source, ''), nullif(NEW.subject, ''), nullif(NEW.key, ''), NEW.attributes,
    coalesce(nullif(NEW.cause, ''), (SELECT token FROM headgate_outbox_mark)), CAST(NEW.data AS BLOB));
END;

-- Watched tables, with the columns that their triggers know.
CREATE TABLE headgate_outbox_watched (
  name    TEXT PRIMARY KEY,
  prefix  TEXT NOT NULL,
  columns TEXT NOT NULL
) WITHOUT ROWID;

-- Rows that the running statement may be about to replace, whose deletion SQLite
-- tells no trigger of unless recursive_triggers is on. by_key: found by a
-- number that SQLite may yet choose another one for.
CREATE TABLE headgate_outbox_replaced (
  name   TEXT NOT NULL,
  keys   TEXT NOT NULL,
  by_key INTEGER NOT NULL,
  row    TEXT NOT NULL,
  PRIMARY KEY (name, keys)
) WITHOUT ROWID;
