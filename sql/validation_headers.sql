-- Headers and properties at enqueue; see validation.sql.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
\pset format unaligned
\pset tuples_only on

-- headers: an object
SELECT expr, enqueue('headers', quote_literal(expr))
FROM unnest(ARRAY['null', '[]', '"x"', '1', 'true', '{}', '{"": ""}']) expr;
SELECT enqueue('headers', 'NULL');

-- every kind of value
SELECT enqueue('headers', quote_literal('{"s": "x", "b": true, "n": null,
	"a": [1, "x", {"y": []}], "o": {"p": {}}, "i": 9223372036854775807,
	"j": -9223372036854775808, "k": 9223372036854775808, "d": 1.5e-300}'));

-- nested 8 deep and no deeper: objects, arrays, both
SELECT enqueue('headers', quote_literal(expr)) FROM (VALUES
	(repeat('{"a":', 7) || '{}' || repeat('}', 7)),
	(repeat('{"a":', 8) || '{}' || repeat('}', 8)),
	('{"a":' || repeat('[', 7) || repeat(']', 7) || '}'),
	('{"a":' || repeat('[', 8) || repeat(']', 8) || '}'),
	(repeat('{"a":[', 4) || repeat(']}', 4)),
	(repeat('{"a":[', 4) || '{}' || repeat(']}', 4)),
	('{"a":' || repeat('[', 3000) || repeat(']', 3000) || '}')) v(expr);
-- deeper than the server's own JSON goes
SELECT split_part(enqueue('headers', format('(repeat(%L, 100000) || repeat(%L, 100000))::jsonb', '{"a":[', ']}')), E'\n', 1);

-- names of 255 bytes, at any depth
SELECT enqueue('headers', expr) FROM unnest(ARRAY[
	'jsonb_build_object(repeat(''x'', 255), 1)',
	'jsonb_build_object(repeat(''x'', 256), 1)',
	'jsonb_build_object(repeat(''é'', 127) || ''x'', 1)',
	'jsonb_build_object(repeat(''é'', 128), 1)',
	'jsonb_build_object(''a'', jsonb_build_array(jsonb_build_object(repeat(''x'', 256), 1)))'])
	expr;

-- CC and BCC would route past the route; elsewhere they are only names
SELECT expr, enqueue('headers', quote_literal(expr)) FROM unnest(ARRAY[
	'{"CC": ["q"]}', '{"BCC": "q"}', '{"cc": "q"}', '{"CCC": "q"}',
	'{"a": {"CC": "q"}}']) expr;

-- numbers that AMQP has no type for
SELECT expr, enqueue('headers', quote_literal(format('{"n": %s}', expr)))
FROM unnest(ARRAY['1e308', '1e309', '-1e309', '1e-400',
	'18446744073709551616', '0.1']) expr;
SELECT enqueue('headers', quote_literal('{"a": [{"n": 1e400}]}'));
-- nor one of more digits than a double has, which would only cost the relay
SELECT enqueue('headers', quote_literal(format('{"n": %s}', n))) FROM unnest(ARRAY['1e-300', '1e-2000', '1e131071']) n;
SELECT enqueue('headers', format('(%L || repeat(''9'', 100000) || %L)::jsonb', '{"n": ', '}'));

-- one frame holds all of it, short of the reserve for our own properties
SELECT n, enqueue('headers', format('jsonb_build_object(''h'', repeat(''x'', %s))', n))
FROM unnest(ARRAY[100000, 130000, 130820, 131072, 1000000]) n;
-- the largest that is accepted, whatever else is sent along
SELECT n, enqueue('headers', format('jsonb_build_object(''h'', repeat(''x'', %s))', n),
	event_type => 'repeat(''e'', 255)')
FROM unnest(ARRAY[130520, 130620]) n;
SELECT n, enqueue('headers', format('(SELECT jsonb_object_agg(i::text, i) FROM generate_series(1, %s) i)', n))
FROM unnest(ARRAY[5000, 20000]) n;

-- properties: an object of known names
SELECT expr, enqueue('properties', quote_literal(expr))
FROM unnest(ARRAY['null', '[]', '"x"', '{}']) expr;
SELECT name, enqueue('properties', quote_literal(jsonb_build_object(name, 'x')))
FROM unnest(ARRAY['user_id', 'cluster_id', 'message_id', 'timestamp',
	'delivery_mode', 'headers', 'mandatory', 'immediate', 'Content_Type', '']) name;
SELECT enqueue('properties', quote_literal('{"content_type": "a/b",
	"content_encoding": "gzip", "correlation_id": "c", "reply_to": "q",
	"priority": 5, "expiration": "1", "type": "t", "app_id": "a"}'));

-- those that are strings
SELECT name, kind, enqueue('properties', quote_literal(jsonb_build_object(name, value)))
FROM unnest(ARRAY['app_id', 'content_encoding', 'content_type',
		'correlation_id', 'reply_to', 'type']) name,
	(VALUES ('empty', to_jsonb(''::text)), ('255 bytes', to_jsonb(repeat('x', 255))),
		('256 bytes', to_jsonb(repeat('x', 256))), ('128 é', to_jsonb(repeat('é', 128))),
		('number', '1'), ('null', 'null'), ('object', '{}')) v(kind, value);

-- expiration: milliseconds, as digits
SELECT value, enqueue('properties', quote_literal(format('{"expiration": %s}', value)))
FROM unnest(ARRAY['"60000"', '"0"', '"4294967295"', '"4294967296"', '"0004294967295"',
	'"-1"', '"+1"', '"1.5"', '"1e3"', '" 1"', '"abc"', '"99999999999999"', '""',
	'60000', 'null']) value;

-- priority: one octet
SELECT value, enqueue('properties', quote_literal(format('{"priority": %s}', value)))
FROM unnest(ARRAY['0', '255', '5.0', '2.55e2', '-1', '256', '1.5', '1e10',
	'99999999999999999999', '"5"', 'null', 'true']) value;

-- reply_to: no direct reply, which needs a consumer on the relay's connection
SELECT value, enqueue('properties', quote_literal(jsonb_build_object('reply_to', value)))
FROM unnest(ARRAY['replies', 'amq.gen-x', 'amq.rabbitmq.reply-to',
	'amq.rabbitmq.reply-to.g1h2', 'amq.rabbitmq.reply']) value;
