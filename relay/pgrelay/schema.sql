-- What a database needs for its outbox. Run as one transaction by a role that
-- may create roles and schemas and replicate. Everything lives in the schema
-- headgate.

DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'headgate_writer') THEN
    CREATE ROLE headgate_writer NOLOGIN;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'headgate_relay') THEN
    CREATE ROLE headgate_relay NOLOGIN;
  END IF;
END $$;

CREATE SCHEMA IF NOT EXISTS headgate;
GRANT USAGE ON SCHEMA headgate TO headgate_writer, headgate_relay;

CREATE TABLE headgate.installation (
  one       boolean PRIMARY KEY DEFAULT true CHECK (one),
  version   integer NOT NULL,
  revision  integer NOT NULL, -- of the functions
  slot      text NOT NULL,
  system_id text NOT NULL,
  created   timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Insert-only: nobody has UPDATE or DELETE, and old partitions are dropped
-- whole. No primary key and no index that costs WAL on each row; the BRIN index
-- serves replay.
CREATE TABLE headgate.outbox (
  seq        bigint GENERATED ALWAYS AS IDENTITY,
  id         text NOT NULL,
  xid        xid8 NOT NULL DEFAULT pg_current_xact_id(),
  role       text NOT NULL,
  type       text NOT NULL,
  source     text,
  subject    text,
  key        text,
  attributes jsonb,
  cause      text,
  origin     text,
  data       bytea CHECK (octet_length(data) <= 6291456), -- as emit_event and capture say with HG102
  created    timestamptz NOT NULL DEFAULT clock_timestamp()
) PARTITION BY RANGE (created);
CREATE TABLE headgate.outbox_rest PARTITION OF headgate.outbox DEFAULT;
CREATE INDEX outbox_seq ON headgate.outbox USING brin (seq);

-- One row for the one relay of the slot: its epoch, and how far publication is
-- proven. Every row whose transaction is visible in proven_snapshot reached the
-- broker.
CREATE TABLE headgate.relay_state (
  slot            text PRIMARY KEY,
  epoch           bigint NOT NULL DEFAULT 0,
  holder          text,
  beat            bigint NOT NULL DEFAULT 0,
  beat_lsn        pg_lsn,
  renewed         timestamptz,
  proven_beat     bigint NOT NULL DEFAULT 0,
  proven_snapshot pg_snapshot,
  proven          timestamptz,
  proven_sending  text, -- what decided, as of proven_snapshot, whether the log sends rows
  repair          text, -- why the slot cannot be trusted alone; null: it can
  system_id       text,
  timeline        integer,
  stopped_lsn     pg_lsn -- confirmed position of a relay that ended in good order
);

REVOKE ALL ON headgate.installation, headgate.outbox, headgate.outbox_rest, headgate.relay_state FROM PUBLIC;

CREATE PUBLICATION headgate_outbox FOR TABLE headgate.outbox
  WITH (publish = 'insert', publish_via_partition_root = true);
