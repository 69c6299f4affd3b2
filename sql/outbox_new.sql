-- outbox_new: an insert-only view for mappers (ORMs).
SET client_min_messages = error;
SET search_path = public, outbox_regress;
\pset format unaligned
\pset tuples_only on
CREATE ROLE regress_outbox_orm;
CREATE ROLE regress_outbox_wide;
GRANT USAGE ON SCHEMA outbox_regress TO PUBLIC;
TRUNCATE outbox;

-- Without a grant it is nobody's
SET ROLE regress_outbox_orm;
SELECT outcome(statement) FROM unnest(ARRAY['SELECT * FROM outbox_new',
	$$INSERT INTO outbox_new (event_type, payload) VALUES ('e', '{}')$$]) statement;
RESET ROLE;

-- One grant: INSERT, and RETURNING what was not given
GRANT INSERT, SELECT ON outbox_new TO regress_outbox_orm;
INSERT INTO outbox (event_type, payload) VALUES ('secret', '{"iban": 1}');
SELECT id FROM outbox \gset secret_
SET ROLE regress_outbox_orm;
PREPARE untyped AS INSERT INTO outbox_new (id, event_type, aggregate_type, aggregate_id, payload, available_at)
	VALUES ($1, $2, $3, $4, $5, $6) RETURNING id, route, aggregate_id;
INSERT INTO outbox_new (event_type, payload) VALUES ('returning', '{}')
	RETURNING length(id::text), route, created_at BETWEEN now() AND clock_timestamp(), available_at IS NULL;
INSERT INTO outbox_new (id, event_type, payload) VALUES ('01890a5d-ac96-774b-bcce-b302099a8057', 'set id', '{}')
	RETURNING *, '' AS created_at \gset given_
SELECT :'given_id', :'given_event_type', :'given_payload';
EXECUTE untyped ('01890a5d-ac96-774b-bcce-b302099a8058', 'untyped', 'order', '7', '{"a": 1.0}', '2000-01-01');
INSERT INTO outbox_new DEFAULT VALUES;

-- Types that drivers bind are assigned without a cast: integers and uuid as a key, json
INSERT INTO outbox_new (event_type, aggregate_type, aggregate_id, payload, headers, properties)
	VALUES ('int', 'order', 7::int, '{}'::json, '{"h": 1}'::json, '{"priority": 1}'::json),
		('bigint', 'order', 7::bigint, 'null'::json, NULL, NULL),
		('smallint', 'order', 7::smallint, '[]', NULL, NULL) RETURNING aggregate_id, payload, headers, properties;
INSERT INTO outbox_new (event_type, aggregate_type, aggregate_id, body)
	VALUES ('uuid', 'order', '01890a5d-ac96-774b-bcce-b302099a8057'::uuid, '\x00') RETURNING aggregate_id, body;
PREPARE typed (varchar, int, json) AS INSERT INTO outbox_new (event_type, aggregate_id, payload)
	VALUES ($1, $2, $3) RETURNING event_type, aggregate_id, payload;
EXECUTE typed ('typed', 8, '{}');
-- text is no JSON without a cast
PREPARE texts (text) AS INSERT INTO outbox_new (event_type, payload) VALUES ('e', $1);
PREPARE texts (text) AS INSERT INTO outbox_new (event_type, payload) VALUES ('e', $1::jsonb);
EXECUTE texts ('{}');

-- A second one with the same id: an error, or nothing
SELECT outcome(statement) FROM unnest(ARRAY[
	$$INSERT INTO outbox_new (id, event_type, payload) VALUES ('01890a5d-ac96-774b-bcce-b302099a8057', 'twice', '{}')$$,
	$$INSERT INTO outbox_new (id, event_type, payload) VALUES ('01890a5d-ac96-774b-bcce-b302099a8057', 'twice', '{}')
		ON CONFLICT (id) DO UPDATE SET payload = '{"changed": true}' RETURNING payload$$]) statement;
INSERT INTO outbox_new (id, event_type, payload) VALUES ('01890a5d-ac96-774b-bcce-b302099a8057', 'twice', '{}')
	ON CONFLICT (id) DO NOTHING RETURNING id;
INSERT INTO outbox_new (id, event_type, payload) VALUES ('01890a5d-ac96-774b-bcce-b302099a8059', 'once', '{}')
	ON CONFLICT DO NOTHING RETURNING id;

-- The checks of every message
SELECT outcome(statement) FROM unnest(ARRAY[
	$$INSERT INTO outbox_new (event_type, payload) VALUES ('', '{}')$$,
	$$INSERT INTO outbox_new (event_type, payload, route) VALUES ('e', '{}', 'gone')$$,
	$$INSERT INTO outbox_new (event_type, payload, headers) VALUES ('e', '{}', '[]')$$,
	$$INSERT INTO outbox_new (event_type, payload, body) VALUES ('e', '{}', '')$$]) statement;

-- What it has no column for stays the table's business
SELECT outcome(format('INSERT INTO outbox_new (event_type, payload, %s) VALUES (''e'', ''{}'', DEFAULT)', c))
FROM unnest(ARRAY['seq', 'attempts', 'status', 'origin', 'last_error']) c;

-- It shows no rows, whatever asks: no expression sees a message of somebody else's
CREATE FUNCTION pg_temp.leak(v anyelement) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$
BEGIN
	RAISE EXCEPTION 'leaked %', v;
END
$$;
SELECT count(*) FROM outbox_new;
SELECT count(*) FROM outbox_new WHERE pg_temp.leak(payload);
SELECT count(*) FROM outbox_new n RIGHT JOIN (VALUES (1)) v(i) ON pg_temp.leak(n.id);
INSERT INTO outbox_new (event_type, payload) VALUES ('mine', '{}')
	RETURNING event_type, (SELECT count(*) FROM outbox_new), (SELECT max(n.event_type) FROM outbox_new n);
SELECT outcome(statement) FROM unnest(ARRAY['UPDATE outbox_new SET payload = ''1''',
	'DELETE FROM outbox_new', 'TRUNCATE outbox_new', 'SELECT * FROM outbox', 'SELECT id FROM outbox',
	'SELECT * FROM outbox_new FOR UPDATE',
	$$SELECT outbox_enqueue('e', '{}')$$, 'SELECT nextval(''outbox_seq_seq'')',
	'CREATE RULE r AS ON INSERT TO outbox_new DO ALSO SELECT 1']) statement;
-- COPY goes to a table
COPY outbox_new (event_type, payload) FROM stdin;
e	{}
\.
RESET ROLE;
-- UPDATE and DELETE are refused to who may, before they look for rows: a mapper's second save
GRANT ALL ON outbox_new TO regress_outbox_wide;
SET ROLE regress_outbox_wide;
UPDATE outbox_new SET payload = '1' WHERE id = :'given_id';
SELECT outcome(statement) FROM unnest(ARRAY['DELETE FROM outbox_new',
	'UPDATE outbox_new SET payload = ''1'' WHERE pg_temp.leak(payload) RETURNING id',
	'WITH d AS (DELETE FROM outbox_new WHERE pg_temp.leak(payload) RETURNING 1) SELECT count(*) FROM d']) statement;
-- while INSERT remains an INSERT into the table
SELECT is_insertable_into, is_trigger_updatable, is_trigger_insertable_into
FROM information_schema.views WHERE table_name = 'outbox_new';
EXPLAIN (COSTS OFF) INSERT INTO outbox_new (event_type, payload) VALUES ('e', '{}') ON CONFLICT (id) DO NOTHING;
RESET ROLE;
SELECT event_type, route, aggregate_type, aggregate_id, payload, body, headers, status, attempts,
	origin = outbox_internal.outbox_origin() AS ours FROM outbox ORDER BY seq;

-- Rights on routes are those of who INSERTs, not of the view's owner
INSERT INTO outbox_route (name, enqueue_roles) VALUES ('closed', '{}'), ('open', '{regress_outbox_orm}');
SET ROLE regress_outbox_orm;
SELECT r, outcome(format('INSERT INTO outbox_new (event_type, payload, route) VALUES (''e'', ''{}'', %L)', r))
FROM unnest(ARRAY['closed', 'open']) r;
RESET ROLE;

-- Of the table, columns can be granted for the same; then ids can be read, and nothing else
GRANT INSERT (id, route, event_type, aggregate_type, aggregate_id, payload, body, headers, properties,
	routing_key, created_at, available_at), SELECT (id, route, created_at) ON outbox TO regress_outbox_orm;
SET ROLE regress_outbox_orm;
INSERT INTO outbox (id, event_type, payload) VALUES ('01890a5d-ac96-774b-bcce-b302099a805a', 'table', '{}')
	RETURNING id, route, created_at BETWEEN now() AND clock_timestamp();
INSERT INTO outbox (id, event_type, payload) VALUES ('01890a5d-ac96-774b-bcce-b302099a805a', 'table', '{}')
	ON CONFLICT (id) DO NOTHING RETURNING id;
SELECT outcome(statement) FROM unnest(ARRAY['SELECT payload FROM outbox', 'SELECT count(*) > 1 FROM outbox',
	$$INSERT INTO outbox (event_type, payload) VALUES ('e', '{}') RETURNING payload$$,
	$$INSERT INTO outbox (event_type, payload) VALUES ('e', '{}') RETURNING *$$]) statement;
RESET ROLE;

-- Strict keys, and objects of the caller's in its search_path
SET outbox.strict_keys = on;
SET ROLE regress_outbox_orm;
CREATE TEMP TABLE outbox (event_type text, payload jsonb);
CREATE TEMP TABLE outbox_route (name text);
SET search_path = pg_temp, outbox_regress, public;
BEGIN;
INSERT INTO outbox_new (event_type, payload, aggregate_id) VALUES ('strict', '{}', 1) RETURNING event_type;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 3 AND pid = pg_backend_pid();
COMMIT;
SELECT outcome($$INSERT INTO outbox_new (event_type, payload, route) VALUES ('e', '{}', 'closed')$$);
RESET ROLE;
RESET outbox.strict_keys;
SELECT count(*) FROM pg_temp.outbox;
DROP TABLE pg_temp.outbox, pg_temp.outbox_route;
SELECT count(*) FROM public.outbox WHERE event_type = 'strict';

-- Who may enqueue by it only is among those whom preflight names
SET search_path = public, outbox_regress;
REVOKE ALL ON outbox FROM regress_outbox_orm;
REVOKE ALL ON outbox_new FROM regress_outbox_wide;
SELECT detail FROM outbox_internal.outbox_preflight_database() WHERE "check" = 'grants';

TRUNCATE outbox;
DELETE FROM outbox_route WHERE name <> 'default';
DROP OWNED BY regress_outbox_orm, regress_outbox_wide;
DROP ROLE regress_outbox_orm, regress_outbox_wide;
