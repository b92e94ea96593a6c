-- No name here may be looked up in a schema that others write to.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Functions here run with the rights of whoever installs them, and call each
-- other. Whoever owns the schema, or one of them, could put others in their place.
DO $$
DECLARE
  other record;
BEGIN
  SELECT what, rolname AS owner INTO other FROM (
    SELECT 'schema headgate' AS what, nspowner AS owner FROM pg_namespace WHERE nspname = 'headgate'
    UNION ALL
    SELECT 'function ' || p.oid::regprocedure, proowner FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace
    WHERE nspname = 'headgate' AND proname IN ('cause', 'check_text', 'emit_event', 'new_id', 'emit', 'set_cause', 'as_json', 'capture', 'refuse_truncate', 'watch', 'unwatch', 'maintain')
  ) o JOIN pg_roles r ON r.oid = o.owner WHERE rolname <> current_user AND NOT rolsuper ORDER BY what DESC LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'headgate: % belongs to %, who could replace what runs with the rights of %: give it to that role (ALTER ... OWNER TO), or remove it', other.what, other.owner, current_user
      USING ERRCODE = '42501';
  END IF;
END $$;
