-- The epoch is part of a key: an update that changes it takes the lock that a
-- guard's FOR KEY SHARE excludes, and one that changes only the end of the
-- lease does not. The pages have room, so that renewals touch no index.
CREATE TABLE @leases (
  resource     BYTEA   PRIMARY KEY,
  epoch        BIGINT  NOT NULL,
  nonce        BYTEA,
  holder       BYTEA   NOT NULL,
  worker       BYTEA   NOT NULL,
  request      BYTEA   NOT NULL,
  audience     BYTEA,
  ttl          BIGINT  NOT NULL,
  closing      BOOLEAN NOT NULL,
  acquired     BIGINT  NOT NULL,
  expires      BIGINT  NOT NULL,
  until        BIGINT  NOT NULL,
  changed      BIGINT  NOT NULL,
  UNIQUE (resource, epoch)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- No row ever goes, so that no epoch is ever given twice.
CREATE FUNCTION @leases_stay() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'leases are never deleted';
END $$;
CREATE TRIGGER leases_stay BEFORE DELETE OR TRUNCATE ON @leases
  FOR EACH STATEMENT EXECUTE FUNCTION @leases_stay();
ALTER TABLE @leases ENABLE ALWAYS TRIGGER leases_stay;

-- Nor does an epoch go back, whoever writes.
CREATE FUNCTION @leases_rise() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF new.epoch < old.epoch THEN
    RAISE EXCEPTION 'epochs never fall';
  END IF;
  RETURN new;
END $$;
CREATE TRIGGER leases_rise BEFORE UPDATE OF epoch ON @leases
  FOR EACH ROW EXECUTE FUNCTION @leases_rise();
ALTER TABLE @leases ENABLE ALWAYS TRIGGER leases_rise;

ALTER TABLE @principals ADD COLUMN lease BYTEA;
