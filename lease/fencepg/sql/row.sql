-- Partitions to come inherit triggers of rows only.
CREATE OR REPLACE FUNCTION @private.@rows() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
-- A key reads the same in every session, whatever its settings.
SET datestyle = 'ISO, YMD' SET timezone = 'UTC' SET intervalstyle = 'postgres'
SET extra_float_digits = 1 SET bytea_output = 'hex' SET lc_monetary = 'C' AS $headgate$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    PERFORM @private.holds(@oldexpr);
  END IF;
  IF TG_OP <> 'DELETE' THEN
    PERFORM @private.holds(@newexpr);
  END IF;
  RETURN NULL;
END $headgate$;
