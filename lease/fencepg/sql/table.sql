-- Rows name their resources: each statement is checked once for each resource
-- that it touched, with the rows as they were and as they are.
-- With the writer's rights: a cast of a column's type may be anybody's code.
CREATE OR REPLACE FUNCTION @private.@rows() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp@settings AS $headgate$
BEGIN
  IF TG_OP = 'INSERT' THEN
    PERFORM @private.holds(r) FROM (SELECT DISTINCT @expr FROM headgate_new) AS touched (r);
  ELSIF TG_OP = 'DELETE' THEN
    PERFORM @private.holds(r) FROM (SELECT DISTINCT @expr FROM headgate_old) AS touched (r);
  ELSE
    PERFORM @private.holds(r) FROM (SELECT @expr FROM headgate_old UNION SELECT @expr FROM headgate_new) AS touched (r);
  END IF;
  RETURN NULL;
END $headgate$;
