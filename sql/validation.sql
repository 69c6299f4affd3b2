-- What the broker or the protocol would refuse is refused at enqueue.  Each case
-- is tried through the function and through INSERT; see install.sql.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
\pset format unaligned
\pset tuples_only on

-- event_type
SELECT enqueue('route', '''default''', event_type => expr) FROM unnest(ARRAY[
	'NULL', '''''', '''x''', 'repeat(''x'', 255)', 'repeat(''x'', 256)',
	'repeat(''é'', 127) || ''x''', 'repeat(''é'', 128)', 'repeat(''€'', 85)',
	'repeat(''€'', 86)', '''a b/*#''']) expr;

-- payload and body: exactly one
SELECT enqueue('route', '''default''', payload => expr)
FROM unnest(ARRAY['NULL', '''null''', '''{}''', '''[]''', '''"x"''', '''1''']) expr;
SELECT outcome($$SELECT outbox_enqueue_bytes('e', NULL)$$);
SELECT outcome($$SELECT outbox_enqueue_bytes('e', '')$$);
SELECT outcome($$INSERT INTO outbox (event_type) VALUES ('e')$$);
SELECT outcome($$INSERT INTO outbox (event_type, payload, body) VALUES ('e', '{}', '')$$);

-- aggregate_type and aggregate_id
SELECT argument, enqueue(argument, expr)
FROM unnest(ARRAY['aggregate_type', 'aggregate_id']) argument, unnest(ARRAY[
	'NULL', '''''', 'repeat(''x'', 255)', 'repeat(''x'', 256)',
	'repeat(''é'', 128)']) expr;

-- route
SELECT enqueue('route', expr)
FROM unnest(ARRAY['NULL', '''''', '''nowhere''', '''Default''', '''default''']) expr;

-- routing_key; the empty one is valid
SELECT enqueue('routing_key', expr) FROM unnest(ARRAY['NULL', '''''',
	'repeat(''x'', 255)', 'repeat(''x'', 256)', 'repeat(''é'', 128)']) expr;

-- message_id and available_at
SELECT enqueue('message_id', expr) FROM unnest(ARRAY[
	'''00000000-0000-0000-0000-000000000000''', '''x''']) expr;
SELECT enqueue('available_at', expr) FROM unnest(ARRAY['NULL', '''infinity''',
	'''-infinity''', '''4713-01-01 BC''', '''9999-12-31''', 'now()']) expr;

-- body, against outbox.max_message_size
SET outbox.max_message_size = '1kB';
SELECT outcome('SELECT outbox_enqueue_bytes(''e'', ' || expr || ')')
FROM unnest(ARRAY['repeat(''x'', 1024)::bytea', 'repeat(''x'', 1025)::bytea']) expr;
SELECT outcome('INSERT INTO outbox (event_type, body) VALUES (''e'', ' || expr || ')')
FROM unnest(ARRAY['repeat(''x'', 1024)::bytea', 'repeat(''x'', 1025)::bytea']) expr;
-- of a payload, the text counts: the quotes, and bytes rather than characters
SELECT enqueue('route', '''default''', payload => expr) FROM unnest(ARRAY[
	'to_jsonb(repeat(''x'', 1022))', 'to_jsonb(repeat(''x'', 1023))',
	'to_jsonb(repeat(''é'', 511))', 'to_jsonb(repeat(''é'', 512))',
	'to_jsonb(repeat(chr(10), 511))', 'to_jsonb(repeat(chr(10), 512))']) expr;
-- a large value that was compressed or moved out of line is measured in full
CREATE TABLE large AS SELECT repeat('x', 100000)::bytea AS b, to_jsonb(repeat('x', 100000)) AS j;
SELECT outcome('SELECT outbox_enqueue_bytes(''e'', b) FROM large');
SELECT outcome('SELECT outbox_enqueue(''e'', j) FROM large');
-- a few bytes can become a long text: 500 numbers of 131072 digits, in 5 kB
SELECT pg_column_size(to_jsonb(array_fill(1e131071, ARRAY[500]))) < 8192 AS small;
SELECT outcome('SELECT outbox_enqueue(''e'', to_jsonb(array_fill(1e131071, ARRAY[500])))');
RESET outbox.max_message_size;
SELECT outcome('SELECT outbox_enqueue(''e'', to_jsonb(array_fill(1e131071, ARRAY[500])))');
SELECT outcome('SELECT outbox_enqueue_bytes(''e'', b), outbox_enqueue(''e'', j) FROM large');
SELECT outcome('INSERT INTO outbox (event_type, body, payload) SELECT ''e'', b, NULL FROM large');
DROP TABLE large;

-- created_at is no argument of the function, but a column
SELECT expr, outcome(format('INSERT INTO outbox (event_type, payload, created_at) VALUES (''e'', ''{}'', %s)', expr))
FROM unnest(ARRAY['NULL', '''infinity''', '''-infinity''', '''2020-01-01''']) expr;
-- as are the relay's own columns
SELECT split_part(outcome(format('INSERT INTO outbox (event_type, payload, %s) VALUES (''e'', ''{}'', %s)',
	col, value)), E'\n', 1)
FROM (VALUES ('status', '''published'''), ('status', 'NULL'), ('attempts', '-1'), ('attempts', '1000000001'),
	('attempts', '2147483647'), ('attempts', '1000000000'),
	('attempts', 'NULL')) v(col, value);

-- content_type of bytes is the property of that name
SELECT outcome('SELECT outbox_enqueue_bytes(''e'', '''', content_type => ' || expr || ')')
FROM unnest(ARRAY['NULL', '''''', 'repeat(''x'', 255)', 'repeat(''x'', 256)']) expr;

-- The other arguments of outbox_enqueue_bytes are those of outbox_enqueue
SELECT outcome('SELECT outbox_enqueue_bytes(''e'', '''', ' || arg || ')') FROM unnest(ARRAY[
	'aggregate_id => repeat(''x'', 256)', 'aggregate_type => repeat(''x'', 256)',
	'headers => ''[]''', 'route => NULL', 'route => ''nowhere''',
	'routing_key => repeat(''x'', 256)', 'properties => ''{"x": 1}''',
	'message_id => ''00000000-0000-0000-0000-000000000000''']) arg;
SELECT outcome('SELECT outbox_enqueue_bytes(NULL, '''')');
SELECT outcome('SELECT outbox_enqueue_bytes('''', '''')');

-- COPY: one bad line, and the whole COPY is undone
COPY outbox (event_type, payload, route) FROM stdin;
good	{}	default
bad	{}	nowhere
\.
COPY outbox (event_type, payload, headers) FROM stdin;
good	{}	\N
bad	{}	{"CC": ["q"]}
\.
COPY outbox (event_type, payload, properties) FROM stdin;
good	{}	{"priority": 1}
bad	{}	{"priority": 256}
\.
COPY outbox (event_type, payload) FROM stdin;
	{}
\.
SELECT count(*) FROM outbox;

-- A change of a row is checked as a new one is
INSERT INTO outbox (event_type, payload) VALUES ('e', '{}');
SELECT outcome('UPDATE outbox SET ' || change) FROM unnest(ARRAY[
	'event_type = ''''', 'route = ''nowhere''', 'body = ''x''', 'payload = NULL',
	'headers = ''{"BCC": "q"}''', 'properties = ''{"user_id": "x"}''',
	'routing_key = repeat(''x'', 256)', 'aggregate_id = ''''',
	'created_at = ''infinity''', 'event_type = ''f''']) change;
TRUNCATE outbox;
