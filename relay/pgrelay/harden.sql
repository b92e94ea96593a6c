-- Messages in the log are the relay's alone; by name, since PostgreSQL 17 gave
-- the functions an argument more.
SET LOCAL search_path = pg_catalog, pg_temp;
DO $$
DECLARE
  f regprocedure;
BEGIN
  FOR f IN SELECT oid FROM pg_proc WHERE proname = 'pg_logical_emit_message' AND pronamespace = 'pg_catalog'::regnamespace LOOP
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f);
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO headgate_relay', f);
  END LOOP;
END $$;
