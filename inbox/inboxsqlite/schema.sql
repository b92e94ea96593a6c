-- One row for the inbox. Times are milliseconds since 1970 by SQLite's clock.
CREATE TABLE IF NOT EXISTS headgate_inbox_state (
  one       INTEGER PRIMARY KEY CHECK (one = 1),
  version   INTEGER NOT NULL,
  retain    INTEGER NOT NULL CHECK (retain >= 0),
  forgotten INTEGER -- what was seen up to this time may be deleted; null: nothing is
);

-- A row without expires is done. One with expires is a claim of a worker whose
-- effects lie outside of this database.
CREATE TABLE IF NOT EXISTS headgate_inbox (
  consumer TEXT NOT NULL,
  source   TEXT NOT NULL,
  id       TEXT NOT NULL,
  seen     INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 1,
  claim    TEXT,
  expires  INTEGER,
  result   BLOB,
  PRIMARY KEY (consumer, source, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS headgate_inbox_seen ON headgate_inbox (seen);

-- A time in seconds would be forgotten at once, one in microseconds or as text
-- never. A trigger, so that inboxes of before get it, too.
CREATE TRIGGER IF NOT EXISTS headgate_inbox_time BEFORE INSERT ON headgate_inbox
WHEN typeof(new.seen) <> 'integer' OR new.seen NOT BETWEEN 1000000000000 AND 99999999999999
BEGIN SELECT RAISE(ABORT, 'headgate HG201: seen is the present in whole milliseconds since 1970'); END;

-- No row goes before its time, and what is done stays as it is.
CREATE TRIGGER IF NOT EXISTS headgate_inbox_stays BEFORE DELETE ON headgate_inbox
WHEN old.seen > (SELECT coalesce(forgotten, -1) FROM headgate_inbox_state)
BEGIN SELECT RAISE(ABORT, 'headgate HG206: rows of an inbox are deleted by its maintenance only'); END;
CREATE TRIGGER IF NOT EXISTS headgate_inbox_done BEFORE UPDATE ON headgate_inbox
WHEN old.expires IS NULL OR old.consumer <> new.consumer OR old.source <> new.source OR old.id <> new.id OR old.seen <> new.seen
BEGIN SELECT RAISE(ABORT, 'headgate HG206: what an inbox has recorded is not changed'); END;
