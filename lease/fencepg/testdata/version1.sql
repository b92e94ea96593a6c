-- What version 1 put into a database, with two fenced tables.
-- Where the guards look, for functions only. Applications get no right on it.
CREATE SCHEMA IF NOT EXISTS "headgate_fence";
CREATE SCHEMA IF NOT EXISTS "headgate";
REVOKE ALL ON SCHEMA "headgate_fence" FROM PUBLIC;

-- The newest grant of each resource that this database was told of. The epoch
-- is part of a key: raising it takes the lock that a guard's FOR KEY SHARE
-- excludes, and closing the gate does not.
CREATE TABLE "headgate_fence".fences (
  resource bytea   PRIMARY KEY,
  epoch    bigint  NOT NULL CHECK (epoch > 0),
  nonce    bytea   NOT NULL CHECK (octet_length(nonce) = 16),
  closing  boolean NOT NULL DEFAULT false,
  sealed   timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (resource, epoch)
) WITH (fillfactor = 50);

-- No row goes and no epoch falls, so that none is ever accepted twice.
CREATE FUNCTION "headgate_fence".fences_stay() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'fences are never deleted';
END $$;
CREATE TRIGGER fences_stay BEFORE DELETE OR TRUNCATE ON "headgate_fence".fences
  FOR EACH STATEMENT EXECUTE FUNCTION "headgate_fence".fences_stay();
ALTER TABLE "headgate_fence".fences ENABLE ALWAYS TRIGGER fences_stay;

CREATE FUNCTION "headgate_fence".fences_rise() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF new.epoch < old.epoch THEN
    RAISE EXCEPTION 'epochs never fall';
  END IF;
  RETURN new;
END $$;
CREATE TRIGGER fences_rise BEFORE UPDATE OF epoch ON "headgate_fence".fences
  FOR EACH ROW EXECUTE FUNCTION "headgate_fence".fences_rise();
ALTER TABLE "headgate_fence".fences ENABLE ALWAYS TRIGGER fences_rise;

-- First phase of a takeover: what the older grant begins from now on is
-- refused. It waits for no transaction that is under way.
CREATE FUNCTION "headgate".fence_gate(resource text, epoch bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE "headgate_fence".fences f SET closing = true
    WHERE f.resource = convert_to($1, 'UTF8') AND f.epoch < $2 AND NOT f.closing;
  RETURN FOUND;
END $$;

-- Second phase: from its commit on only the new grant passes. It waits for
-- the older grant's transactions, and is a transaction of its own, so that it
-- can wait for nothing that waits for it.
CREATE FUNCTION "headgate".fence_seal(resource text, epoch bigint, nonce text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  name  bytea := convert_to(resource, 'UTF8');
  raw   bytea;
  stored record;
BEGIN
  IF resource IS NULL OR epoch IS NULL OR nonce IS NULL OR nonce !~ '^[A-Za-z0-9_-]{22}$' OR epoch <= 0 OR octet_length(name) NOT BETWEEN 1 AND 1024 THEN
    RAISE EXCEPTION 'headgate: no valid fence to seal' USING SCHEMA = '"headgate_fence"', ERRCODE = 'HG002';
  END IF;
  IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
    RAISE EXCEPTION 'headgate: a seal must be a transaction of its own' USING SCHEMA = '"headgate_fence"', ERRCODE = 'HG003';
  END IF;
  raw := decode(translate(nonce, '-_', '+/') || '==', 'base64');
  PERFORM set_config('synchronous_commit', 'on', true);
  INSERT INTO "headgate_fence".fences AS f (resource, epoch, nonce) VALUES (name, fence_seal.epoch, raw)
    ON CONFLICT ON CONSTRAINT fences_pkey DO UPDATE
    SET epoch = excluded.epoch, nonce = excluded.nonce, closing = false, sealed = clock_timestamp()
    WHERE f.epoch < excluded.epoch;
  IF FOUND THEN
    RETURN true;
  END IF;
  SELECT f.epoch, f.nonce, f.closing INTO stored FROM "headgate_fence".fences f WHERE f.resource = name;
  IF stored.epoch > fence_seal.epoch THEN
    RAISE EXCEPTION 'headgate: epoch % of % is superseded by %', fence_seal.epoch, fence_seal.resource, stored.epoch USING SCHEMA = '"headgate_fence"', ERRCODE = 'HG001';
  ELSIF stored.nonce <> raw THEN
    RAISE EXCEPTION 'headgate: epoch % of % was granted to another holder', fence_seal.epoch, fence_seal.resource USING SCHEMA = '"headgate_fence"', ERRCODE = 'HG006';
  ELSIF stored.closing THEN
    RAISE EXCEPTION 'headgate: the gate of epoch % of % is closed', fence_seal.epoch, fence_seal.resource USING SCHEMA = '"headgate_fence"', ERRCODE = 'HG007';
  END IF;
  RETURN false;
END $$;

-- For a database restored from a backup, before anyone writes: no grant that
-- the backup knows is good any more.
CREATE FUNCTION "headgate".fence_close_all() RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  WITH closed AS (UPDATE "headgate_fence".fences SET closing = true WHERE NOT closing RETURNING 1)
  SELECT count(*) FROM closed;
$$;
REVOKE ALL ON FUNCTION "headgate".fence_gate(text, bigint), "headgate".fence_seal(text, bigint, text), "headgate".fence_close_all() FROM PUBLIC;

-- The guard itself. It locks the row under this epoch until the transaction
-- ends: whoever raises the epoch waits, and a guard that comes while it is
-- being raised waits for the outcome. Called by the functions below only.
CREATE FUNCTION "headgate_fence".pass(r text, e bigint, n text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  stored record;
BEGIN
  PERFORM FROM "headgate_fence".fences l
    WHERE l.resource = convert_to(r, 'UTF8')
      AND l.epoch = e --epoch
      AND translate(rtrim(encode(l.nonce, 'base64'), '='), '+/', '-_') = n --nonce
      AND NOT l.closing --gate
      AND true --expiry
    FOR KEY SHARE; --lock
  IF FOUND THEN
    RETURN;
  END IF;
  SELECT l.epoch, translate(rtrim(encode(l.nonce, 'base64'), '='), '+/', '-_') AS nonce, l.closing, true AS alive
    INTO stored FROM "headgate_fence".fences l WHERE l.resource = convert_to(r, 'UTF8');
  IF stored.epoch IS NULL THEN
    RAISE EXCEPTION 'headgate: % was never leased here', r USING SCHEMA = '"headgate_fence"', ERRCODE = 'HG003', HINT = 'Seal this database with the new grant before using it.';
  ELSIF stored.epoch > e THEN
    RAISE EXCEPTION 'headgate: epoch % of % is superseded by %', e, r, stored.epoch USING SCHEMA = '"headgate_fence"', ERRCODE = 'HG001', HINT = 'Stop: another worker holds the lease.';
  ELSIF stored.epoch < e THEN
    RAISE EXCEPTION 'headgate: epoch % of % is not known here', e, r USING SCHEMA = '"headgate_fence"', ERRCODE = 'HG003', HINT = 'Seal this database with the new grant before using it.';
  ELSIF stored.nonce IS DISTINCT FROM n THEN
    RAISE EXCEPTION 'headgate: epoch % of % was granted to another holder', e, r USING SCHEMA = '"headgate_fence"', ERRCODE = 'HG006';
  ELSIF stored.closing THEN
    RAISE EXCEPTION 'headgate: the lease on % is being taken away', r USING SCHEMA = '"headgate_fence"', ERRCODE = 'HG007', HINT = 'Stop and release the lease.';
  END IF;
  RAISE EXCEPTION 'headgate: the lease on % ran out', r USING SCHEMA = '"headgate_fence"', ERRCODE = 'HG005', HINT = 'Renew the lease; if that is refused, stop.';
END $$;

-- What an application calls first in a transaction. It notes the fence for
-- the triggers of fenced tables: for this transaction only, of which it notes
-- the number, so that a setting that was left behind counts for nothing.
CREATE FUNCTION "headgate".fence(resource text, epoch bigint, nonce text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  noted text := current_setting('headgate.fences', true);
  own   text;
  held  jsonb := '{}';
BEGIN
  IF resource IS NULL OR epoch IS NULL OR nonce IS NULL THEN
    RAISE EXCEPTION 'headgate: the fence is missing' USING SCHEMA = '"headgate_fence"', ERRCODE = 'HG002', HINT = 'Acquire the lease and pass its resource, epoch and nonce.';
  END IF;
  PERFORM "headgate_fence".pass(resource, epoch, nonce);
  own := pg_current_xact_id()::text;
  IF noted LIKE '{"x": "' || own || '"%' THEN
    held := noted::jsonb -> 'f';
  END IF;
  held := held || jsonb_build_object(resource, jsonb_build_array(epoch::text, nonce));
  PERFORM set_config('headgate.fences', '{"x": "' || own || '", "f": ' || held::text || '}', true);
  RETURN true;
END $$;

-- The same with the lease's token as it came. Its signature is not checked:
-- the nonce in it is.
CREATE FUNCTION "headgate".fence(token text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  part text := translate(split_part(token, '.', 2), '-_', '+/');
  said jsonb;
BEGIN
  IF token IS NULL OR token = '' THEN
    RAISE EXCEPTION 'headgate: the fence is missing' USING SCHEMA = '"headgate_fence"', ERRCODE = 'HG002', HINT = 'Acquire the lease and pass its token.';
  ELSIF length(token) > 4096 OR token !~ '^hgl1\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$' THEN
    RAISE EXCEPTION 'headgate: the fence is no lease token' USING SCHEMA = '"headgate_fence"', ERRCODE = 'HG002';
  END IF;
  said := convert_from(decode(part || repeat('=', (4 - length(part) % 4) % 4), 'base64'), 'UTF8')::jsonb;
  RETURN "headgate".fence(said ->> 'res', (said ->> 'epoch')::bigint, said ->> 'nonce');
END $$;

-- What the triggers ask: does this transaction hold a fence on the resource,
-- and is it still good? Asking anew also takes the lock anew that a rolled
-- back savepoint has dropped.
CREATE FUNCTION "headgate_fence".holds(r text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  noted text := current_setting('headgate.fences', true);
  said  jsonb;
BEGIN
  IF noted IS NULL OR noted = '' THEN
    RAISE EXCEPTION 'headgate: the table is fenced and the transaction names no fence' USING SCHEMA = '"headgate_fence"', ERRCODE = 'HG002', HINT = 'Call headgate.fence first in the transaction.';
  END IF;
  said := noted::jsonb;
  IF said ->> 'x' IS DISTINCT FROM pg_current_xact_id_if_assigned()::text THEN --transaction
    RAISE EXCEPTION 'headgate: the fence belongs to another transaction' USING SCHEMA = '"headgate_fence"', ERRCODE = 'HG002', HINT = 'Call headgate.fence first in every transaction; never set headgate.fences.';
  END IF;
  said := said -> 'f' -> r;
  IF said IS NULL OR r IS NULL THEN
    RAISE EXCEPTION 'headgate: the row belongs to %, for which the transaction holds no fence', coalesce(r, 'no resource') USING SCHEMA = '"headgate_fence"', ERRCODE = 'HG004';
  END IF;
  PERFORM "headgate_fence".pass(r, (said ->> 0)::bigint, said ->> 1); --again
END $$;

CREATE FUNCTION "headgate_fence".fence_statement() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM "headgate_fence".holds(TG_ARGV[0]);
  RETURN NULL;
END $$;

CREATE FUNCTION "headgate_fence".fence_never() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'headgate: a table whose rows belong to many resources cannot be truncated' USING SCHEMA = '"headgate_fence"', ERRCODE = 'HG003', HINT = 'Delete the rows under their fences.';
END $$;
REVOKE ALL ON FUNCTION "headgate_fence".pass(text, bigint, text), "headgate_fence".holds(text), "headgate_fence".fence_statement(), "headgate_fence".fence_never(),
  "headgate".fence(text, bigint, text), "headgate".fence(text) FROM PUBLIC;

GRANT USAGE ON SCHEMA "headgate" TO PUBLIC;
GRANT EXECUTE ON FUNCTION "headgate".fence(text, bigint, text), "headgate".fence(text) TO PUBLIC;
GRANT EXECUTE ON FUNCTION "headgate".fence_gate(text, bigint), "headgate".fence_seal(text, bigint, text) TO PUBLIC;

COMMENT ON SCHEMA "headgate_fence" IS 'headgate fencing 1, fences';
DROP TRIGGER IF EXISTS headgate_fence ON "public"."tickets";
DROP TRIGGER IF EXISTS headgate_fence_insert ON "public"."tickets";
DROP TRIGGER IF EXISTS headgate_fence_update ON "public"."tickets";
DROP TRIGGER IF EXISTS headgate_fence_delete ON "public"."tickets";
DROP TRIGGER IF EXISTS headgate_fence_rows ON "public"."tickets";
-- Rows name their resources: each statement is checked once for each resource
-- that it touched, with the rows as they were and as they are.
CREATE OR REPLACE FUNCTION "headgate_fence".rows_4477591b3d006e7b() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
-- A key reads the same in every session, whatever its settings.
SET datestyle = 'ISO, YMD' SET timezone = 'UTC' SET intervalstyle = 'postgres'
SET extra_float_digits = 1 SET bytea_output = 'hex' SET lc_monetary = 'C' AS $headgate$
DECLARE
  r text;
BEGIN
  IF TG_OP = 'INSERT' THEN
    FOR r IN SELECT DISTINCT 't/' || CAST("ticket" AS text) FROM headgate_new LOOP PERFORM "headgate_fence".holds(r); END LOOP;
  ELSIF TG_OP = 'DELETE' THEN
    FOR r IN SELECT DISTINCT 't/' || CAST("ticket" AS text) FROM headgate_old LOOP PERFORM "headgate_fence".holds(r); END LOOP;
  ELSE
    FOR r IN SELECT 't/' || CAST("ticket" AS text) FROM headgate_old UNION SELECT 't/' || CAST("ticket" AS text) FROM headgate_new LOOP PERFORM "headgate_fence".holds(r); END LOOP;
  END IF;
  RETURN NULL;
END $headgate$;
REVOKE ALL ON FUNCTION "headgate_fence".rows_4477591b3d006e7b() FROM PUBLIC;
DO $$
DECLARE
  owner name;
BEGIN
  SELECT pg_get_userbyid(proowner) INTO STRICT owner FROM pg_catalog.pg_proc WHERE oid = '"headgate_fence".fence_statement()'::regprocedure;
  IF owner <> current_user THEN
    EXECUTE format('ALTER FUNCTION "headgate_fence".rows_4477591b3d006e7b() OWNER TO %I', owner);
  END IF;
END $$;
CREATE TRIGGER headgate_fence BEFORE TRUNCATE ON "public"."tickets" FOR EACH STATEMENT EXECUTE FUNCTION "headgate_fence".fence_never();
ALTER TABLE ONLY "public"."tickets" ENABLE ALWAYS TRIGGER headgate_fence;
CREATE TRIGGER headgate_fence_insert AFTER INSERT ON "public"."tickets" REFERENCING NEW TABLE AS headgate_new FOR EACH STATEMENT EXECUTE FUNCTION "headgate_fence".rows_4477591b3d006e7b();
ALTER TABLE ONLY "public"."tickets" ENABLE ALWAYS TRIGGER headgate_fence_insert;
CREATE TRIGGER headgate_fence_update AFTER UPDATE ON "public"."tickets" REFERENCING OLD TABLE AS headgate_old NEW TABLE AS headgate_new FOR EACH STATEMENT EXECUTE FUNCTION "headgate_fence".rows_4477591b3d006e7b();
ALTER TABLE ONLY "public"."tickets" ENABLE ALWAYS TRIGGER headgate_fence_update;
CREATE TRIGGER headgate_fence_delete AFTER DELETE ON "public"."tickets" REFERENCING OLD TABLE AS headgate_old FOR EACH STATEMENT EXECUTE FUNCTION "headgate_fence".rows_4477591b3d006e7b();
ALTER TABLE ONLY "public"."tickets" ENABLE ALWAYS TRIGGER headgate_fence_delete;
DROP TRIGGER IF EXISTS headgate_fence ON "public"."parted";
DROP TRIGGER IF EXISTS headgate_fence_insert ON "public"."parted";
DROP TRIGGER IF EXISTS headgate_fence_update ON "public"."parted";
DROP TRIGGER IF EXISTS headgate_fence_delete ON "public"."parted";
DROP TRIGGER IF EXISTS headgate_fence_rows ON "public"."parted";
DROP TRIGGER IF EXISTS headgate_fence ON "public"."parted_1";
DROP TRIGGER IF EXISTS headgate_fence_insert ON "public"."parted_1";
DROP TRIGGER IF EXISTS headgate_fence_update ON "public"."parted_1";
DROP TRIGGER IF EXISTS headgate_fence_delete ON "public"."parted_1";
-- Partitions to come inherit triggers of rows only.
CREATE OR REPLACE FUNCTION "headgate_fence".rows_8d6e8cb673b194ac() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
-- A key reads the same in every session, whatever its settings.
SET datestyle = 'ISO, YMD' SET timezone = 'UTC' SET intervalstyle = 'postgres'
SET extra_float_digits = 1 SET bytea_output = 'hex' SET lc_monetary = 'C' AS $headgate$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    PERFORM "headgate_fence".holds('t/' || CAST(OLD."ticket" AS text));
  END IF;
  IF TG_OP <> 'DELETE' THEN
    PERFORM "headgate_fence".holds('t/' || CAST(NEW."ticket" AS text));
  END IF;
  RETURN NULL;
END $headgate$;
REVOKE ALL ON FUNCTION "headgate_fence".rows_8d6e8cb673b194ac() FROM PUBLIC;
DO $$
DECLARE
  owner name;
BEGIN
  SELECT pg_get_userbyid(proowner) INTO STRICT owner FROM pg_catalog.pg_proc WHERE oid = '"headgate_fence".fence_statement()'::regprocedure;
  IF owner <> current_user THEN
    EXECUTE format('ALTER FUNCTION "headgate_fence".rows_8d6e8cb673b194ac() OWNER TO %I', owner);
  END IF;
END $$;
CREATE TRIGGER headgate_fence BEFORE TRUNCATE ON "public"."parted" FOR EACH STATEMENT EXECUTE FUNCTION "headgate_fence".fence_never();
ALTER TABLE ONLY "public"."parted" ENABLE ALWAYS TRIGGER headgate_fence;
CREATE TRIGGER headgate_fence BEFORE TRUNCATE ON "public"."parted_1" FOR EACH STATEMENT EXECUTE FUNCTION "headgate_fence".fence_never();
ALTER TABLE ONLY "public"."parted_1" ENABLE ALWAYS TRIGGER headgate_fence;
CREATE TRIGGER headgate_fence_rows AFTER INSERT OR UPDATE OR DELETE ON "public"."parted" FOR EACH ROW EXECUTE FUNCTION "headgate_fence".rows_8d6e8cb673b194ac();
ALTER TABLE ONLY "public"."parted" ENABLE ALWAYS TRIGGER headgate_fence_rows;
ALTER TABLE ONLY "public"."parted_1" ENABLE ALWAYS TRIGGER headgate_fence_rows;
