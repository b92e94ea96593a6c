-- The functions of an outbox and who may use what: put in place at the beginning,
-- and in place of those of an earlier revision. Schema headgate is shared: what
-- others have in it, and granted, is not touched. Names, arguments and results
-- stay as they are, since writers of every age call them.

-- The causal token of the running transaction. A setting can also be made past
-- set_cause, so its form is looked at where it is used.
CREATE OR REPLACE FUNCTION headgate.cause() RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  mark text := current_setting('headgate.cause', true);
BEGIN
  IF octet_length(mark) > 4096 OR mark !~ '^[A-Za-z0-9_-]*$' THEN
    RAISE EXCEPTION 'headgate: the setting headgate.cause is no causal token'
      USING ERRCODE = 'HG104', HINT = 'Call headgate.set_cause with the token exactly as it came with the delivery.';
  END IF;
  RETURN nullif(mark, '');
END $$;

-- Refuses text of the database's encoding that UTF-8 has no sign for, and the name
-- of a role that was made in a database of another one: it could not be published.
CREATE OR REPLACE FUNCTION headgate.check_text(texts text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM convert_to(texts, 'UTF8');
EXCEPTION WHEN untranslatable_character OR character_not_in_repertoire THEN
  RAISE EXCEPTION 'headgate: an attribute of the event, or the name of the role, has a character that UTF-8 has not'
    USING ERRCODE = 'HG113', HINT = 'Remove it: events are UTF-8.';
END $$;

-- The events are judged by the node; here only what no event may have is
-- refused, so that the transaction that wrote it fails.
CREATE OR REPLACE FUNCTION headgate.emit_event(
  id text, type text, source text, subject text, key text, attributes jsonb, data bytea
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
  IF id IS NULL OR id = '' THEN id := headgate.new_id(); END IF;
  IF type IS NULL OR length(type) > 200 OR type !~ '^[a-z0-9_-]+(\.[a-z0-9_-]+)*$' THEN
    RAISE EXCEPTION 'headgate: % is no event type', coalesce(quote_literal(left(type, 60)), 'null')
      USING ERRCODE = 'HG101', HINT = 'Types are dotted lower-case words such as order.placed, at most 200 bytes.';
  END IF;
  IF octet_length(data) > 6291456 THEN
    RAISE EXCEPTION 'headgate: the payload of % has % bytes; at most 6291456 are possible', type, octet_length(data)
      USING ERRCODE = 'HG102', HINT = 'Keep large content elsewhere and send a reference.';
  END IF;
  IF octet_length(id) > 256 OR octet_length(source) > 1024 OR octet_length(subject) > 4096
     OR octet_length(key) > 4096 OR octet_length(attributes::text) > 32768 THEN
    RAISE EXCEPTION 'headgate: an attribute of the event is longer than allowed'
      USING ERRCODE = 'HG103', HINT = 'id 256, source 1024, subject and key 4096 bytes.';
  END IF;
  IF current_setting('server_encoding') <> 'UTF8' OR octet_length(session_user::text) <> length(session_user::text) THEN
    PERFORM headgate.check_text(concat_ws(' ', session_user::text, id, source, subject, key, attributes::text));
  END IF;
  INSERT INTO headgate.outbox (id, role, type, source, subject, key, attributes, cause, data)
  VALUES (id, session_user, type, nullif(source, ''), nullif(subject, ''), nullif(key, ''), attributes, headgate.cause(), data);
  RETURN id;
END $$;

-- A UUID of version 7: 48 bits of time, the rest random.
CREATE OR REPLACE FUNCTION headgate.new_id() RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  SELECT encode(set_bit(set_bit(
    overlay(uuid_send(gen_random_uuid())
      PLACING substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
      FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid::text
$$;

CREATE OR REPLACE FUNCTION headgate.emit(type text, data jsonb, key text DEFAULT NULL, subject text DEFAULT NULL) RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  SELECT headgate.emit_event(NULL, $1, NULL, $4, $3, NULL, convert_to($2::text, 'UTF8'))
$$;

-- Marks the running transaction with the causal token of the delivery that it
-- reacts to. Nodes alone can check a token; here only its form is.
CREATE OR REPLACE FUNCTION headgate.set_cause(token text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF token IS NOT NULL AND token <> '' AND (octet_length(token) > 4096 OR token !~ '^[A-Za-z0-9_-]+$') THEN
    RAISE EXCEPTION 'headgate: this is no causal token'
      USING ERRCODE = 'HG104', HINT = 'Pass the token exactly as it came with the delivery.';
  END IF;
  PERFORM pg_catalog.set_config('headgate.cause', coalesce(token, ''), true);
END $$;

-- Row changes of watched tables, by two triggers. The first makes JSON of the row,
-- with the rights of whoever writes: on the way there may be functions of others,
-- such as a cast that the owner of a column's type made. The second may write
-- events, and runs nothing of others: it looks at no row. Between them the JSON is
-- in a setting; what could change it there, a trigger of the table between these
-- two by name, could as well change the rows.
--
-- A change that makes no event fails: the relay could only keep it, and a huge one
-- not even that.
CREATE OR REPLACE FUNCTION headgate.as_json() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  before jsonb;
  after  jsonb;
  change text;
  size   bigint := coalesce(pg_column_size(OLD), 0)::bigint + coalesce(pg_column_size(NEW), 0);
BEGIN
  -- Nothing that takes eight times the limit in binary form is within it as
  -- JSON; what passes is measured below, in bounded memory.
  IF size <= 50331648 THEN
    BEGIN
      IF TG_OP <> 'INSERT' THEN before := to_jsonb(OLD); END IF;
      IF TG_OP <> 'DELETE' THEN after := to_jsonb(NEW); END IF;
    EXCEPTION WHEN untranslatable_character THEN
      RAISE EXCEPTION 'headgate: a json value of a row of %.% has the character \u0000, which no event can tell', quote_ident(TG_TABLE_SCHEMA), quote_ident(TG_TABLE_NAME)
        USING ERRCODE = 'HG110', HINT = 'Use jsonb, which refuses it at once, or remove the character.';
    END;
    change := jsonb_build_object('of', TG_RELID || ' ' || TG_OP, 'before', before, 'after', after)::text;
    size := octet_length(convert_to(change, 'UTF8'));
  END IF;
  IF change IS NULL OR size > 6291456 THEN
    RAISE EXCEPTION 'headgate: the event of this change of %.% would have % bytes; at most 6291456 are possible', quote_ident(TG_TABLE_SCHEMA), quote_ident(TG_TABLE_NAME), size
      USING ERRCODE = 'HG102', HINT = 'Keep large content in a table that is not watched.';
  END IF;
  PERFORM set_config('headgate.change', change, true);
  RETURN NULL;
END $$;

-- The second. Arguments: the table's name, the prefix of the types, and the
-- columns of its key.
CREATE OR REPLACE FUNCTION headgate.capture() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  change  jsonb := nullif(current_setting('headgate.change', true), '')::jsonb;
  verb    text := CASE TG_OP WHEN 'INSERT' THEN 'inserted' WHEN 'UPDATE' THEN 'updated' ELSE 'deleted' END;
  keys    jsonb;
  subject text;
  data    bytea;
BEGIN
  IF change ->> 'of' IS DISTINCT FROM TG_RELID || ' ' || TG_OP THEN
    RAISE EXCEPTION 'headgate: the trigger headgate_as_json of % did not run before headgate_capture', TG_ARGV[0]
      USING ERRCODE = 'HG112', HINT = 'Watch the table again: headgate outbox watch TABLE.';
  END IF;
  PERFORM set_config('headgate.change', '', true); -- it counts once
  SELECT jsonb_object_agg(c, change -> CASE TG_OP WHEN 'DELETE' THEN 'before' ELSE 'after' END -> c) INTO keys FROM unnest(TG_ARGV[2]::text[]) c;
  data := convert_to(jsonb_build_object('table', TG_ARGV[0], 'change', lower(TG_OP), 'key', keys, 'before', change -> 'before', 'after', change -> 'after')::text, 'UTF8');
  IF octet_length(data) > 6291456 THEN
    RAISE EXCEPTION 'headgate: the event of this change of % would have % bytes; at most 6291456 are possible', TG_ARGV[0], octet_length(data)
      USING ERRCODE = 'HG102', HINT = 'Keep large content in a table that is not watched.';
  END IF;
  -- No subject rather than one that no event may have.
  subject := left(keys::text, 1000);
  IF subject ~ ('[\u0001-\u001f\u007f-\u009f\ufdd0-\ufdef\ufffe-\uffff'
      '\U0001fffe-\U0001ffff\U0002fffe-\U0002ffff\U0003fffe-\U0003ffff\U0004fffe-\U0004ffff\U0005fffe-\U0005ffff\U0006fffe-\U0006ffff'
      '\U0007fffe-\U0007ffff\U0008fffe-\U0008ffff\U0009fffe-\U0009ffff\U000afffe-\U000affff\U000bfffe-\U000bffff'
      '\U000cfffe-\U000cffff\U000dfffe-\U000dffff\U000efffe-\U000effff\U000ffffe-\U000fffff\U0010fffe-\U0010ffff]') THEN subject := NULL; END IF;
  IF octet_length(session_user::text) <> length(session_user::text) THEN
    PERFORM headgate.check_text(session_user::text); -- the rest is in the data
  END IF;
  INSERT INTO headgate.outbox (id, role, type, subject, key, cause, origin, data)
  VALUES (headgate.new_id(), session_user, TG_ARGV[1] || '.' || verb, subject, TG_ARGV[0] || ' ' || md5(keys::text), headgate.cause(), 'change', data);
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION headgate.refuse_truncate() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'headgate: % is watched, and TRUNCATE does not say which rows it removes', TG_TABLE_NAME
    USING ERRCODE = 'HG105', HINT = 'Use DELETE, or end the watch by headgate.unwatch first.';
END $$;

-- Watches a table: each row change becomes an event of type PREFIX.inserted,
-- PREFIX.updated or PREFIX.deleted in the same transaction.
CREATE OR REPLACE FUNCTION headgate.watch(watched regclass, prefix text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  rel     record;
  columns text[];
  part    regclass;
BEGIN
  SELECT c.relkind, c.relpersistence, c.relispartition, n.nspname, c.relname,
         format('%I.%I', n.nspname, c.relname) AS name
    INTO rel FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = watched;
  IF rel.relkind NOT IN ('r', 'p') THEN
    RAISE EXCEPTION 'headgate: % is no table', rel.name USING ERRCODE = 'HG106', HINT = 'Watch the tables behind a view.';
  ELSIF rel.relpersistence <> 'p' THEN
    RAISE EXCEPTION 'headgate: % is temporary or unlogged, so that its rows may vanish without a change', rel.name USING ERRCODE = 'HG106';
  ELSIF rel.nspname IN ('headgate', 'pg_catalog', 'information_schema') THEN
    RAISE EXCEPTION 'headgate: tables of schema % are not watched', rel.nspname USING ERRCODE = 'HG106';
  ELSIF rel.relispartition THEN
    RAISE EXCEPTION 'headgate: % is a partition', rel.name USING ERRCODE = 'HG106', HINT = 'Watch the partitioned table itself.';
  ELSIF rel.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = watched OR inhrelid = watched) THEN
    RAISE EXCEPTION 'headgate: % takes part in inheritance, where triggers do not follow', rel.name USING ERRCODE = 'HG106';
  ELSIF rel.name ~ '[\u0001-\u001f\u007f-\u009f]' THEN
    RAISE EXCEPTION 'headgate: the name of % holds a control character, which no key of an event may', rel.name USING ERRCODE = 'HG106';
  ELSIF prefix IS NULL OR length(prefix) > 180 OR prefix !~ '^[a-z0-9_-]+(\.[a-z0-9_-]+)*$' THEN
    RAISE EXCEPTION 'headgate: % is no prefix of event types', coalesce(quote_literal(left(prefix, 60)), 'null') USING ERRCODE = 'HG101';
  END IF;
  SELECT array_agg(a.attname::text ORDER BY a.attnum) INTO columns
    FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
    WHERE i.indrelid = watched AND i.indisprimary;
  IF columns IS NULL THEN
    RAISE EXCEPTION 'headgate: % has no primary key, so that its rows have no order key', rel.name USING ERRCODE = 'HG106';
  END IF;
  PERFORM headgate.unwatch(watched);
  -- Triggers run in the order of their names.
  EXECUTE format('CREATE TRIGGER headgate_as_json AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION headgate.as_json()', watched);
  EXECUTE format('CREATE TRIGGER headgate_capture AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION headgate.capture(%L, %L, %L)',
    watched, rel.name, prefix, columns);
  -- A statement trigger does not reach the partitions by itself.
  FOR part IN SELECT relid FROM pg_partition_tree(watched) UNION SELECT watched LOOP
    EXECUTE format('CREATE TRIGGER headgate_truncate BEFORE TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION headgate.refuse_truncate()', part);
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION headgate.unwatch(watched regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  part regclass;
BEGIN
  EXECUTE format('DROP TRIGGER IF EXISTS headgate_as_json ON %s', watched);
  EXECUTE format('DROP TRIGGER IF EXISTS headgate_capture ON %s', watched);
  FOR part IN SELECT relid FROM pg_partition_tree(watched) UNION SELECT watched LOOP
    EXECUTE format('DROP TRIGGER IF EXISTS headgate_truncate ON %s', part);
  END LOOP;
END $$;

-- Makes the partitions of today and the two days after, and drops those that
-- are older than retain, wholly proven, and hold nothing that is set aside.
-- Returns what it dropped.
CREATE OR REPLACE FUNCTION headgate.maintain(retain interval) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
DECLARE
  day     date;
  name    text;
  part    record;
  proven  pg_snapshot := (SELECT s.proven_snapshot FROM headgate.relay_state s JOIN headgate.installation i USING (slot));
  late    boolean;
  dropped text[] := '{}';
BEGIN
  PERFORM set_config('lock_timeout', '2s', true);
  FOR i IN 0..2 LOOP
    day := current_date + i;
    name := 'outbox_' || to_char(day, 'YYYYMMDD');
    IF to_regclass('headgate.' || name) IS NULL THEN
      BEGIN
        EXECUTE format('CREATE TABLE headgate.%I PARTITION OF headgate.outbox FOR VALUES FROM (%L) TO (%L)',
          name, day::timestamptz, (day + 1)::timestamptz);
      EXCEPTION
        WHEN check_violation THEN NULL; -- the default partition has rows of that day, and keeps them
        WHEN duplicate_table OR unique_violation THEN NULL; -- another call was quicker
      END;
    END IF;
  END LOOP;
  FOR part IN
    SELECT format('headgate.%I', c.relname) AS rel, to_date(substring(c.relname FROM 8), 'YYYYMMDD') AS day
    FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid
    WHERE h.inhparent = 'headgate.outbox'::regclass AND c.relname ~ '^outbox_[0-9]{8}$'
  LOOP
    CONTINUE WHEN (part.day + 1)::timestamptz > clock_timestamp() - retain OR proven IS NULL;
    BEGIN
      -- Of a row that is too large for an event only the head is in quarantine.
      EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE NOT pg_visible_in_snapshot(xid, $1) OR octet_length(data) > 8388608 OR octet_length(cause) > 65536)', part.rel) INTO late USING proven;
      CONTINUE WHEN late;
      -- Nor of one that waits to be read again.
      EXECUTE format('SELECT EXISTS (SELECT FROM %s p JOIN headgate.outbox_aside a ON a.page = p.seq / 4096
        WHERE CASE WHEN p.seq > 0 AND octet_length(a.bits) * 8 > p.seq %% 4096 THEN get_bit(a.bits, p.seq %% 4096) = 1 END)', part.rel) INTO late;
      CONTINUE WHEN late;
      EXECUTE format('DROP TABLE %s', part.rel);
      dropped := dropped || part.rel;
    EXCEPTION WHEN undefined_table THEN
      NULL; -- another call was quicker
    END;
  END LOOP;
  RETURN dropped;
END $$;

REVOKE ALL ON FUNCTION headgate.cause(), headgate.check_text(text), headgate.emit_event(text, text, text, text, text, jsonb, bytea), headgate.new_id(),
  headgate.emit(text, jsonb, text, text), headgate.set_cause(text), headgate.as_json(), headgate.capture(), headgate.refuse_truncate(),
  headgate.watch(regclass, text), headgate.unwatch(regclass), headgate.maintain(interval) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION headgate.emit(text, jsonb, text, text), headgate.set_cause(text), headgate.new_id(),
  headgate.emit_event(text, text, text, text, text, jsonb, bytea) TO headgate_writer;
GRANT SELECT ON headgate.outbox, headgate.outbox_rest, headgate.installation TO headgate_relay;
GRANT SELECT, INSERT, UPDATE ON headgate.relay_state TO headgate_relay;
GRANT EXECUTE ON FUNCTION headgate.maintain(interval) TO headgate_relay;

-- Tables that were watched by an earlier revision have the second trigger alone.
DO $$
DECLARE
  t record;
BEGIN
  FOR t IN SELECT tgrelid::regclass AS rel, tgenabled FROM pg_trigger c
    WHERE tgname = 'headgate_capture' AND tgparentid = 0 AND tgfoid = 'headgate.capture()'::regprocedure
      AND NOT EXISTS (SELECT FROM pg_trigger x WHERE x.tgrelid = c.tgrelid AND x.tgname = 'headgate_as_json')
    ORDER BY tgrelid
  LOOP
    EXECUTE format('CREATE TRIGGER headgate_as_json AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION headgate.as_json()', t.rel);
    IF t.tgenabled IN ('A', 'R') THEN -- somebody changed it; the first goes with it
      EXECUTE format('ALTER TABLE %s ENABLE %s TRIGGER headgate_as_json', t.rel, CASE t.tgenabled WHEN 'A' THEN 'ALWAYS' ELSE 'REPLICA' END);
    END IF;
  END LOOP;
END $$;
