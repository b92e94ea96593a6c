-- Watched tables of before revision 7 get a trigger, in functions.sql. Their locks
-- come first, and all within less than the second after which the server looks for
-- a deadlock: else that could end a writer instead of this.
DO $$
DECLARE
  t     regclass;
  until timestamptz;
BEGIN
  FOR t IN SELECT tgrelid::regclass FROM pg_trigger c
    WHERE tgname = 'headgate_capture' AND tgparentid = 0 AND tgfoid = 'headgate.capture()'::regprocedure
      AND NOT EXISTS (SELECT FROM pg_trigger x WHERE x.tgrelid = c.tgrelid AND x.tgname = 'headgate_as_json')
    ORDER BY tgrelid
  LOOP
    EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', t);
    until := coalesce(until, clock_timestamp() + interval '700 milliseconds');
    PERFORM set_config('lock_timeout', greatest(1, floor(extract(epoch FROM until - clock_timestamp()) * 1000))::text, true);
  END LOOP;
END $$;
-- From revision 1, whose tables lack these. Where the table of events is changed,
-- writers wait from there to the end of this transaction, which is soon.
ALTER TABLE headgate.installation ADD COLUMN IF NOT EXISTS revision integer NOT NULL DEFAULT 1;
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'headgate.outbox'::regclass AND conname = 'outbox_data_check') THEN
    -- NOT VALID: larger rows of before stay, and the relay passes them.
    ALTER TABLE headgate.outbox ADD CONSTRAINT outbox_data_check CHECK (octet_length(data) <= 6291456) NOT VALID;
  END IF;
END $$;
-- From before revision 9.
ALTER TABLE headgate.relay_state ADD COLUMN IF NOT EXISTS proven_sending text;
