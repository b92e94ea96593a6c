-- What an SQLite database needs for its outbox: version 3.38 or newer, or any
-- with the JSON functions. Writers use the views headgate_outbox and
-- headgate_cause; the tables behind them are the relay's.

-- One row: what this outbox is, and how far it is published. confirmed is the
-- highest seq that is stored, known to the broker or in quarantine, together
-- with every row before it; confirmed_id is the id of that row.
CREATE TABLE headgate_outbox_state (
  one          INTEGER PRIMARY KEY CHECK (one = 1),
  version      INTEGER NOT NULL,
  revision     INTEGER NOT NULL, -- of the views and triggers
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
