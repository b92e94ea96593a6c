CREATE TABLE leases (
  resource TEXT PRIMARY KEY,
  epoch    INTEGER NOT NULL,
  nonce    BLOB,
  holder   TEXT    NOT NULL,
  worker   TEXT    NOT NULL,
  request  TEXT    NOT NULL,
  audience BLOB,
  ttl      INTEGER NOT NULL,
  closing  INTEGER NOT NULL,
  acquired INTEGER NOT NULL,
  expires  INTEGER NOT NULL,
  until    INTEGER NOT NULL,
  changed  INTEGER NOT NULL,
  UNIQUE (resource, epoch)
) WITHOUT ROWID;

-- No row ever goes, so that no epoch is ever given twice.
CREATE TRIGGER leases_stay BEFORE DELETE ON leases
BEGIN
  SELECT RAISE(ABORT, 'leases are never deleted');
END;

-- Nor does an epoch go back, whoever writes.
CREATE TRIGGER leases_rise BEFORE UPDATE OF epoch ON leases WHEN new.epoch < old.epoch
BEGIN
  SELECT RAISE(ABORT, 'epochs never fall');
END;

ALTER TABLE principals ADD COLUMN lease BLOB;
