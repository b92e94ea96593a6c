-- What a database needs for an inbox. Run as one transaction by a role that may
-- create roles and schemas; it becomes the owner. Applications call the
-- functions in schema headgate and have no right on any table.

DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'headgate_consumer') THEN
    CREATE ROLE headgate_consumer NOLOGIN;
  END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
  NULL; -- another database of the server was quicker: roles are the server's
END $$;

CREATE SCHEMA IF NOT EXISTS headgate;
CREATE SCHEMA headgate_inbox;
REVOKE ALL ON SCHEMA headgate_inbox FROM PUBLIC;
GRANT USAGE ON SCHEMA headgate TO headgate_consumer;

-- Rows lie in generations, a day or more each, which are dropped whole. All rows
-- of the generations before the present one were committed before it began:
-- whoever writes has read this row, which holds a lock on the table until the
-- transaction ends, and a new generation takes the opposite lock. So the unique
-- index of the present generation, and a look at the others, is a unique index
-- over all.
CREATE TABLE headgate_inbox.state (
  one        boolean PRIMARY KEY DEFAULT true CHECK (one),
  version    integer NOT NULL,
  generation integer NOT NULL DEFAULT 1,
  opened     timestamptz NOT NULL DEFAULT clock_timestamp(),
  length     interval NOT NULL,
  retain     interval NOT NULL,
  -- Nothing that was seen before this time is remembered any more.
  forgotten  timestamptz NOT NULL DEFAULT '-infinity',
  -- Part of a key, so that a new generation conflicts with FOR KEY SHARE.
  UNIQUE (one, generation)
);

CREATE TABLE headgate_inbox.generations (
  generation integer PRIMARY KEY,
  closed     timestamptz -- null: the present one
);

-- A row without expires is done. One with expires is a claim of a worker whose
-- effects lie outside of this database.
CREATE TABLE headgate_inbox.rows (
  generation integer NOT NULL,
  consumer   text COLLATE "C" NOT NULL,
  source     text COLLATE "C" NOT NULL,
  id         text COLLATE "C" NOT NULL,
  seen       timestamptz NOT NULL DEFAULT clock_timestamp(),
  role       name NOT NULL,
  attempts   integer NOT NULL DEFAULT 1,
  claim      uuid,
  expires    timestamptz,
  result     bytea,
  UNIQUE (id, consumer, source, generation)
) PARTITION BY LIST (generation);

CREATE FUNCTION headgate_inbox.open(g integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('CREATE TABLE headgate_inbox.%I PARTITION OF headgate_inbox.rows FOR VALUES IN (%s) WITH (fillfactor = 90)', 'rows_' || g, g);
  INSERT INTO headgate_inbox.generations (generation) VALUES (g);
END $$;

-- Returns the present generation, which stays it until the transaction ends.
-- Where a snapshot is older than the generation may be, the row lock fails with
-- 40001 instead.
CREATE FUNCTION headgate_inbox.enter() RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  g integer;
BEGIN
  IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
    SELECT s.generation INTO STRICT g FROM headgate_inbox.state s FOR KEY SHARE;
  ELSE
    PERFORM FROM headgate_inbox.state; -- takes the lock
    SELECT s.generation INTO STRICT g FROM headgate_inbox.state s; -- reads under it
  END IF;
  RETURN g;
END $$;

CREATE FUNCTION headgate_inbox.check_event(consumer text, source text, id text, recorded timestamptz, allow_old boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  horizon timestamptz;
BEGIN
  IF coalesce(consumer, '') = '' OR coalesce(source, '') = '' OR coalesce(id, '') = ''
     OR octet_length(consumer) > 256 OR octet_length(source) > 1024 OR octet_length(id) > 256 THEN
    RAISE EXCEPTION 'headgate: the event needs consumer, source and id'
      USING SCHEMA = 'headgate_inbox', ERRCODE = 'HG201', HINT = 'At most 256, 1024 and 256 bytes.';
  ELSIF allow_old THEN
    RETURN;
  END IF;
  SELECT s.forgotten INTO STRICT horizon FROM headgate_inbox.state s;
  -- An hour, since recorded is of another clock.
  IF horizon > '-infinity' AND (recorded IS NULL OR recorded < horizon + interval '1 hour') THEN
    RAISE EXCEPTION 'headgate: the event was recorded at %, and what was handled before % is forgotten', coalesce(recorded::text, 'an unknown time'), horizon + interval '1 hour'
      USING SCHEMA = 'headgate_inbox', ERRCODE = 'HG202', HINT = 'See whether it was handled; if not, repeat with allow_old.';
  END IF;
END $$;

-- Notes an event in the caller's transaction. True: it is new, go on. False: it
-- was handled before, settle it and write nothing. A call for the same event in
-- another transaction waits until that one has ended. With cause, events that
-- the transaction emits are children of the delivery.
CREATE FUNCTION headgate.receive(
  consumer text, source text, id text, recorded timestamptz, cause text DEFAULT NULL, allow_old boolean DEFAULT false
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  g    integer := headgate_inbox.enter();
  open boolean;
BEGIN
  PERFORM headgate_inbox.check_event($1, $2, $3, $4, $6);
  IF cause <> '' AND (length(cause) > 4096 OR cause !~ '^[A-Za-z0-9_-]+$') THEN
    RAISE EXCEPTION 'headgate: this is no causal token'
      USING SCHEMA = 'headgate_inbox', ERRCODE = 'HG201', HINT = 'Pass the token exactly as it came with the delivery.';
  END IF;
  SELECT r.expires IS NOT NULL INTO open FROM headgate_inbox.rows r
    WHERE r.id = $3 AND r.consumer = $1 AND r.source = $2 AND r.generation < g;
  IF NOT FOUND THEN
    INSERT INTO headgate_inbox.rows (generation, consumer, source, id, role) VALUES (g, $1, $2, $3, session_user)
      ON CONFLICT DO NOTHING;
    IF FOUND THEN
      IF cause IS NOT NULL THEN
        PERFORM set_config('headgate.cause', cause, true);
      END IF;
      RETURN true;
    END IF;
    SELECT r.expires IS NOT NULL INTO open FROM headgate_inbox.rows r
      WHERE r.id = $3 AND r.consumer = $1 AND r.source = $2 AND r.generation = g;
  END IF;
  IF open THEN
    RAISE EXCEPTION 'headgate: the event was claimed, and its outcome is not recorded'
      USING SCHEMA = 'headgate_inbox', ERRCODE = 'HG203', HINT = 'One consumer handles an event either in a transaction or by claims.';
  END IF;
  RETURN false;
END $$;

-- Claims an event whose effect lies outside of this database. State is run (do
-- it, under this claim, with the event as idempotency key), busy (another does
-- it; ask again after wait) or done (with its result).
CREATE FUNCTION headgate.inbox_claim(
  consumer text, source text, id text, recorded timestamptz, ttl interval, allow_old boolean DEFAULT false,
  OUT state text, OUT claim uuid, OUT attempt integer, OUT wait interval, OUT result bytea
) RETURNS record
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  g   integer := headgate_inbox.enter();
  row headgate_inbox.rows;
BEGIN
  PERFORM headgate_inbox.check_event($1, $2, $3, $4, $6);
  IF ttl IS NULL OR ttl < interval '1 millisecond' OR ttl > interval '1 day' THEN
    RAISE EXCEPTION 'headgate: a claim lasts from a millisecond to a day' USING SCHEMA = 'headgate_inbox', ERRCODE = 'HG201';
  END IF;
  SELECT r.* INTO row FROM headgate_inbox.rows r
    WHERE r.id = $3 AND r.consumer = $1 AND r.source = $2 AND r.generation < g FOR UPDATE;
  IF NOT FOUND THEN
    claim := gen_random_uuid();
    INSERT INTO headgate_inbox.rows AS r (generation, consumer, source, id, role, claim, expires)
      VALUES (g, $1, $2, $3, session_user, claim, clock_timestamp() + ttl) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      state := 'run'; attempt := 1;
      RETURN;
    END IF;
    claim := NULL;
    SELECT r.* INTO STRICT row FROM headgate_inbox.rows r
      WHERE r.id = $3 AND r.consumer = $1 AND r.source = $2 AND r.generation = g FOR UPDATE;
  END IF;
  attempt := row.attempts;
  IF row.expires IS NULL THEN
    state := 'done'; result := row.result;
  ELSIF row.expires > clock_timestamp() THEN
    state := 'busy'; wait := row.expires - clock_timestamp();
  ELSE
    state := 'run'; claim := gen_random_uuid(); attempt := row.attempts + 1;
    UPDATE headgate_inbox.rows r SET claim = inbox_claim.claim, expires = clock_timestamp() + ttl, attempts = inbox_claim.attempt, role = session_user
      WHERE r.id = $3 AND r.consumer = $1 AND r.source = $2 AND r.generation = row.generation;
  END IF;
END $$;

-- Finds the claimed row, locked; it must be under this very claim.
CREATE FUNCTION headgate_inbox.claimed(consumer text, source text, id text, claim uuid) RETURNS headgate_inbox.rows
LANGUAGE plpgsql AS $$
DECLARE
  row headgate_inbox.rows;
BEGIN
  PERFORM headgate_inbox.enter();
  SELECT r.* INTO row FROM headgate_inbox.rows r WHERE r.id = $3 AND r.consumer = $1 AND r.source = $2 FOR UPDATE;
  IF row.claim IS NULL OR row.claim IS DISTINCT FROM $4 THEN
    RAISE EXCEPTION 'headgate: the claim was taken over, or is not known'
      USING SCHEMA = 'headgate_inbox', ERRCODE = 'HG204', HINT = 'Drop the work; what became of it is the newer claim''s to say.';
  END IF;
  RETURN row;
END $$;

-- Records the outcome of a claim, also of one that ran out, unless another has
-- taken it over. To repeat it changes nothing.
CREATE FUNCTION headgate.inbox_finish(consumer text, source text, id text, claim uuid, result bytea) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  row headgate_inbox.rows := headgate_inbox.claimed($1, $2, $3, $4);
BEGIN
  IF octet_length(result) > 65536 THEN
    RAISE EXCEPTION 'headgate: the result has % bytes; at most 65536 are kept', octet_length(result)
      USING SCHEMA = 'headgate_inbox', ERRCODE = 'HG205', HINT = 'Keep it elsewhere and record where.';
  END IF;
  UPDATE headgate_inbox.rows r SET expires = NULL, result = $5
    WHERE r.id = $3 AND r.consumer = $1 AND r.source = $2 AND r.generation = row.generation AND r.expires IS NOT NULL;
END $$;

-- Ends a claim without an outcome, so that the next one need not wait.
CREATE FUNCTION headgate.inbox_release(consumer text, source text, id text, claim uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  row headgate_inbox.rows := headgate_inbox.claimed($1, $2, $3, $4);
BEGIN
  UPDATE headgate_inbox.rows r SET expires = clock_timestamp()
    WHERE r.id = $3 AND r.consumer = $1 AND r.source = $2 AND r.generation = row.generation AND r.expires IS NOT NULL;
END $$;

-- Begins a new generation when the present one is old enough, and drops those
-- that are older than the inbox's retention. It waits for transactions that
-- received, and holds up new ones, for at most wait. Returns what it dropped.
CREATE FUNCTION headgate.inbox_maintain(wait interval DEFAULT '1 second') RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  s       headgate_inbox.state;
  g       record;
  dropped text[] := '{}';
BEGIN
  SELECT * INTO STRICT s FROM headgate_inbox.state;
  IF s.opened > clock_timestamp() - s.length
     AND NOT EXISTS (SELECT FROM headgate_inbox.generations o WHERE o.closed < clock_timestamp() - s.retain) THEN
    RETURN dropped;
  END IF;
  PERFORM set_config('lock_timeout', greatest(1, least(10000, extract(epoch FROM wait) * 1000))::integer::text, true);
  LOCK TABLE headgate_inbox.state IN ACCESS EXCLUSIVE MODE;
  SELECT * INTO STRICT s FROM headgate_inbox.state;
  IF s.opened <= clock_timestamp() - s.length THEN
    PERFORM headgate_inbox.open(s.generation + 1);
    UPDATE headgate_inbox.generations SET closed = clock_timestamp() WHERE generation = s.generation;
    UPDATE headgate_inbox.state SET generation = s.generation + 1, opened = clock_timestamp();
  END IF;
  FOR g IN SELECT * FROM headgate_inbox.generations o WHERE o.closed < clock_timestamp() - s.retain ORDER BY o.generation LOOP
    UPDATE headgate_inbox.state SET forgotten = greatest(forgotten, g.closed);
    EXECUTE format('DROP TABLE headgate_inbox.%I', 'rows_' || g.generation);
    DELETE FROM headgate_inbox.generations WHERE generation = g.generation;
    dropped := dropped || ('rows_' || g.generation);
  END LOOP;
  RETURN dropped;
END $$;

-- What can be told of the inbox, without its rows.
CREATE FUNCTION headgate.inbox_status(
  OUT version integer, OUT generation integer, OUT generations integer, OUT opened timestamptz, OUT overdue boolean,
  OUT retain interval, OUT forgotten timestamptz, OUT rows_estimate bigint, OUT bytes bigint, OUT claims_open bigint, OUT claims_late bigint
) RETURNS record
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  SELECT s.version, s.generation, s.opened, s.opened < clock_timestamp() - 2 * s.length, s.retain, s.forgotten
    INTO version, generation, opened, overdue, retain, forgotten FROM headgate_inbox.state s;
  SELECT count(*), coalesce(sum(greatest(c.reltuples, 0))::bigint, 0), coalesce(sum(pg_total_relation_size(c.oid))::bigint, 0)
    INTO generations, rows_estimate, bytes
    FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid WHERE h.inhparent = 'headgate_inbox.rows'::regclass;
  SELECT count(*), count(*) FILTER (WHERE r.expires < clock_timestamp()) INTO claims_open, claims_late
    FROM headgate_inbox.rows r WHERE r.expires IS NOT NULL;
END $$;
CREATE INDEX rows_claims ON headgate_inbox.rows (expires) WHERE expires IS NOT NULL;

REVOKE ALL ON ALL TABLES IN SCHEMA headgate_inbox FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA headgate_inbox FROM PUBLIC;
REVOKE ALL ON FUNCTION headgate.receive(text, text, text, timestamptz, text, boolean),
  headgate.inbox_claim(text, text, text, timestamptz, interval, boolean), headgate.inbox_finish(text, text, text, uuid, bytea),
  headgate.inbox_release(text, text, text, uuid), headgate.inbox_maintain(interval), headgate.inbox_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION headgate.receive(text, text, text, timestamptz, text, boolean),
  headgate.inbox_claim(text, text, text, timestamptz, interval, boolean), headgate.inbox_finish(text, text, text, uuid, bytea),
  headgate.inbox_release(text, text, text, uuid), headgate.inbox_maintain(interval), headgate.inbox_status() TO headgate_consumer;
