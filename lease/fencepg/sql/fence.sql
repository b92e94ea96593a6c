-- What an application calls first in a transaction. It locks the row of the
-- lease under this epoch until the transaction ends: whoever raises the epoch
-- waits, and a guard that comes while it is being raised waits for the
-- outcome.
--
-- Once a table is fenced it also notes the fence for the triggers: for this
-- transaction only, of which it notes the number, so that a setting that was
-- left behind counts for nothing. The note is the number and a line for each
-- fence, the newest first: RESOURCE TAB EPOCH TAB NONCE. Before, nobody reads
-- it, and a transaction that began before and meets a trigger has none and is
-- refused.
--
-- This runs in every fenced transaction, so it is one function with one query,
-- and instead of a search path of its own, which costs as much as the lock, it
-- names the schema of everything: nothing here may be looked up.
CREATE OR REPLACE FUNCTION @public.fence(resource text, epoch bigint, nonce text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
DECLARE
  r ALIAS FOR $1;
  e ALIAS FOR $2;
  n ALIAS FOR $3;
@variables
BEGIN
  @pass
  IF NOT FOUND THEN
    RETURN @private.refuse(r, e, n); --missing
  END IF;
@note
  RETURN true;
END $$;
-- An older version had a search path of its own.
ALTER FUNCTION @public.fence(text, bigint, text) RESET ALL;
