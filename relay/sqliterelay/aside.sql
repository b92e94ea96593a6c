-- Rows that wait for what only their role waits for: of which the relay keeps
-- the number and reads them again when their turn comes. Each row is a set of
-- numbers from page * 4096 on, the lowest bit of the first byte first. They count
-- as published where the confirmed place is, and are not deleted.
CREATE TABLE IF NOT EXISTS headgate_outbox_aside (
  page  INTEGER NOT NULL CHECK (page >= 0),
  role  TEXT NOT NULL,
  roots INTEGER NOT NULL, -- what waits: roots, or children of other events
  bits  BLOB NOT NULL,
  PRIMARY KEY (page, role, roots)
) WITHOUT ROWID;
