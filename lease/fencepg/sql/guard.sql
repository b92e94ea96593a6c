-- The guard itself. It locks the row under this epoch until the transaction
-- ends: whoever raises the epoch waits, and a guard that comes while it is
-- being raised waits for the outcome. Called by the functions below only.
CREATE FUNCTION @private.pass(r text, e bigint, n text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  stored record;
BEGIN
  PERFORM FROM @table l
    WHERE l.resource = convert_to(r, 'UTF8')
      AND l.epoch = e --epoch
      AND translate(rtrim(encode(l.nonce, 'base64'), '='), '+/', '-_') = n --nonce
      AND NOT l.closing --gate
      AND @alive --expiry
    FOR KEY SHARE; --lock
  IF FOUND THEN
    RETURN;
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

-- What an application calls first in a transaction. It notes the fence for
-- the triggers of fenced tables: for this transaction only, of which it notes
-- the number, so that a setting that was left behind counts for nothing.
CREATE FUNCTION @public.fence(resource text, epoch bigint, nonce text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  noted text := current_setting('@setting', true);
  own   text;
  held  jsonb := '{}';
BEGIN
  IF resource IS NULL OR epoch IS NULL OR nonce IS NULL THEN
    RAISE EXCEPTION 'headgate: the fence is missing' USING SCHEMA = '@private', ERRCODE = 'HG002', HINT = 'Acquire the lease and pass its resource, epoch and nonce.';
  END IF;
  PERFORM @private.pass(resource, epoch, nonce);
  own := pg_current_xact_id()::text;
  IF noted LIKE '{"x": "' || own || '"%' THEN
    held := noted::jsonb -> 'f';
  END IF;
  held := held || jsonb_build_object(resource, jsonb_build_array(epoch::text, nonce));
  PERFORM set_config('@setting', '{"x": "' || own || '", "f": ' || held::text || '}', true);
  RETURN true;
END $$;

-- The same with the lease's token as it came. Its signature is not checked:
-- the nonce in it is.
CREATE FUNCTION @public.fence(token text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  part text := translate(split_part(token, '.', 2), '-_', '+/');
  said jsonb;
BEGIN
  IF token IS NULL OR token = '' THEN
    RAISE EXCEPTION 'headgate: the fence is missing' USING SCHEMA = '@private', ERRCODE = 'HG002', HINT = 'Acquire the lease and pass its token.';
  ELSIF length(token) > 4096 OR token !~ '^hgl1\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$' THEN
    RAISE EXCEPTION 'headgate: the fence is no lease token' USING SCHEMA = '@private', ERRCODE = 'HG002';
  END IF;
  said := convert_from(decode(part || repeat('=', (4 - length(part) % 4) % 4), 'base64'), 'UTF8')::jsonb;
  RETURN @public.fence(said ->> 'res', (said ->> 'epoch')::bigint, said ->> 'nonce');
END $$;

-- What the triggers ask: does this transaction hold a fence on the resource,
-- and is it still good? Asking anew also takes the lock anew that a rolled
-- back savepoint has dropped.
CREATE FUNCTION @private.holds(r text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  noted text := current_setting('@setting', true);
  said  jsonb;
BEGIN
  IF noted IS NULL OR noted = '' THEN
    RAISE EXCEPTION 'headgate: the table is fenced and the transaction names no fence' USING SCHEMA = '@private', ERRCODE = 'HG002', HINT = 'Call headgate.fence first in the transaction.';
  END IF;
  said := noted::jsonb;
  IF said ->> 'x' IS DISTINCT FROM pg_current_xact_id_if_assigned()::text THEN --transaction
    RAISE EXCEPTION 'headgate: the fence belongs to another transaction' USING SCHEMA = '@private', ERRCODE = 'HG002', HINT = 'Call headgate.fence first in every transaction; never set @setting.';
  END IF;
  said := said -> 'f' -> r;
  IF said IS NULL OR r IS NULL THEN
    RAISE EXCEPTION 'headgate: the row belongs to %, for which the transaction holds no fence', coalesce(r, 'no resource') USING SCHEMA = '@private', ERRCODE = 'HG004';
  END IF;
  PERFORM @private.pass(r, (said ->> 0)::bigint, said ->> 1); --again
END $$;

CREATE FUNCTION @private.fence_statement() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM @private.holds(TG_ARGV[0]);
  RETURN NULL;
END $$;

CREATE FUNCTION @private.fence_never() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'headgate: a table whose rows belong to many resources cannot be truncated' USING SCHEMA = '@private', ERRCODE = 'HG003', HINT = 'Delete the rows under their fences.';
END $$;
REVOKE ALL ON FUNCTION @private.pass(text, bigint, text), @private.holds(text), @private.fence_statement(), @private.fence_never(),
  @public.fence(text, bigint, text), @public.fence(text) FROM PUBLIC;
