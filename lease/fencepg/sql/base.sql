-- Where the guards look, for functions only. Applications may call what the
-- triggers of rows ask, and get no other right in it.
CREATE SCHEMA IF NOT EXISTS @private;
CREATE SCHEMA IF NOT EXISTS @public;
REVOKE ALL ON SCHEMA @private FROM PUBLIC;

-- Whether these can be of any grant: the names that Headgate leases, epochs
-- that every language keeps exact, nonces as they are spelt.
CREATE OR REPLACE FUNCTION @private.well_formed(r text, e bigint, n text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN coalesce(e BETWEEN 1 AND 9007199254740991 AND n ~ '^[A-Za-z0-9_-]{21}[AQgw]$'
    AND octet_length(convert_to(r, 'UTF8')) BETWEEN 1 AND 256 AND r !~ '[[:cntrl:]]' AND r !~ '(^|/)[.]{0,2}(/|$)' AND r = btrim(r), false);
END $$;
REVOKE ALL ON FUNCTION @private.well_formed(text, bigint, text) FROM PUBLIC;
