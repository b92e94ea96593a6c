-- Times are nanoseconds since 1970 in UTC; the zero time is the smallest
-- integer, so that comparisons agree with Go's. Absent byte strings are NULL,
-- empty ones are empty.

CREATE TABLE settings (
  key   TEXT PRIMARY KEY,
  value BLOB
) WITHOUT ROWID;

CREATE TABLE contracts (
  id      INTEGER PRIMARY KEY,
  subject TEXT    NOT NULL,
  version INTEGER NOT NULL,
  digest  TEXT    NOT NULL,
  draft   INTEGER NOT NULL,
  deleted INTEGER NOT NULL,
  created INTEGER NOT NULL,
  by      TEXT    NOT NULL,
  policy  BLOB,
  schema  BLOB,
  UNIQUE (subject, version)
);
CREATE INDEX contracts_live ON contracts (subject, version) WHERE deleted = 0;

CREATE TABLE principals (
  name       TEXT PRIMARY KEY,
  kind       TEXT    NOT NULL,
  roles      BLOB,
  emit       BLOB,
  listen     BLOB,
  roots      INTEGER NOT NULL,
  root_rate  REAL    NOT NULL,
  root_burst INTEGER NOT NULL,
  disabled   INTEGER NOT NULL,
  managed    TEXT    NOT NULL,
  created    INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE tokens (
  id        TEXT PRIMARY KEY,
  principal TEXT    NOT NULL,
  hash      BLOB,
  expires   INTEGER NOT NULL,
  created   INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX tokens_principal ON tokens (principal, created, id);

CREATE TABLE subscriptions (
  name    TEXT PRIMARY KEY,
  spec    BLOB,
  paused  INTEGER NOT NULL,
  managed TEXT    NOT NULL,
  created INTEGER NOT NULL,
  updated INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE progress (
  subscription TEXT    NOT NULL,
  stream       TEXT    NOT NULL,
  partition    INTEGER NOT NULL,
  start        INTEGER NOT NULL,
  floor        INTEGER NOT NULL,
  settled      INTEGER NOT NULL,
  unmatched    INTEGER NOT NULL,
  parked       INTEGER NOT NULL,
  extinguished INTEGER NOT NULL,
  expired      INTEGER NOT NULL,
  discarded    INTEGER NOT NULL,
  trimmed      INTEGER NOT NULL,
  done         BLOB,
  PRIMARY KEY (subscription, stream, partition)
) WITHOUT ROWID;
-- Without the floor: an index that held it would be rewritten by every save.
CREATE INDEX progress_stream ON progress (stream, partition);

CREATE TABLE exceptions (
  subscription TEXT    NOT NULL,
  stream       TEXT    NOT NULL,
  partition    INTEGER NOT NULL,
  "offset"     INTEGER NOT NULL,
  source       TEXT    NOT NULL,
  id           TEXT    NOT NULL,
  type         TEXT    NOT NULL,
  key          TEXT    NOT NULL,
  state        TEXT    NOT NULL,
  attempts     INTEGER NOT NULL,
  due          INTEGER NOT NULL,
  first        INTEGER NOT NULL,
  in_progress  INTEGER NOT NULL,
  history      BLOB,
  PRIMARY KEY (subscription, stream, partition, "offset")
) WITHOUT ROWID;
CREATE INDEX exceptions_floor ON exceptions (stream, partition, "offset");

-- AUTOINCREMENT: a number is never given twice, also when the table ran empty.
CREATE TABLE outbox (
  seq    INTEGER PRIMARY KEY AUTOINCREMENT,
  stream TEXT NOT NULL,
  event  BLOB
);

CREATE TABLE quarantine (
  id           INTEGER PRIMARY KEY,
  qid          TEXT    NOT NULL UNIQUE,
  kind         TEXT    NOT NULL,
  reason       TEXT    NOT NULL,
  state        TEXT    NOT NULL,
  fingerprint  TEXT    NOT NULL,
  family       TEXT    NOT NULL,
  source       TEXT    NOT NULL,
  event_id     TEXT    NOT NULL,
  type         TEXT    NOT NULL,
  root         TEXT    NOT NULL,
  cause        TEXT    NOT NULL,
  subscription TEXT    NOT NULL,
  stream       TEXT    NOT NULL,
  partition    INTEGER NOT NULL,
  "offset"     INTEGER NOT NULL,
  principal    TEXT    NOT NULL,
  message      TEXT    NOT NULL,
  content_type TEXT    NOT NULL,
  created      INTEGER NOT NULL,
  expires      INTEGER NOT NULL,
  detail       BLOB,
  body         BLOB
);
CREATE INDEX quarantine_kind ON quarantine (kind, qid);
CREATE INDEX quarantine_reason ON quarantine (reason, qid);
CREATE INDEX quarantine_type ON quarantine (type, qid);
CREATE INDEX quarantine_fingerprint ON quarantine (fingerprint, qid);
CREATE INDEX quarantine_principal ON quarantine (principal, qid);
CREATE INDEX quarantine_subscription ON quarantine (subscription, qid) WHERE subscription <> '';
CREATE INDEX quarantine_root ON quarantine (root, qid) WHERE root <> '';
CREATE INDEX quarantine_event ON quarantine (event_id, qid) WHERE event_id <> '';
CREATE INDEX quarantine_quota ON quarantine (kind, principal, created);
CREATE INDEX quarantine_created ON quarantine (created);
CREATE INDEX quarantine_expires ON quarantine (expires);

CREATE TABLE quarantine_overflow (
  principal TEXT    NOT NULL,
  reason    TEXT    NOT NULL,
  type      TEXT    NOT NULL,
  count     INTEGER NOT NULL,
  last      INTEGER NOT NULL,
  PRIMARY KEY (principal, reason, type)
) WITHOUT ROWID;

CREATE TABLE gas (
  root    TEXT PRIMARY KEY,
  total   INTEGER NOT NULL,
  debited INTEGER NOT NULL CHECK (debited <= total),
  updated INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX gas_updated ON gas (updated);

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

CREATE TABLE event_index_cursors (
  stream    TEXT    NOT NULL,
  partition INTEGER NOT NULL,
  next      INTEGER NOT NULL,
  PRIMARY KEY (stream, partition)
) WITHOUT ROWID;
