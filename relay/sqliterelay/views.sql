-- The views that writers use, and the triggers behind them and on the tables: put
-- in place at the beginning, and in place of those of an earlier revision. Names
-- and columns stay as they are, since writers of every age use them.

DROP TRIGGER IF EXISTS headgate_outbox_rows_last;
CREATE TRIGGER headgate_outbox_rows_last AFTER INSERT ON headgate_outbox_rows
BEGIN
  SELECT RAISE(ABORT, 'headgate HG109: rows of the outbox get their numbers by themselves')
  WHERE NEW.seq < 1 OR EXISTS (SELECT 1 FROM headgate_outbox_rows WHERE seq > NEW.seq);
  SELECT RAISE(ABORT, 'headgate HG102: the payload has more than 6291456 bytes; keep large content elsewhere and send a reference')
  WHERE length(NEW.data) > 6291456;
END;

DROP TRIGGER IF EXISTS headgate_outbox_rows_stay;
CREATE TRIGGER headgate_outbox_rows_stay BEFORE DELETE ON headgate_outbox_rows
WHEN OLD.seq >= (SELECT confirmed FROM headgate_outbox_state) OR OLD.seq >= (SELECT min(page) * 4096 FROM headgate_outbox_aside)
BEGIN
  SELECT RAISE(ABORT, 'headgate HG109: rows of the outbox stay until they are published');
END;

DROP TRIGGER IF EXISTS headgate_outbox_rows_fixed;
CREATE TRIGGER headgate_outbox_rows_fixed BEFORE UPDATE ON headgate_outbox_rows
BEGIN
  SELECT RAISE(ABORT, 'headgate HG109: rows of the outbox do not change');
END;

-- INSERT sets the cause of what this transaction writes from here on, DELETE
-- takes it away, which must come before COMMIT.
DROP VIEW IF EXISTS headgate_cause;
CREATE VIEW headgate_cause AS SELECT token FROM headgate_outbox_mark;

DROP TRIGGER IF EXISTS headgate_cause_set;
CREATE TRIGGER headgate_cause_set INSTEAD OF INSERT ON headgate_cause
BEGIN
  SELECT RAISE(ABORT, 'headgate HG104: this is no causal token; pass it exactly as it came with the delivery')
  WHERE typeof(NEW.token) <> 'text' OR length(NEW.token) NOT BETWEEN 1 AND 4096 OR NEW.token GLOB '*[^A-Za-z0-9_-]*';
  INSERT INTO headgate_outbox_asked (id) VALUES (1);
  INSERT INTO headgate_outbox_answer (id) VALUES (1);
  DELETE FROM headgate_outbox_asked;
  SELECT RAISE(ABORT, 'headgate HG107: a cause needs PRAGMA foreign_keys = ON, set before the transaction begins')
  WHERE EXISTS (SELECT 1 FROM headgate_outbox_answer);
  DELETE FROM headgate_outbox_mark;
  INSERT INTO headgate_outbox_mark (one, token) VALUES (1, NEW.token);
END;

DROP TRIGGER IF EXISTS headgate_cause_unset;
CREATE TRIGGER headgate_cause_unset INSTEAD OF DELETE ON headgate_cause
BEGIN
  DELETE FROM headgate_outbox_mark;
END;

-- What writers insert into. Only type is needed. data is the payload, byte for
-- byte, as text or blob; attributes a JSON object of what has no column of its
-- own; cause the causal token of this one event, when the transaction has none.
DROP VIEW IF EXISTS headgate_outbox;
CREATE VIEW headgate_outbox AS
SELECT seq, id, type, source, subject, key, attributes, cause, origin, data, created FROM headgate_outbox_rows;

DROP TRIGGER IF EXISTS headgate_outbox_emit;
CREATE TRIGGER headgate_outbox_emit INSTEAD OF INSERT ON headgate_outbox
BEGIN
  SELECT RAISE(ABORT, 'headgate HG101: this is no event type; types are dotted lower-case words such as order.placed, at most 200 bytes')
  WHERE NEW.type IS NULL OR typeof(NEW.type) <> 'text' OR length(NEW.type) NOT BETWEEN 1 AND 200 OR NEW.type GLOB '*[^a-z0-9_.-]*'
     OR NEW.type GLOB '.*' OR NEW.type GLOB '*.' OR NEW.type GLOB '*..*';
  SELECT RAISE(ABORT, 'headgate HG108: data is neither text nor blob')
  WHERE typeof(NEW.data) NOT IN ('text', 'blob', 'null');
  SELECT RAISE(ABORT, 'headgate HG103: an attribute is longer than allowed: id 256, source 1024, subject and key 4096 bytes')
  WHERE length(CAST(NEW.id AS BLOB)) > 256 OR length(CAST(NEW.source AS BLOB)) > 1024 OR length(CAST(NEW.subject AS BLOB)) > 4096
     OR length(CAST(NEW.key AS BLOB)) > 4096 OR length(CAST(NEW.attributes AS BLOB)) > 32768;
  SELECT RAISE(ABORT, 'headgate HG103: attributes is no JSON object')
  WHERE NEW.attributes IS NOT NULL AND CASE WHEN json_valid(NEW.attributes) THEN json_type(NEW.attributes) <> 'object' ELSE 1 END;
  SELECT RAISE(ABORT, 'headgate HG104: this is no causal token; pass it exactly as it came with the delivery')
  WHERE length(NEW.cause) > 4096 OR NEW.cause GLOB '*[^A-Za-z0-9_-]*';
  SELECT RAISE(ABORT, 'headgate HG109: seq, origin and created are not for writers')
  WHERE NEW.seq IS NOT NULL OR NEW.origin IS NOT NULL OR NEW.created IS NOT NULL;
  INSERT INTO headgate_outbox_rows (id, type, source, subject, key, attributes, cause, data) VALUES (
    coalesce(nullif(NEW.id, ''), {{new_id}}),
    NEW.type, nullif(NEW.source, ''), nullif(NEW.subject, ''), nullif(NEW.key, ''), NEW.attributes,
    coalesce(nullif(NEW.cause, ''), (SELECT token FROM headgate_outbox_mark)), CAST(NEW.data AS BLOB));
END;
