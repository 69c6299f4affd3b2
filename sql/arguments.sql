-- What mappers and drivers send for what nobody has set: NULL, zero, JSON null.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
\pset format unaligned
\pset tuples_only on
TRUNCATE outbox;

-- NULL is the default of these columns
INSERT INTO outbox (id, route, event_type, payload, created_at, available_at, attempts, last_error, status, origin)
	VALUES (NULL, NULL, 'null', '{}', NULL, NULL, NULL, NULL, NULL, NULL)
	RETURNING substr(id::text, 15, 1) AS version, route, created_at BETWEEN now() AND clock_timestamp() AS now,
		available_at, attempts, status, origin = outbox_internal.outbox_origin() AS ours;
INSERT INTO outbox (event_type, payload, attempts, origin) VALUES ('zero', '{}', 0, 0)
	RETURNING attempts, origin = outbox_internal.outbox_origin();
INSERT INTO outbox_new (id, route, event_type, payload, created_at)
	SELECT NULL, NULL, 'view', '{}', NULL FROM generate_series(1, 3)
	RETURNING substr(id::text, 15, 1), route, created_at IS NOT NULL;
COPY outbox (id, route, event_type, payload, headers, created_at, attempts, status, origin) FROM stdin;
\N	\N	copy	{}	null	\N	\N	\N	0
\.
SELECT event_type, route, headers, attempts, status, origin = outbox_internal.outbox_origin(),
	created_at BETWEEN now() - interval '1 minute' AND now() + interval '1 minute'
FROM outbox WHERE event_type = 'copy';
SELECT count(DISTINCT id), count(*) FROM outbox;

-- It is the default that the table has
ALTER TABLE outbox ALTER route SET DEFAULT 'other', ALTER created_at DROP DEFAULT;
INSERT INTO outbox_route (name) VALUES ('other');
INSERT INTO outbox (route, event_type, payload, created_at) VALUES (NULL, 'other', '{}', now()) RETURNING route;
SELECT outcome($$INSERT INTO outbox (event_type, payload, created_at) VALUES ('e', '{}', NULL)$$);
ALTER TABLE outbox ALTER route SET DEFAULT 'default', ALTER created_at SET DEFAULT pg_catalog.clock_timestamp();
-- and a trigger of one's own that comes first has its say
CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.created_at := coalesce(NEW.created_at, '2000-01-01 00:00+00');
	RETURN NEW;
END
$$;
CREATE TRIGGER a_fill BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION fill();
INSERT INTO outbox (event_type, payload, created_at) VALUES ('first', '{}', NULL) RETURNING created_at = '2000-01-01 00:00+00';
DROP TRIGGER a_fill ON outbox;
DROP FUNCTION fill();

-- An id that conflicts does so also when it was NULL for others
INSERT INTO outbox (id, event_type, payload) VALUES (NULL, 'e', '{}'), ('01890a5d-ac96-774b-bcce-b302099a8061', 'e', '{}')
	ON CONFLICT (id) DO NOTHING RETURNING id IS NOT NULL;
INSERT INTO outbox (id, event_type, payload) VALUES (NULL, 'e', '{}'), ('01890a5d-ac96-774b-bcce-b302099a8061', 'e', '{}')
	ON CONFLICT (id) DO NOTHING RETURNING id IS NOT NULL;

-- Only of a new row: an UPDATE that takes a value away is a mistake
SELECT c, left(outcome(format('UPDATE outbox SET %s = NULL', c)), 5)
FROM unnest(ARRAY['id', 'route', 'created_at', 'attempts', 'status', 'origin']) c;
-- Refused, whoever writes it
SELECT outcome(format('INSERT INTO outbox (event_type, payload, %s) VALUES (''e'', ''{}'', %s)', c, v))
FROM (VALUES ('created_at', '''infinity'''), ('created_at', '''-infinity'''), ('available_at', '''infinity'''),
	('attempts', '-1'), ('status', '''sent'''), ('status', ''''''), ('origin', '1'), ('route', ''''''),
	('seq', '0'), ('seq', 'NULL'), ('seq', '7')) v(c, v);
SELECT outcome(format('INSERT INTO outbox (seq, event_type, payload) OVERRIDING %s VALUE VALUES (%s, ''e'', ''{}'')', o, s))
FROM (VALUES ('SYSTEM', 0), ('SYSTEM', -1), ('SYSTEM', 9223372036854775807), ('USER', 0)) v(o, s);
COPY outbox (seq, event_type, payload) FROM stdin;
0	e	{}
\.
-- arguments of functions have names: a NULL there is a mistake
SELECT outcome($$SELECT outbox_enqueue('e', '{}', route => NULL)$$);

-- A restore brings what there was
BEGIN;
SET LOCAL check_function_bodies = off;
SELECT set_config('search_path', '', true) = '';
INSERT INTO public.outbox (event_type, payload, origin) VALUES ('restored', '{}', 0) RETURNING origin;
ROLLBACK;

-- Half of a key: said once in a session, whichever way it comes
\c -
SET client_min_messages = error;
SELECT outbox_enqueue('whole', '{}', 'order', '1') IS NOT NULL;	-- says where the library is not preloaded
SET client_min_messages = warning;
SELECT outbox_enqueue('half', '{}', aggregate_type => 'order') IS NOT NULL;
SELECT outbox_enqueue('half', '{}', aggregate_type => 'order') IS NOT NULL;
INSERT INTO outbox (event_type, payload, aggregate_type) VALUES ('half', '{}', 'order');
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SELECT outbox_enqueue('whole', '{}') IS NOT NULL;
SET client_min_messages = warning;
INSERT INTO outbox_new (event_type, payload, aggregate_type) VALUES ('half', '{}', 'order');
INSERT INTO outbox (event_type, payload, aggregate_type) VALUES ('half', '{}', 'order');
\c -
SET client_min_messages = error;
SELECT outbox_enqueue_bytes('whole', '') IS NOT NULL;
SET client_min_messages = warning;
COPY outbox (event_type, payload, aggregate_type) FROM stdin;
half	{}	order
half	{}	order
\.
UPDATE outbox SET aggregate_type = 'order' WHERE event_type = 'whole';
\set VERBOSITY default

SET client_min_messages = error;
TRUNCATE outbox;
DELETE FROM outbox_route WHERE name <> 'default';
