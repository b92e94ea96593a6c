-- Rows name their resources: each statement is checked once for each resource
-- that it touched, with the rows as they were and as they are.
CREATE OR REPLACE FUNCTION @private.@rows() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
-- A key reads the same in every session, whatever its settings.
SET datestyle = 'ISO, YMD' SET timezone = 'UTC' SET intervalstyle = 'postgres'
SET extra_float_digits = 1 SET bytea_output = 'hex' SET lc_monetary = 'C' AS $headgate$
DECLARE
  r text;
BEGIN
  IF TG_OP = 'INSERT' THEN
    FOR r IN SELECT DISTINCT @expr FROM headgate_new LOOP PERFORM @private.holds(r); END LOOP;
  ELSIF TG_OP = 'DELETE' THEN
    FOR r IN SELECT DISTINCT @expr FROM headgate_old LOOP PERFORM @private.holds(r); END LOOP;
  ELSE
    FOR r IN SELECT @expr FROM headgate_old UNION SELECT @expr FROM headgate_new LOOP PERFORM @private.holds(r); END LOOP;
  END IF;
  RETURN NULL;
END $headgate$;
