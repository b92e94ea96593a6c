-- From revision 1, whose tables lack these. Where the table of events is changed,
-- writers wait from there to the end of this transaction, which is soon.
ALTER TABLE headgate.installation ADD COLUMN IF NOT EXISTS revision integer NOT NULL DEFAULT 1;
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'headgate.outbox'::regclass AND conname = 'outbox_data_check') THEN
    -- NOT VALID: larger rows of before stay, and the relay passes them.
    ALTER TABLE headgate.outbox ADD CONSTRAINT outbox_data_check CHECK (octet_length(data) <= 6291456) NOT VALID;
  END IF;
END $$;
