-- The newest grant of each resource that this database was told of. The epoch
-- is part of a key: raising it takes the lock that a guard's FOR KEY SHARE
-- excludes, and closing the gate does not.
CREATE TABLE IF NOT EXISTS @private.fences (
  resource bytea   PRIMARY KEY,
  epoch    bigint  NOT NULL CHECK (epoch > 0),
  nonce    bytea   NOT NULL CHECK (octet_length(nonce) = 16),
  closing  boolean NOT NULL DEFAULT false,
  sealed   timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (resource, epoch)
) WITH (fillfactor = 50);
-- The schema may be used by everybody: what default privileges gave goes.
DO $$
DECLARE
  role oid;
BEGIN
  FOR role IN SELECT DISTINCT a.grantee FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
      WHERE c.oid = '@private.fences'::regclass AND a.grantee NOT IN (0, c.relowner) LOOP
    EXECUTE format('REVOKE ALL ON @private.fences FROM %I CASCADE', pg_get_userbyid(role));
  END LOOP;
END $$;
REVOKE ALL ON @private.fences FROM PUBLIC;

-- No row goes and no epoch falls, so that none is ever accepted twice.
CREATE OR REPLACE FUNCTION @private.fences_stay() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'fences are never deleted';
END $$;
CREATE OR REPLACE TRIGGER fences_stay BEFORE DELETE OR TRUNCATE ON @private.fences
  FOR EACH STATEMENT EXECUTE FUNCTION @private.fences_stay();
ALTER TABLE @private.fences ENABLE ALWAYS TRIGGER fences_stay;

CREATE OR REPLACE FUNCTION @private.fences_rise() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF new.epoch < old.epoch THEN
    RAISE EXCEPTION 'epochs never fall';
  END IF;
  RETURN new;
END $$;
CREATE OR REPLACE TRIGGER fences_rise BEFORE UPDATE OF epoch ON @private.fences
  FOR EACH ROW EXECUTE FUNCTION @private.fences_rise();
ALTER TABLE @private.fences ENABLE ALWAYS TRIGGER fences_rise;
REVOKE ALL ON FUNCTION @private.fences_stay(), @private.fences_rise() FROM PUBLIC;

-- First phase of a takeover: what the older grant begins from now on is
-- refused. It waits for no transaction that is under way.
CREATE OR REPLACE FUNCTION @public.fence_gate(resource text, epoch bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE @private.fences f SET closing = true
    WHERE f.resource = convert_to($1, 'UTF8') AND f.epoch < $2 AND NOT f.closing;
  RETURN FOUND;
END $$;

-- Second phase: from its commit on only the new grant passes. It waits for
-- the older grant's transactions, and is a transaction of its own, so that it
-- can wait for nothing that waits for it.
CREATE OR REPLACE FUNCTION @public.fence_seal(resource text, epoch bigint, nonce text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  name  bytea := convert_to(resource, 'UTF8');
  raw   bytea;
  stored record;
BEGIN
  IF NOT @private.well_formed(resource, epoch, nonce) THEN
    RAISE EXCEPTION 'headgate: no valid fence to seal' USING SCHEMA = '@private', ERRCODE = 'HG002';
  END IF;
  IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
    RAISE EXCEPTION 'headgate: a seal must be a transaction of its own' USING SCHEMA = '@private', ERRCODE = 'HG003';
  END IF;
  raw := decode(translate(nonce, '-_', '+/') || '==', 'base64');
  PERFORM set_config('synchronous_commit', 'on', true);
  INSERT INTO @private.fences AS f (resource, epoch, nonce) VALUES (name, fence_seal.epoch, raw)
    ON CONFLICT ON CONSTRAINT fences_pkey DO UPDATE
    SET epoch = excluded.epoch, nonce = excluded.nonce, closing = false, sealed = clock_timestamp()
    WHERE f.epoch < excluded.epoch;
  IF FOUND THEN
    RETURN true;
  END IF;
  SELECT f.epoch, f.nonce, f.closing INTO stored FROM @private.fences f WHERE f.resource = name;
  IF stored.epoch > fence_seal.epoch THEN
    RAISE EXCEPTION 'headgate: epoch % of % is superseded by %', fence_seal.epoch, fence_seal.resource, stored.epoch USING SCHEMA = '@private', ERRCODE = 'HG001';
  ELSIF stored.nonce <> raw THEN
    RAISE EXCEPTION 'headgate: epoch % of % was granted to another holder', fence_seal.epoch, fence_seal.resource USING SCHEMA = '@private', ERRCODE = 'HG006';
  ELSIF stored.closing THEN
    RAISE EXCEPTION 'headgate: the gate of epoch % of % is closed', fence_seal.epoch, fence_seal.resource USING SCHEMA = '@private', ERRCODE = 'HG007';
  END IF;
  RETURN false;
END $$;

-- For a database restored from a backup, before anyone writes: no grant that
-- the backup knows is good any more.
CREATE OR REPLACE FUNCTION @public.fence_close_all() RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  WITH closed AS (UPDATE @private.fences SET closing = true WHERE NOT closing RETURNING 1)
  SELECT count(*) FROM closed;
$$;
