-- The targets that know of a grant, to be told when it is revoked.
ALTER TABLE leases ADD COLUMN sealed BLOB;

-- What was asked for under request ids that were granted, also after the rows
-- of the leases have forgotten it.
CREATE TABLE lease_requests (
  id    BLOB    PRIMARY KEY,
  asked BLOB    NOT NULL,
  noted INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX lease_requests_noted ON lease_requests (noted);
