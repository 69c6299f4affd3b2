-- Formats: what format_options of a route may be, and what a format cannot carry.
-- What goes out in them: formats.pl.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
\pset format unaligned
\pset tuples_only on

CREATE FUNCTION outbox_regress.options_outcome(name text, options text DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$
	SELECT name || ' ' || coalesce(options, 'NULL') || ': ' || outcome(
		format('INSERT INTO outbox_route (name, format, format_options) VALUES (''r'', %L, %L)', name, options))
$$;

-- Which there are
SELECT outbox_regress.options_outcome(name) FROM unnest(ARRAY['plain', 'debezium', 'spring',
	'cloudevents', 'CloudEvents', '', 'avro']) name;
SELECT outcome($$INSERT INTO outbox_route (name, format) VALUES ('r', NULL)$$);
SELECT outbox_regress.options_outcome('plain', options)
FROM unnest(ARRAY['{}', 'null', '[]', '{"type": "x"}']) options;
-- What other relays publish is theirs to form
SELECT outcome($$INSERT INTO outbox_route (name, relay, format) VALUES ('r', 'external', 'debezium')$$);
SELECT outcome($$INSERT INTO outbox_route (name, relay) VALUES ('r', 'external')$$);

-- Names of types
SELECT outbox_regress.options_outcome('debezium', options) FROM unnest(ARRAY[
	'{}', 'null', '[]', '1', '{"typ": "x"}', '{"mode": "binary"}',
	'{"type": "x.{event_type}.{aggregate_type}.{aggregate_id}"}', '{"type": ""}',
	'{"type": "{id}"}', '{"type": 1}', '{"type": null}', '{"type": "a\tb"}', '{"type": "a\ufffe"}',
	'{"types": {}}', '{"types": []}', '{"types": "x"}', '{"types": {"a": "b", "c": "d"}}',
	'{"types": {"a": ""}}', '{"types": {"a": 1}}', '{"types": {"a": ["b"]}}',
	'{"types": {"a": ["b", "c"]}}', '{"types": {"a": []}}', '{"types": {"a": {"b": "c"}}}',
	'{"types": {"a": [["b"]]}}', '{"types": {"a": "b\u0085"}}']) options;

-- spring has up to three
SELECT outbox_regress.options_outcome('spring', options) FROM unnest(ARRAY[
	'{"types": {"a": ["b", "c", "d"]}}', '{"types": {"a": ["b", "c", "d", "e"]}}']) options;

-- debezium
SELECT outbox_regress.options_outcome('debezium', options) FROM unnest(ARRAY[
	'{"quoted": true}', '{"quoted": "true"}', '{"headers": {}}', '{"headers": []}',
	'{"headers": {"event_type": "type", "aggregate_type": null, "aggregate_id": "key"}}',
	'{"headers": {"event_type": "id"}}', '{"headers": {"id": "x"}}', '{"headers": {"event_type": ""}}',
	'{"headers": {"event_type": "x", "aggregate_id": "x"}}', '{"headers": {"event_type": "aggregateId"}}',
	'{"headers": {"event_type": "aggregateId", "aggregate_id": null}}',
	'{"headers": {"event_type": 1}}', '{"headers": {"aggregate_id": "CC"}}', '{"headers": {"event_type": "aggregate_id"}}',
	'{"headers": {"event_type": "aggregate_type", "aggregate_type": null}}', '{"headers": {"event_type": "traceparent"}}',
	'{"headers": {"event_type": "x-outbox-seq"}}', '{"headers": {"aggregate_id": "aggregate_id", "aggregate_type": "aggregate_type"}}', '{"headers": {"event_type": "' || repeat('x', 255) || '"}}',
	'{"headers": {"event_type": "' || repeat('x', 256) || '"}}']) options;

-- cloudevents
SELECT outbox_regress.options_outcome('cloudevents', '{"source": "/", "' || key || '": ' || value || '}') FROM (VALUES
	('mode', '"binary"'), ('mode', '"structured"'), ('mode', '"batch"'), ('mode', 'true'),
	('prefix', '"cloudEvents_"'), ('prefix', '"cloudEvents:"'), ('prefix', '"ce-"'), ('prefix', '"ce_"'),
	('dataschema', '"https://example.com/{event_type}.json"'), ('dataschema', '"urn:x:1"'),
	('dataschema', '"/relative"'), ('dataschema', '"https://example.com/#fragment"'), ('dataschema', '""'),
	('quoted', 'true')) v(key, value);
SELECT outbox_regress.options_outcome('cloudevents', '{"source": ' || value || '}') FROM unnest(ARRAY[
	'"/"', '"orders"', '"?x"', '"#x"', '"//host/x"', '"https://example.com/{aggregate_type}?q=%20#f"',
	'"urn:uuid:6f1c"', '"mailto:a@example.com"', '"https://[::1]:8080/"',
	'""', 'null', '1', '" "', '"/a b"', '"/ü"', '"a:b{event_typ}"', '"1a:b"', '":x"', '"/%2"', '"/#a#b"',
	'"/[x]"', '"https://host:port/"', '"https://[::1"', '"/a|b"', '"/a\\b"', '"/<a>"']) value;

-- masstransit, nservicebus and celery
SELECT outbox_regress.options_outcome(name, options) FROM (VALUES
	('masstransit', '{"types": {"a": ["Shop:OrderCreated", "urn:message:Shop:Event"]}}'),
	('masstransit', '{"sourceAddress": "rabbitmq://localhost/shop", "destinationAddress": "exchange:a", "responseAddress": "queue:b", "faultAddress": "queue:c"}'),
	('masstransit', '{"sourceAddress": "shop"}'), ('masstransit', '{"faultAddress": 1}'), ('masstransit', '{"intent": "Send"}'),
	('nservicebus', '{"intent": "Send", "endpoint": "Shop", "types": {"a": ["b", "c"]}}'),
	('nservicebus', '{"intent": "send"}'), ('nservicebus', '{"endpoint": ""}'), ('nservicebus', '{"endpoint": "a\nb"}'),
	('celery', '{"type": "shop.{event_type}", "payload": "arguments"}'), ('celery', '{"type": "shop.{event_type}", "payload": "argument"}'),
	('celery', '{"payload": "kwargs"}'), ('cap', NULL), ('laravel', '{"type": "App\\\\Jobs\\\\{event_type}"}'), ('laravel', '{"queue": "x"}'),
	-- the type is code: which, says the route
	('celery', NULL), ('laravel', NULL), ('celery', '{"payload": "argument"}'), ('celery', '{"type": "{event_type}"}'),
	('celery', '{"type": "{aggregate_type}.{event_type}"}'), ('laravel', '{"type": "{event_type}@handle"}'), ('laravel', '{"types": {}}'),
	('laravel', '{"types": {"a": "A@b"}}'), ('laravel', '{"types": {"a": "A@b"}, "type": "{event_type}"}'),
	('laravel', '{"types": {"a": "A@b"}, "type": "App\\\\{event_type}"}'), ('celery', '{"type": "shop.tasks.all"}')) v(name, options);

-- An UPDATE is judged, too, of whatever column
INSERT INTO outbox_route (name, format, format_options) VALUES ('ce', 'cloudevents', '{"source": "/"}');
SELECT outcome($$UPDATE outbox_route SET format_options = NULL WHERE name = 'ce'$$);
SELECT outcome($$UPDATE outbox_route SET format = 'spring' WHERE name = 'ce'$$);
SELECT outcome($$UPDATE outbox_route SET relay = 'external' WHERE name = 'ce'$$);

-- What it cannot carry, by the function and by INSERT
SELECT enqueue('route', '''ce''');
SELECT enqueue('route', '''ce''', event_type => expr) FROM unnest(ARRAY['E''a\tb''', '''größer''', 'E''\u0085''', 'E''\uffff''']) expr;
SELECT outcome('SELECT outbox_enqueue(''e'', ''{}'', route => ''ce'', ' || args || ')') FROM unnest(ARRAY[
	'aggregate_id => E''\x7f''', 'aggregate_type => E''\x7f'', aggregate_id => ''1''',
	'headers => ''{"cloudEvents:id": "1"}''', 'headers => ''{"cloudEvents_": "1"}''',
	'headers => ''{"cloudEvents:tenant": "1"}''', 'headers => ''{"cloudEvents:tenant": 1}''', 'headers => ''{"cloudEvents:tenant": "a\u0007"}''',
	'headers => ''{"ce-id": "1"}''', 'headers => ''{"cloudevents:id": "1"}''',
	'properties => ''{"content_type": "x"}''', 'properties => ''{"content_type": "a/b;c=d"}''',
	'properties => ''{"content_type": "application/cloudevents-batch+json"}''']) args;
-- Those that need JSON, and those that take names for theirs
INSERT INTO outbox_route (name, format, format_options)
SELECT f, f, CASE WHEN f IN ('celery', 'laravel') THEN '{"types": {"e": "shop.e"}}'::jsonb END FROM unnest(ARRAY['masstransit', 'nservicebus', 'cap', 'celery', 'laravel', 'spring', 'debezium']) f;
SELECT f || ', bytes: ' || outcome(format('SELECT outbox_enqueue_bytes(''e'', ''x'', route => %L)', f)),
	f || ', null: ' || outcome(format('SELECT outbox_enqueue(''e'', ''null'', route => %L)', f)),
	f || ', gzip: ' || outcome(format('SELECT outbox_enqueue(''e'', ''{}'', route => %L, properties => ''{"content_encoding": "gzip"}'')', f))
FROM outbox_route JOIN unnest(ARRAY['masstransit', 'nservicebus', 'cap', 'celery', 'laravel', 'spring', 'debezium']) WITH ORDINALITY u(f, n) ON name = f
ORDER BY n;
SELECT f || ', ' || header || ': ' || outcome(format('SELECT outbox_enqueue(''e'', ''{}'', route => %L, headers => %L)', f, format('{"%s": 1}', header)))
FROM (VALUES ('cap', 'cap-exception'), ('cap', 'cap-callback-name'), ('cap', 'cap-msg-id'), ('celery', 'args'), ('celery', 'compression'),
	('celery', 'expires'), ('celery', 'argsrepr'), ('laravel', 'laravel'), ('laravel', 'Laravel')) v(f, header);
-- each name that a format refuses, and no other
SELECT f || ' refuses: ' || string_agg(header, ' ' ORDER BY n) FILTER (WHERE result ~ 'headers') AS refused,
	string_agg(header, ' ' ORDER BY n) FILTER (WHERE result !~ 'headers') AS taken
FROM (SELECT f, header, n, outcome(format('SELECT outbox_enqueue(''e'', ''{}'', route => %L, headers => %L)', f, jsonb_build_object(header, 'x'))) AS result
	FROM (VALUES ('cap', 'cap-exception cap-exec-instance-id cap-delaytime cap-msg-group cap-msg-groups cap-senttime'),
		('celery', 'args kwargs callbacks errbacks chain chord reply_to correlation_id delivery_info properties headers hostname retries timelimit stamped_headers stamps taskset utc compression called_directly is_eager replaced_task_nesting arg tasks'),
		('laravel', 'laravel laravels'),
		('ce', 'cloudEvents:id cloudEvents:source cloudEvents:type cloudEvents:specversion cloudEvents:time cloudEvents:subject cloudEvents:datacontenttype cloudEvents:dataschema cloudEvents:data cloudEvents:dat cloudEvents:ids cloudEvents_id ce-id ce_id cloudEvents.id')) v(f, headers),
	string_to_table(headers, ' ') WITH ORDINALITY u(header, n)) results
GROUP BY f ORDER BY f;
-- and those that list their types
SELECT outcome('SELECT outbox_enqueue(''os.system'', ''{}'', route => ''celery'')'), outcome('SELECT outbox_enqueue(''e'', ''{}'', route => ''laravel'')');
DELETE FROM outbox_route WHERE name IN ('masstransit', 'nservicebus', 'cap', 'celery', 'laravel', 'spring', 'debezium');
-- What refuses is the format as it is now
BEGIN;
UPDATE outbox_route SET format = 'plain', format_options = NULL WHERE name = 'ce';
SELECT outcome('SELECT outbox_enqueue(''e'', ''{}'', route => ''ce'', aggregate_id => E''\x7f'')');
ROLLBACK;
SELECT outcome('SELECT outbox_enqueue(''e'', ''{}'', route => ''ce'', aggregate_id => E''\x7f'')');

DELETE FROM outbox_route WHERE name = 'ce';
DROP FUNCTION outbox_regress.options_outcome(text, text);
