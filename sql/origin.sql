-- Where a message was enqueued, and who may store messages of other databases.
SET client_min_messages = error;
CREATE ROLE regress_outbox_app;
CREATE ROLE regress_outbox_orm;
CREATE ROLE regress_outbox_restore;
GRANT USAGE ON SCHEMA outbox_regress TO PUBLIC;
SET search_path = public, outbox_regress;
\pset format unaligned
\pset tuples_only on

-- One number for a database, the same in every session, also as a default
SELECT outbox_internal.outbox_origin() = outbox_internal.outbox_origin(), outbox_internal.outbox_origin() <> 0;
SELECT outbox_internal.outbox_origin() AS origin \gset
\c -
SET search_path = public, outbox_regress;
SET client_min_messages = error;
SELECT outbox_internal.outbox_origin() = :origin;
GRANT EXECUTE ON FUNCTION outbox_enqueue, outbox_enqueue_bytes TO regress_outbox_app;
GRANT INSERT, UPDATE, SELECT ON outbox TO regress_outbox_orm;
SET ROLE regress_outbox_app;
SELECT outbox_enqueue('function', '{}') IS NOT NULL, outbox_enqueue_bytes('bytes', '') IS NOT NULL;
RESET ROLE;
SET ROLE regress_outbox_orm;
INSERT INTO outbox (event_type, payload) VALUES ('insert', '{}');
COPY outbox (event_type, payload) FROM stdin;
copy	{}
\.
-- the number itself may be given, another may not, nor be put in later
INSERT INTO outbox (event_type, payload, origin) VALUES ('given', '{}', :origin);
SELECT outcome($$INSERT INTO outbox (event_type, payload, origin) VALUES ('e', '{}', 1)$$);
SELECT outcome($$INSERT INTO outbox (event_type, payload, origin) VALUES ('e', '{}', NULL)$$);
SELECT outcome('UPDATE outbox SET origin = origin + 1');
SELECT outcome('UPDATE outbox SET attempts = 1');
RESET ROLE;
SELECT event_type, origin = outbox_internal.outbox_origin() FROM outbox ORDER BY seq;
TRUNCATE outbox;

-- Not even by the owner: the relay would fall silent as that of a copy
INSERT INTO outbox (event_type, payload, origin) VALUES ('e', '{}', 1);

-- What a restore brings is taken as it is: route and limits are the original's.
-- pg_dump and pg_restore set both of these.
SET outbox.max_message_size = '1kB';
SET check_function_bodies = off;
SELECT set_config('search_path', '', false);
INSERT INTO public.outbox (event_type, payload, origin, route) VALUES ('restored', '{}', 1, 'not yet');
INSERT INTO public.outbox (event_type, body, origin) VALUES ('large', repeat('x', 2000)::bytea, 2);
INSERT INTO public.outbox (event_type, payload, origin, route, status) VALUES ('failed', '{}', 1, 'not yet', 'failed');
COPY public.outbox (seq, event_type, payload, route, origin) FROM stdin;
1000000	copied	{}	not yet	1
\.
-- of this database as well, as tables are loaded in any order; the dump may be older than what was published
INSERT INTO public.outbox (event_type, payload, route) VALUES ('own', '{}', 'not yet');
-- but not by those who may not restore
SET ROLE regress_outbox_orm;
INSERT INTO public.outbox (event_type, payload, origin) VALUES ('e', '{}', 1);
INSERT INTO public.outbox (event_type, payload, route) VALUES ('e', '{}', 'not yet');
RESET ROLE;
-- and no more than that
INSERT INTO public.outbox (seq, event_type, payload, origin) OVERRIDING SYSTEM VALUE VALUES (0, 'e', '{}', 1);
INSERT INTO public.outbox (event_type, payload, origin, created_at) VALUES ('e', '{}', 1, 'infinity');
RESET check_function_bodies;
SET search_path = public, outbox_regress;
SELECT outcome(statement) FROM unnest(ARRAY[
	$$INSERT INTO outbox (event_type, payload, route) VALUES ('e', '{}', 'not yet')$$,
	$$INSERT INTO outbox (event_type, body) VALUES ('e', repeat('x', 2000)::bytea)$$]) statement;
RESET outbox.max_message_size;
SELECT outbox_requeue(id) FROM outbox WHERE status = 'failed';
-- with the keys locked in order, too
SET outbox.strict_keys = on;
SET check_function_bodies = off;
SELECT set_config('search_path', '', false);
INSERT INTO public.outbox (event_type, payload, origin, route, aggregate_id) VALUES ('keyed', '{}', 1, 'not yet', 'k');
RESET outbox.strict_keys;
RESET check_function_bodies;
SET search_path = public, outbox_regress;
SELECT event_type, route, CASE WHEN origin BETWEEN 1 AND 9 THEN origin::text ELSE 'own: ' || (origin = outbox_internal.outbox_origin()) END AS origin, status FROM outbox ORDER BY event_type;
-- others do to these rows what they may, and no more
SET ROLE regress_outbox_orm;
SELECT outcome($$UPDATE outbox SET attempts = 1 WHERE event_type = 'large'$$);
SELECT outcome($$UPDATE outbox SET attempts = 1 WHERE event_type = 'restored'$$);
SELECT outcome('UPDATE outbox SET origin = 4711 WHERE event_type <> ''own''');
RESET ROLE;
-- owner of the table is also who has the privileges of its owner
SELECT relowner::regrole AS owner FROM pg_class WHERE oid = 'outbox'::regclass \gset
GRANT :owner TO regress_outbox_restore;
SET ROLE regress_outbox_restore;
SET check_function_bodies = off;
SELECT set_config('search_path', '', false);
INSERT INTO public.outbox (event_type, payload, origin, route) VALUES ('member', '{}', 3, 'not yet');
RESET ROLE;
RESET check_function_bodies;
SET search_path = public, outbox_regress;

-- ALTER DATABASE sets for every session what a restore sets, and makes none of them one
CREATE TABLE outbox_regress.captured (id integer PRIMARY KEY);
CREATE TRIGGER e AFTER INSERT ON outbox_regress.captured FOR EACH ROW EXECUTE FUNCTION outbox_capture();
SELECT format('ALTER DATABASE %I', current_database()) AS alter \gset
:alter SET check_function_bodies = off;
SELECT set_config('search_path', '', false);
:alter SET search_path FROM CURRENT;
\c -
SET client_min_messages = error;
INSERT INTO outbox_regress.captured VALUES (1);
SELECT event_type FROM public.outbox WHERE aggregate_type = 'captured';
INSERT INTO public.outbox (event_type, payload, route) VALUES ('e', '{}', 'not yet');
:alter RESET check_function_bodies;
:alter RESET search_path;
\c -
SET client_min_messages = error;
SET search_path = public, outbox_regress;
DROP TABLE captured;
DELETE FROM outbox WHERE aggregate_type = 'captured' OR event_type = 'own';

-- Adopted is what is there, once; what comes later from there is as well
BEGIN;
SELECT adopted_origins FROM outbox_control;
SELECT outbox_adopt(), outbox_adopt();
SELECT array(SELECT unnest(adopted_origins) ORDER BY 1) FROM outbox_control;
SET LOCAL check_function_bodies = off;
SELECT set_config('search_path', '', true);
INSERT INTO public.outbox (event_type, payload, origin) VALUES ('later', '{}', 2);
SELECT public.outbox_adopt();
INSERT INTO public.outbox (event_type, payload, origin) VALUES ('later', '{}', 4);
SET LOCAL search_path = public, outbox_regress;
SELECT outbox_adopt();
SELECT array(SELECT unnest(adopted_origins) ORDER BY 1) FROM outbox_control;
-- a restore brings its own list
UPDATE outbox_control SET adopted_origins = DEFAULT;
SET LOCAL check_function_bodies = off;
SELECT set_config('search_path', '', true);
INSERT INTO public.outbox_control (system_identifier, database_oid, adopted_origins) VALUES (1, 2, '{7}');
SET LOCAL search_path = public, outbox_regress;
SELECT adopted_origins FROM outbox_control;
ROLLBACK;
-- one of this database is that of a copy
BEGIN;
SET LOCAL check_function_bodies = off;
SELECT set_config('search_path', '', true);
INSERT INTO public.outbox_control (system_identifier, database_oid) SELECT system_identifier, database_oid FROM public.outbox_control;
SELECT database_oid FROM public.outbox_control;
ROLLBACK;
-- a server of another environment, and one that was set back, are adopted as well
BEGIN;
SELECT environment, timeline FROM outbox_control;
UPDATE outbox_control SET environment = 'another';
SELECT outbox_adopt(), outbox_adopt();
UPDATE outbox_control SET timeline = 7;
SELECT outbox_adopt(), outbox_adopt();
SELECT environment, timeline FROM outbox_control;
ROLLBACK;
-- the name is not stored where a copy has it, too
ALTER SYSTEM SET outbox.environment = 'x';
ALTER DATABASE contrib_regression SET outbox.environment = 'x';
SET outbox.environment = 'x';
-- what is enqueued from now on comes after what is there, also where that has the next number
BEGIN;
SELECT last_value + 1 AS next FROM outbox_seq_seq \gset
SET LOCAL check_function_bodies = off;
SELECT set_config('search_path', '', true);
INSERT INTO public.outbox (seq, event_type, payload, origin) OVERRIDING SYSTEM VALUE VALUES (:next, 'replicated', '{}', 9);
SELECT public.outbox_adopt();
SET LOCAL search_path = public, outbox_regress;
INSERT INTO outbox (event_type, payload) VALUES ('new', '{}');
SELECT event_type, seq - :next AS behind FROM outbox WHERE event_type IN ('replicated', 'new') ORDER BY 1;
ROLLBACK;
-- an adopted message goes along with its route, and with another route to that one's relay
BEGIN;
TRUNCATE outbox;
INSERT INTO outbox_route (name, relay) VALUES ('regress ext', 'external'), ('regress int', 'internal');
SET LOCAL check_function_bodies = off;
SELECT set_config('search_path', '', true);
INSERT INTO public.outbox (event_type, payload, origin, route, outlet) VALUES ('a', '{}', 9, 'regress ext', 'external');
SELECT public.outbox_adopt();
RESET check_function_bodies;
SET LOCAL search_path = public, outbox_regress;
UPDATE outbox_route SET relay = 'internal' WHERE name = 'regress ext';
SELECT route, outlet IS NULL FROM outbox;
UPDATE outbox_route SET relay = 'external' WHERE name = 'regress ext';
SELECT route, outlet FROM outbox;
SELECT seq AS before FROM outbox \gset
UPDATE outbox SET route = 'regress int';
SELECT route, outlet IS NULL, seq > :before FROM outbox;
ROLLBACK;
-- with nothing to adopt it still says when, by which a worker sees that it was called
BEGIN;
SELECT adopted_at AS before FROM outbox_control \gset
TRUNCATE outbox;
SELECT outbox_adopt();
SELECT adopted_at = now(), adopted_at > :'before' FROM outbox_control;
ROLLBACK;

TRUNCATE outbox;
DROP OWNED BY regress_outbox_app, regress_outbox_orm;
REVOKE :owner FROM regress_outbox_restore;
DROP ROLE regress_outbox_app, regress_outbox_orm, regress_outbox_restore;
