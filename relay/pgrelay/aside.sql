-- Rows that wait for what only their role waits for: of which the relay keeps
-- the number and reads them again when their turn comes. Each row is a set of
-- numbers from page * 4096 on, the lowest bit of the first byte first. They count
-- as published where the log is confirmed, so that nothing may drop them.
CREATE TABLE IF NOT EXISTS headgate.outbox_aside (
  role  text NOT NULL,
  roots boolean NOT NULL, -- what waits: roots, or children of other events
  page  bigint NOT NULL CHECK (page >= 0),
  bits  bytea NOT NULL CHECK (octet_length(bits) BETWEEN 1 AND 512),
  PRIMARY KEY (page, role, roots)
);
GRANT SELECT, INSERT, UPDATE, DELETE ON headgate.outbox_aside TO headgate_relay;
