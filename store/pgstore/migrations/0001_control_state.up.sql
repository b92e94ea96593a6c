-- Strings are bytea: text holds no NUL and no invalid UTF-8, and sorts as the
-- database's collation says. Times are nanoseconds since 1970 in UTC, which
-- timestamptz would round; the zero time is the smallest integer, so that
-- comparisons agree with Go's. Absent byte strings are NULL, empty ones are
-- empty.
--
-- Rows that are written again and again leave room in their pages, so that the
-- new version lies beside the old one and no index changes. Queues are vacuumed
-- early: their readers walk over the dead rows at the head.

CREATE TABLE @settings (
  key          BYTEA   PRIMARY KEY,
  value        BYTEA
) WITH (fillfactor = 80);

CREATE TABLE @contracts (
  subject      BYTEA   NOT NULL,
  version      BIGINT  NOT NULL,
  digest       BYTEA   NOT NULL,
  draft        BOOLEAN NOT NULL,
  deleted      BOOLEAN NOT NULL,
  created      BIGINT  NOT NULL,
  by           BYTEA   NOT NULL,
  policy       BYTEA,
  schema       BYTEA,
  PRIMARY KEY (subject, version)
);
CREATE INDEX contracts_live ON @contracts (subject, version) WHERE NOT deleted;

CREATE TABLE @principals (
  name         BYTEA   PRIMARY KEY,
  kind         BYTEA   NOT NULL,
  roles        BYTEA,
  emit         BYTEA,
  listen       BYTEA,
  roots        BOOLEAN NOT NULL,
  root_rate    FLOAT8  NOT NULL,
  root_burst   BIGINT  NOT NULL,
  disabled     BOOLEAN NOT NULL,
  managed      BYTEA   NOT NULL,
  created      BIGINT  NOT NULL
);

CREATE TABLE @tokens (
  id           BYTEA   PRIMARY KEY,
  principal    BYTEA   NOT NULL,
  hash         BYTEA,
  expires      BIGINT  NOT NULL,
  created      BIGINT  NOT NULL
);
CREATE INDEX tokens_principal ON @tokens (principal, created, id);

CREATE TABLE @subscriptions (
  name         BYTEA   PRIMARY KEY,
  spec         BYTEA,
  paused       BOOLEAN NOT NULL,
  managed      BYTEA   NOT NULL,
  created      BIGINT  NOT NULL,
  updated      BIGINT  NOT NULL
);

CREATE TABLE @progress (
  subscription BYTEA   NOT NULL,
  stream       BYTEA   NOT NULL,
  partition    BIGINT  NOT NULL,
  start        BIGINT  NOT NULL,
  floor        BIGINT  NOT NULL,
  settled      BIGINT  NOT NULL,
  unmatched    BIGINT  NOT NULL,
  parked       BIGINT  NOT NULL,
  extinguished BIGINT  NOT NULL,
  expired      BIGINT  NOT NULL,
  discarded    BIGINT  NOT NULL,
  trimmed      BIGINT  NOT NULL,
  done         BYTEA,
  PRIMARY KEY (subscription, stream, partition)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
-- Without the floor: an index that held it would be rewritten by every save.
CREATE INDEX progress_stream ON @progress (stream, partition);

CREATE TABLE @exceptions (
  subscription BYTEA   NOT NULL,
  stream       BYTEA   NOT NULL,
  partition    BIGINT  NOT NULL,
  "offset"     BIGINT  NOT NULL,
  source       BYTEA   NOT NULL,
  id           BYTEA   NOT NULL,
  type         BYTEA   NOT NULL,
  key          BYTEA   NOT NULL,
  state        BYTEA   NOT NULL,
  attempts     BIGINT  NOT NULL,
  due          BIGINT  NOT NULL,
  first        BIGINT  NOT NULL,
  in_progress  BOOLEAN NOT NULL,
  history      BYTEA,
  PRIMARY KEY (subscription, stream, partition, "offset")
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX exceptions_floor ON @exceptions (stream, partition, "offset");

-- A number is never given twice, also when the table ran empty.
CREATE SEQUENCE @outbox_seq;
CREATE TABLE @outbox (
  seq          BIGINT  PRIMARY KEY,
  stream       BYTEA   NOT NULL,
  event        BYTEA
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

CREATE TABLE @quarantine (
  qid          BYTEA   PRIMARY KEY,
  kind         BYTEA   NOT NULL,
  reason       BYTEA   NOT NULL,
  state        BYTEA   NOT NULL,
  fingerprint  BYTEA   NOT NULL,
  family       BYTEA   NOT NULL,
  source       BYTEA   NOT NULL,
  event_id     BYTEA   NOT NULL,
  type         BYTEA   NOT NULL,
  root         BYTEA   NOT NULL,
  cause        BYTEA   NOT NULL,
  subscription BYTEA   NOT NULL,
  stream       BYTEA   NOT NULL,
  partition    BIGINT  NOT NULL,
  "offset"     BIGINT  NOT NULL,
  principal    BYTEA   NOT NULL,
  message      BYTEA   NOT NULL,
  content_type BYTEA   NOT NULL,
  created      BIGINT  NOT NULL,
  expires      BIGINT  NOT NULL,
  detail       BYTEA,
  body         BYTEA
);
CREATE INDEX quarantine_kind ON @quarantine (kind, qid);
CREATE INDEX quarantine_reason ON @quarantine (reason, qid);
CREATE INDEX quarantine_type ON @quarantine (type, qid);
CREATE INDEX quarantine_fingerprint ON @quarantine (fingerprint, qid);
CREATE INDEX quarantine_principal ON @quarantine (principal, qid);
CREATE INDEX quarantine_subscription ON @quarantine (subscription, qid) WHERE subscription <> '';
CREATE INDEX quarantine_root ON @quarantine (root, qid) WHERE root <> '';
CREATE INDEX quarantine_event ON @quarantine (event_id, qid) WHERE event_id <> '';
CREATE INDEX quarantine_quota ON @quarantine (kind, principal, created);
CREATE INDEX quarantine_created ON @quarantine (created);
CREATE INDEX quarantine_expires ON @quarantine (expires);

CREATE TABLE @quarantine_overflow (
  principal    BYTEA   NOT NULL,
  reason       BYTEA   NOT NULL,
  type         BYTEA   NOT NULL,
  count        BIGINT  NOT NULL,
  last         BIGINT  NOT NULL,
  PRIMARY KEY (principal, reason, type)
);

CREATE TABLE @gas (
  root         BYTEA   PRIMARY KEY,
  total        BIGINT  NOT NULL,
  debited      BIGINT  NOT NULL CHECK (debited <= total),
  updated      BIGINT  NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX gas_updated ON @gas (updated);

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

CREATE TABLE @event_index_cursors (
  stream       BYTEA   NOT NULL,
  partition    BIGINT  NOT NULL,
  next         BIGINT  NOT NULL,
  PRIMARY KEY (stream, partition)
) WITH (fillfactor = 50);
