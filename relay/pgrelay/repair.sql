-- How far a repair has come, which goes on there when it is broken off: of the
-- rows whose transactions ended between two snapshots those before a number are
-- done. It counts only on this server and while the first snapshot is the proven
-- one.
CREATE TABLE IF NOT EXISTS headgate.relay_repair (
  slot      text PRIMARY KEY,
  system_id text NOT NULL,
  since     pg_snapshot, -- null: the whole table
  until     pg_snapshot NOT NULL,
  seq       bigint NOT NULL
);
REVOKE ALL ON headgate.relay_repair FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON headgate.relay_repair TO headgate_relay;
