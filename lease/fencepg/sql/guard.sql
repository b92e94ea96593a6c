-- Says why a fence does not pass. Called when it was not found, by the
-- functions below only.
CREATE OR REPLACE FUNCTION @private.refuse(r text, e bigint, n text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  stored record;
BEGIN
  IF r IS NULL OR e IS NULL OR n IS NULL THEN
    RAISE EXCEPTION 'headgate: the fence is missing' USING SCHEMA = '@private', ERRCODE = 'HG002', HINT = 'Acquire the lease and pass its resource, epoch and nonce.';
  ELSIF NOT @private.well_formed(r, e, n) THEN
    RAISE EXCEPTION 'headgate: the fence is of no grant' USING SCHEMA = '@private', ERRCODE = 'HG002', HINT = 'Pass resource, epoch and nonce as the lease has them.';
  END IF;
  SELECT l.epoch, translate(rtrim(encode(l.nonce, 'base64'), '='), '+/', '-_') AS nonce, l.closing, @alive AS alive
    INTO stored FROM @table l WHERE l.resource = convert_to(r, 'UTF8');
  IF stored.epoch IS NULL THEN
    RAISE EXCEPTION 'headgate: % was never leased here', r USING SCHEMA = '@private', ERRCODE = '@unknown', HINT = '@hint';
  ELSIF stored.epoch > e THEN
    RAISE EXCEPTION 'headgate: epoch % of % is superseded by %', e, r, stored.epoch USING SCHEMA = '@private', ERRCODE = 'HG001', HINT = 'Stop: another worker holds the lease.';
  ELSIF stored.epoch < e THEN
    RAISE EXCEPTION 'headgate: epoch % of % is not known here', e, r USING SCHEMA = '@private', ERRCODE = '@unknown', HINT = '@hint';
  ELSIF stored.nonce IS DISTINCT FROM n THEN
    RAISE EXCEPTION 'headgate: epoch % of % was granted to another holder', e, r USING SCHEMA = '@private', ERRCODE = 'HG006';
  ELSIF stored.closing THEN
    RAISE EXCEPTION 'headgate: the lease on % is being taken away', r USING SCHEMA = '@private', ERRCODE = 'HG007', HINT = 'Stop and release the lease.';
  END IF;
  RAISE EXCEPTION 'headgate: the lease on % ran out', r USING SCHEMA = '@private', ERRCODE = 'HG005', HINT = 'Renew the lease; if that is refused, stop.';
END $$;

-- The same with the lease's token as it came. Its signature is not checked:
-- the nonce in it is. What cannot be read is no fence, whatever is wrong with
-- it; the lock is taken after the block that catches that.
CREATE OR REPLACE FUNCTION @public.fence(token text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  part text;
  said jsonb;
  r    text;
  e    bigint;
BEGIN
  IF token IS NULL OR token = '' THEN
    RAISE EXCEPTION 'headgate: the fence is missing' USING SCHEMA = '@private', ERRCODE = 'HG002', HINT = 'Acquire the lease and pass its token.';
  ELSIF length(token) > 4096 OR token !~ '^hgl1\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$' THEN
    RAISE EXCEPTION 'headgate: the fence is no lease token' USING SCHEMA = '@private', ERRCODE = 'HG002';
  END IF;
  BEGIN
    part := translate(split_part(token, '.', 2), '-_', '+/');
    said := convert_from(decode(part || repeat('=', (4 - length(part) % 4) % 4), 'base64'), 'UTF8')::jsonb;
    IF jsonb_typeof(said -> 'res') = 'string' THEN
      r := said ->> 'res';
    END IF;
    e := (said ->> 'epoch')::bigint;
  EXCEPTION WHEN data_exception OR program_limit_exceeded THEN --malformed
    RAISE EXCEPTION 'headgate: the fence is no lease token' USING SCHEMA = '@private', ERRCODE = 'HG002';
  END;
  RETURN @public.fence(r, e, said ->> 'nonce');
END $$;

-- What the triggers ask: does this transaction hold a fence on the resource,
-- and is it still good? Asking anew also takes the lock anew that a rolled
-- back savepoint has dropped.
--
-- Those of rows run with the rights of whoever writes, so everybody may call
-- this. It answers for the caller's own transaction; why a fence does not pass,
-- which tells of the lease, it says to who may ask the guard itself. As in the
-- guard nothing may be looked up.
CREATE OR REPLACE FUNCTION @private.holds(r text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
DECLARE
  noted pg_catalog.text := pg_catalog.current_setting('@setting', true);
  start integer;
  said  pg_catalog.text;
  e     bigint;
  n     pg_catalog.text;
BEGIN
  IF noted IS NULL OR noted OPERATOR(pg_catalog.=) '' THEN
    RAISE EXCEPTION 'headgate: the table is fenced and the transaction names no fence' USING SCHEMA = '@private', ERRCODE = 'HG002', HINT = 'Call headgate.fence first in the transaction.';
  END IF;
  said := pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text OPERATOR(pg_catalog.||) E'\n';
  IF said IS NULL OR NOT pg_catalog.starts_with(noted, said) THEN --transaction
    RAISE EXCEPTION 'headgate: the fence belongs to another transaction' USING SCHEMA = '@private', ERRCODE = 'HG002', HINT = 'Call headgate.fence first in every transaction; never set @setting.';
  END IF;
  start := pg_catalog.strpos(noted, pg_catalog.concat(E'\n', r, E'\t'));
  IF r IS NULL OR start OPERATOR(pg_catalog.=) 0 THEN
    RAISE EXCEPTION 'headgate: the row belongs to %, for which the transaction holds no fence', coalesce(r, 'no resource') USING SCHEMA = '@private', ERRCODE = 'HG004';
  END IF;
  noted := pg_catalog.substr(noted, start OPERATOR(pg_catalog.+) pg_catalog.length(r) OPERATOR(pg_catalog.+) 2);
  said := pg_catalog.split_part(noted, E'\t', 1);
  IF said OPERATOR(pg_catalog.=) '' OR pg_catalog.length(said) OPERATOR(pg_catalog.>) 18 OR pg_catalog.translate(said, '0123456789', '') OPERATOR(pg_catalog.<>) '' THEN
    RAISE EXCEPTION 'headgate: the fence cannot be read' USING SCHEMA = '@private', ERRCODE = 'HG002', HINT = 'Never set @setting.';
  END IF;
  e := said::bigint;
  n := pg_catalog.split_part(pg_catalog.split_part(noted, E'\n', 1), E'\t', 2);
  @pass
  IF NOT FOUND THEN
    said := pg_catalog.current_setting('role');
    IF said OPERATOR(pg_catalog.=) 'none' THEN
      said := session_user;
    END IF;
    IF NOT pg_catalog.has_function_privilege(said::pg_catalog.name, '@public.fence(pg_catalog.text, bigint, pg_catalog.text)', 'EXECUTE') THEN
      RAISE EXCEPTION 'headgate: the fence does not pass' USING SCHEMA = '@private', ERRCODE = 'HG002', HINT = 'Who may call headgate.fence is told why.';
    END IF;
    RETURN @private.refuse(r, e, n); --again
  END IF;
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION @private.fence_statement() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  good boolean := @private.holds(TG_ARGV[0]);
BEGIN
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION @private.fence_never() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'headgate: a table whose rows belong to many resources cannot be truncated' USING SCHEMA = '@private', ERRCODE = 'HG003', HINT = 'Delete the rows under their fences.';
END $$;
REVOKE ALL ON FUNCTION @private.refuse(text, bigint, text), @private.fence_statement(), @private.fence_never() FROM PUBLIC;
GRANT USAGE ON SCHEMA @private TO PUBLIC;
GRANT EXECUTE ON FUNCTION @private.holds(text) TO PUBLIC;
