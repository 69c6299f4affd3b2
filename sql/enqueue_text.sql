-- outbox_enqueue_text(): outbox_enqueue() with strings for all arguments.
SET client_min_messages = error;	-- a server without the library preloaded warns
SET search_path = public, outbox_regress;
SET timezone = 'UTC';
TRUNCATE outbox;

-- Everything at its default, and everything given, as drivers send it: as text
SELECT outbox_enqueue_text('order.created', '{"id": 1}') AS id \gset
SELECT id = :'id' AS same_id, route, event_type, aggregate_type, aggregate_id, payload, body,
	headers, properties, routing_key, available_at, created_at BETWEEN now() - interval '1 minute'
		AND clock_timestamp() AS now
FROM outbox \gx
INSERT INTO outbox_route (name, exchange) VALUES ('by text', 'amq.topic');
PREPARE typed (text, varchar, text, text, text, text, text, text, text, text) AS
	SELECT outbox_enqueue_text($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);
EXECUTE typed ('order.paid', '[1, {"b": null, "a": "é"}]', 'order', '42', '{"tenant": "a"}', 'by text', 'a.b',
	'{"priority": 3}', '2100-01-01T01:00:00+01:00', '01890a5d-ac96-774b-bcce-b302099a8057');
SELECT route, event_type, aggregate_type, aggregate_id, payload, body, headers,
	properties, routing_key, available_at
FROM outbox WHERE id = '01890a5d-ac96-774b-bcce-b302099a8057' \gx
-- NULLs, and JSON null for headers and properties
SELECT outbox_enqueue_text('nulls', '"a string"', NULL, NULL, NULL, 'default', NULL, NULL, NULL, NULL) IS NOT NULL AS ok;
SELECT outbox_enqueue_text('json', 'null', headers => 'null', properties => 'null') IS NOT NULL AS ok;
SELECT event_type, payload, headers, properties, available_at FROM outbox
WHERE event_type IN ('nulls', 'json') ORDER BY seq;
-- the same statement again, and of columns
TRUNCATE outbox;
SELECT count(outbox_enqueue_text('many', t, headers => '{}')) FROM (VALUES ('1'), ('{"a": 2}'), ('[3]')) v(t);
SELECT payload FROM outbox ORDER BY seq;

-- What an argument is not, is said by its name
\pset format unaligned
\pset tuples_only on
SELECT argument, value, regexp_replace(outcome(format('SELECT outbox_enqueue_text(event_type => ''e'', payload => %s, %s)',
	CASE argument WHEN 'payload' THEN quote_literal(value) ELSE '''{}''' END,
	CASE argument WHEN 'payload' THEN 'route => ''default''' ELSE format('%I => %L', argument, value) END)), '\n  HINT: Perhaps .*', '')
FROM (VALUES ('payload', ''), ('payload', 'hello'), ('payload', '{"a": "\u0000"}'), ('payload', '{"a": 1'),
	('headers', '{'), ('headers', '[]'), ('headers', 'x'), ('properties', 'x'), ('properties', '{"no": 1}'),
	('available_at', 'soon'), ('available_at', '2026-13-01'), ('available_at', '300000-01-01'),
	('available_at', 'infinity'), ('available_at', ''), ('message_id', 'x'), ('message_id', ''),
	('aggregate_id', ''), ('route', 'nowhere')) v(argument, value);
-- an error that is not of the value is as it was
SELECT split_part(outcome($$SELECT outbox_enqueue_text('e', repeat('[', 1000000))$$), E'\n', 1);
SELECT outcome('SELECT outbox_enqueue_text(NULL, ''{}'')'), outcome('SELECT outbox_enqueue_text(''e'', NULL)'),
	outcome('SELECT outbox_enqueue_text(''e'', ''{}'', route => NULL)');

-- An error leaves nothing behind, in a subtransaction, too
TRUNCATE outbox;
DO $$
BEGIN
	PERFORM outbox_enqueue_text('before', '1');
	BEGIN
		PERFORM outbox_enqueue_text('within', '2');
		PERFORM outbox_enqueue_text('wrong', '{', message_id => 'x');
	EXCEPTION WHEN invalid_text_representation THEN
		PERFORM outbox_enqueue_text('caught', to_json(SQLERRM)::text);
	END;
END
$$;
SELECT event_type, payload FROM outbox ORDER BY seq;

-- Rights on routes are the caller's
CREATE ROLE regress_outbox_text;
GRANT EXECUTE ON FUNCTION outbox_enqueue_text TO regress_outbox_text;
GRANT USAGE ON SCHEMA outbox_regress TO regress_outbox_text;
UPDATE outbox_route SET enqueue_roles = '{pg_monitor}' WHERE name = 'by text';
SET ROLE regress_outbox_text;
SELECT outcome(format('SELECT outbox_enqueue_text(''e'', ''{}'', route => %L)', r)) FROM unnest(ARRAY['default', 'by text']) r;
RESET ROLE;
TRUNCATE outbox;
DELETE FROM outbox_route WHERE name = 'by text';
REVOKE ALL ON FUNCTION outbox_enqueue_text FROM regress_outbox_text;
REVOKE USAGE ON SCHEMA outbox_regress FROM regress_outbox_text;
DROP ROLE regress_outbox_text;
