-- The targets that know of a grant, to be told when it is revoked.
ALTER TABLE @leases ADD COLUMN sealed BYTEA;

-- What was asked for under request ids that were granted, also after the rows
-- of the leases have forgotten it.
CREATE TABLE @lease_requests (
  id    BYTEA  PRIMARY KEY,
  asked BYTEA  NOT NULL,
  noted BIGINT NOT NULL
);
CREATE INDEX lease_requests_noted ON @lease_requests (noted);
