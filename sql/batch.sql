-- outbox_enqueue_batch(): many messages by one statement.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
\pset format unaligned
\pset tuples_only on
\pset null NULL
TRUNCATE outbox;
INSERT INTO outbox_route (name) VALUES ('other');
-- How a batch ends, with where: SQLSTATE, message, detail, hint and context
CREATE FUNCTION batch(messages text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text; message text; detail text; hint text; context text;
BEGIN
	PERFORM outbox_enqueue_batch(messages::jsonb);
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
		hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT;
	RETURN concat_ws(E'\n  ', state || ' ' || message, 'DETAIL: ' || nullif(detail, ''), 'HINT: ' || nullif(hint, ''),
		'CONTEXT: ' || substring(context, '(?n)^(?:key .*|element .*)$'));
END
$$;

-- Everything at its default, and everything given
SELECT count(*), count(DISTINCT i), bool_and(substr(i::text, 15, 1) = '7')
FROM outbox_enqueue_batch('[{"event_type": "a", "payload": {"n": 1}}, {"event_type": "b", "payload": 2}]') i;
SELECT * FROM outbox_enqueue_batch('[
	{"event_type": "all", "payload": [1, null, 1.50], "aggregate_type": "order", "aggregate_id": "7", "route": "other",
		"headers": {"h": 1}, "routing_key": "a.b", "properties": {"priority": 3}, "available_at": "2100-01-01T00:00:00Z",
		"message_id": "01890a5d-ac96-774b-bcce-b302099a8070"},
	{"event_type": "bytes", "body_base64": "AP8=", "content_type": "image/png", "properties": {"app_id": "x"},
		"message_id": "01890a5d-ac96-774b-bcce-b302099a8071"},
	{"event_type": "bytes", "body_base64": "", "message_id": "01890a5d-ac96-774b-bcce-b302099a8072"},
	{"event_type": "bytes", "body_base64": "AA==", "content_type": "application/octet-stream",
		"message_id": "01890a5d-ac96-774b-bcce-b302099a8073"}]');
SELECT event_type, payload, body, aggregate_type, aggregate_id, route, headers, routing_key, properties,
	available_at AT TIME ZONE 'UTC', status, attempts, origin = outbox_internal.outbox_origin() FROM outbox ORDER BY seq;
-- as the functions store them
SELECT count(*) FROM (SELECT outbox_enqueue('all', '[1, null, 1.50]', 'order', '7', '{"h": 1}', 'other', 'a.b', '{"priority": 3}', '2100-01-01 00:00+00')
	UNION ALL SELECT outbox_enqueue_bytes('bytes', '\x00ff', properties => '{"app_id": "x"}', content_type => 'image/png')) f;
SELECT count(*), count(DISTINCT (payload, body, aggregate_type, aggregate_id, route, headers, routing_key, properties, available_at))
FROM outbox WHERE event_type = 'all' OR properties ? 'app_id' GROUP BY event_type ORDER BY 1;
TRUNCATE outbox;

-- null is not given, but as a payload
SELECT count(*) FROM outbox_enqueue_batch('[{"event_type": "null", "payload": null, "aggregate_type": null, "aggregate_id": null,
	"headers": null, "route": null, "routing_key": null, "properties": null, "available_at": null, "message_id": null,
	"body_base64": null, "content_type": null},
	{"event_type": "null body", "payload": null, "body_base64": "AA==", "properties": null, "content_type": "a/b"}]');
SELECT event_type, payload, body, headers, route, properties FROM outbox ORDER BY seq;
-- an integer is a key as its digits are
SELECT count(*) FROM outbox_enqueue_batch('[{"event_type": "id", "payload": 1, "aggregate_id": 7}, {"event_type": "id", "payload": 1, "aggregate_id": -1e2},
	{"event_type": "id", "payload": 1, "aggregate_id": 12345678901234567890}]');
SELECT aggregate_id FROM outbox WHERE event_type = 'id' ORDER BY seq;

-- Ids in the order of the array, which is the order of seq
TRUNCATE outbox;
CREATE TEMP TABLE ids AS SELECT * FROM outbox_enqueue_batch((SELECT
	jsonb_agg(jsonb_build_object('event_type', 'n', 'payload', i, 'aggregate_id', i % 7)) FROM generate_series(1, 3000) i))
	WITH ORDINALITY b(id, n);
SELECT count(*), bool_and(o.payload = to_jsonb(b.n)), bool_and(o.seq > o.before)
FROM ids b JOIN (SELECT *, lag(seq, 1, 0::bigint) OVER (ORDER BY seq) AS before FROM outbox) o ON o.id = b.id;
DROP TABLE ids;
-- larger than work_mem
SET work_mem = '64kB';
SELECT count(*), count(DISTINCT i) FROM outbox_enqueue_batch((SELECT jsonb_agg(jsonb_build_object('event_type', 'n', 'payload', repeat('x', 200)))
	FROM generate_series(1, 3000))) i;
RESET work_mem;
-- none
SELECT * FROM outbox_enqueue_batch('[]');
-- for each row, and in the list of a SELECT
SELECT n, count(i) FROM (SELECT n, outbox_enqueue_batch(jsonb_build_array(jsonb_build_object('event_type', 'f', 'payload', n), '{"event_type": "f", "payload": 1}'::jsonb)) AS i
	FROM generate_series(1, 2) n) b GROUP BY n ORDER BY n;

-- What is no batch
SELECT batch(m) FROM unnest(ARRAY[NULL, '{}', '{"event_type": "e", "payload": 1}', '1', '"x"', 'true', 'null']) m;
SELECT batch('[{"event_type": "e", "payload": 1}, ' || m || ']')
FROM unnest(ARRAY['1', '"x"', 'null', '[]', '[{"event_type": "e", "payload": 1}]', 'false']) m;
-- what is no argument, or none of that type
SELECT batch('[{"event_type": "e", "payload": 1}, {"event_type": "e", "payload": 1, ' || m || '}]')
FROM unnest(ARRAY['"eventType": 1', '"body": "x"', '"": 1', '"Payload": 1', '"created_at": "now"', '"seq": null', '"' || repeat('ü', 200) || '": 1',
	'"event_type": 1', '"aggregate_type": true', '"aggregate_id": 1.0', '"aggregate_id": {}', '"route": ["other"]', '"routing_key": 7',
	'"message_id": 7', '"message_id": "x"', '"available_at": 0', '"available_at": "soon"', '"body_base64": {}', '"body_base64": "A"',
	'"body_base64": "*"', '"content_type": 1', '"content_type": "a/b"']) m;
-- what a message must be
SELECT batch('[{"event_type": "e", "payload": 1}, ' || m || ', {"event_type": "e", "payload": 1}]')
FROM unnest(ARRAY['{}', '{"payload": 1}', '{"event_type": null, "payload": 1}', '{"event_type": "", "payload": 1}', '{"event_type": "e"}',
	'{"event_type": "e", "payload": 1, "body_base64": "AA=="}', '{"event_type": "e", "payload": 1, "route": "nowhere"}',
	'{"event_type": "e", "payload": 1, "headers": []}', '{"event_type": "e", "payload": 1, "headers": {"CC": "x"}}',
	'{"event_type": "e", "payload": 1, "properties": {"user_id": "x"}}', '{"event_type": "e", "payload": 1, "aggregate_id": ""}',
	'{"event_type": "e", "payload": 1, "available_at": "infinity"}',
	'{"event_type": "' || repeat('x', 256) || '", "payload": 1}']) m;
-- an id that is there already, in the table or in the batch
SELECT id FROM outbox LIMIT 1 \gset
SELECT regexp_replace(batch('[{"event_type": "e", "payload": 1}, {"event_type": "e", "payload": 1, "message_id": "' || i || '"},
	{"event_type": "e", "payload": 1, "message_id": "01890a5d-ac96-774b-bcce-b302099a8070"}]'), '\(id\)=\(.*?\)', '(id)=(...)')
FROM unnest(ARRAY[:'id', '01890a5d-ac96-774b-bcce-b302099a8070']) i;

-- All or none: nothing of these was stored
SELECT event_type, count(*) FROM outbox WHERE event_type NOT IN ('n', 'f') GROUP BY event_type;

-- What an administrator adds is for batches, too
TRUNCATE outbox;
CREATE FUNCTION added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.event_type = 'out' THEN
		RETURN NULL;
	ELSIF NEW.event_type = 'raise' OR NEW.event_type = 'raise ' || TG_NAME THEN
		RAISE EXCEPTION 'raised by %', TG_NAME USING DETAIL = current_user = 'regress_outbox_app';
	ELSIF NEW.event_type = 'again' THEN
		PERFORM public.outbox_enqueue_batch('[{"event_type": "inner", "payload": 1}, {"event_type": "inner", "payload": 2}]');
	ELSIF NEW.event_type = 'in vain' THEN
		BEGIN
			PERFORM public.outbox_enqueue_batch('[{"event_type": "inner", "payload": 1}, {"event_type": "", "payload": 2}]');
		EXCEPTION WHEN invalid_parameter_value THEN NULL;
		END;
	END IF;
	RETURN NEW;
END
$$;
CREATE TRIGGER a BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION added();
CREATE TRIGGER z BEFORE INSERT ON outbox FOR EACH ROW WHEN (NEW.event_type = 'raise z') EXECUTE FUNCTION added();
CREATE TRIGGER after_row AFTER INSERT ON outbox FOR EACH ROW WHEN (NEW.event_type = 'raise after_row') EXECUTE FUNCTION added();
SELECT n, id IS NULL AS left_out FROM outbox_enqueue_batch('[{"event_type": "out", "payload": 1}, {"event_type": "in", "payload": 1},
	{"event_type": "out", "payload": 1}, {"event_type": "in", "payload": 1}, {"event_type": "out", "payload": 1}]') WITH ORDINALITY b(id, n);
SELECT id IS NULL FROM outbox_enqueue_batch('[{"event_type": "out", "payload": 1}]') b(id);
SELECT batch('[{"event_type": "e", "payload": 1}, {"event_type": "' || e || '", "payload": 1}, {"event_type": "e", "payload": 1}]')
FROM unnest(ARRAY['raise', 'raise z', 'raise after_row', 'again', 'in vain']) e;
SELECT batch('[{"event_type": "in vain", "payload": 1}, {"event_type": "in vain", "payload": 1}, {"event_type": "", "payload": 1}]');
SELECT event_type, count(*) FROM outbox GROUP BY event_type ORDER BY event_type;
DROP TRIGGER a ON outbox;
DROP TRIGGER z ON outbox;
DROP TRIGGER after_row ON outbox;
ALTER TABLE outbox ADD CONSTRAINT added CHECK (event_type <> 'no');
SELECT split_part(batch('[{"event_type": "e", "payload": 1}, {"event_type": "no", "payload": 1}]'), E'\n', 1);
ALTER TABLE outbox DROP CONSTRAINT added;
CREATE RULE added AS ON INSERT TO outbox DO INSTEAD NOTHING;
SELECT batch('[{"event_type": "e", "payload": 1}]');
DROP RULE added ON outbox;
CREATE TABLE also (event_type text);
CREATE RULE added AS ON INSERT TO outbox DO ALSO INSERT INTO public.also VALUES (NEW.event_type);
SELECT count(*) FROM outbox_enqueue_batch('[{"event_type": "e", "payload": 1}, {"event_type": "f", "payload": 1}]');
TABLE also;
DROP RULE added ON outbox;
DROP TABLE also;
ALTER TABLE outbox ADD added text DEFAULT 'a';
SELECT batch('[{"event_type": "e", "payload": 1}]');
ALTER TABLE outbox DROP added;
DROP FUNCTION added();
SELECT batch('[{"event_type": "e", "payload": 1}]');

-- Roles: EXECUTE, and the caller's rights on each route
CREATE ROLE regress_outbox_app;
INSERT INTO outbox_route (name, enqueue_roles) VALUES ('open', '{regress_outbox_app}'), ('closed', '{}');
GRANT USAGE ON SCHEMA outbox_regress TO regress_outbox_app;
SET ROLE regress_outbox_app;
SELECT batch('[]');
SELECT outcome('SELECT outbox_internal.outbox_batch_element(1)');
RESET ROLE;
GRANT EXECUTE ON FUNCTION outbox_enqueue_batch TO regress_outbox_app;
TRUNCATE outbox;
SET ROLE regress_outbox_app;
SELECT batch(format('[{"event_type": "e", "payload": 1, "route": "open"}, {"event_type": "e", "payload": 1}, {"event_type": "e", "payload": 1, "route": "%s"}]', r))
FROM unnest('{open,closed}'::text[]) r;
SELECT outcome(s) FROM unnest(ARRAY['SELECT * FROM outbox', $$SELECT outbox_enqueue('e', '{}')$$]) s;
-- and its objects do not get in the way
CREATE TEMP TABLE outbox_batch_rows (id uuid, route text);
CREATE TEMP TABLE outbox (id uuid);
CREATE FUNCTION pg_temp.outbox_batch_element(int) RETURNS boolean LANGUAGE sql AS 'SELECT false';
SET search_path = pg_temp, public, outbox_regress;
SELECT count(*) FROM public.outbox_enqueue_batch('[{"event_type": "temp", "payload": 1}]');
DROP TABLE pg_temp.outbox, pg_temp.outbox_batch_rows;
SET search_path = public, outbox_regress;
RESET ROLE;
SELECT event_type, route, count(*) FROM outbox GROUP BY event_type, route ORDER BY 1, 2;

-- Strict keys: each once
SET outbox.strict_keys = on;
BEGIN;
SELECT count(*) FROM outbox_enqueue_batch('[{"event_type": "e", "payload": 1, "aggregate_id": "a"}, {"event_type": "e", "payload": 1, "aggregate_id": "b"},
	{"event_type": "e", "payload": 1, "aggregate_id": "a"}, {"event_type": "e", "payload": 1}]');
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 3 AND pid = pg_backend_pid();
ROLLBACK;
RESET outbox.strict_keys;

-- Read-only, rollback, savepoints
BEGIN READ ONLY;
SELECT outbox_enqueue_batch('[{"event_type": "e", "payload": 1}]');
ROLLBACK;
TRUNCATE outbox;
BEGIN;
SELECT count(*) FROM outbox_enqueue_batch('[{"event_type": "kept", "payload": 1}]');
SAVEPOINT s;
SELECT count(*) FROM outbox_enqueue_batch('[{"event_type": "gone", "payload": 1}]');
ROLLBACK TO s;
COMMIT;
SELECT event_type FROM outbox;
-- called by a cursor, and prepared
PREPARE p AS SELECT count(*) FROM outbox_enqueue_batch($1);
EXECUTE p ('[{"event_type": "prepared", "payload": 1}]');
EXECUTE p ('[{"event_type": "prepared", "payload": 1}]');
DO $$
DECLARE
	i uuid;
	n int := 0;
BEGIN
	FOR i IN SELECT * FROM outbox_enqueue_batch('[{"event_type": "loop", "payload": 1}, {"event_type": "loop", "payload": 1}]') LOOP
		n := n + (i IN (SELECT id FROM outbox))::int;
	END LOOP;
	ASSERT n = 2;
END
$$;

TRUNCATE outbox;
DELETE FROM outbox_route WHERE name <> 'default';
DROP FUNCTION batch(text);
DROP OWNED BY regress_outbox_app;
DROP ROLE regress_outbox_app;
