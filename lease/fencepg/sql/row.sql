-- Partitions to come inherit triggers of rows only.
-- With the writer's rights: a cast of a column's type may be anybody's code.
CREATE OR REPLACE FUNCTION @private.@rows() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp@settings AS $headgate$
DECLARE
  good boolean;
BEGIN
  IF TG_OP <> 'INSERT' THEN
    good := @private.holds(@oldexpr);
  END IF;
  IF TG_OP <> 'DELETE' THEN
    good := @private.holds(@newexpr);
  END IF;
  RETURN NULL;
END $headgate$;
