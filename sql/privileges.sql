-- Who may do what.  Nothing is granted to PUBLIC; see install.sql.
SET client_min_messages = error;
CREATE ROLE regress_outbox_app;
CREATE ROLE regress_outbox_billing;
CREATE ROLE regress_outbox_orm;
CREATE ROLE regress_outbox_monitor;
CREATE ROLE regress_outbox_operator;
CREATE ROLE regress_outbox_member IN ROLE regress_outbox_billing;
GRANT USAGE ON SCHEMA outbox_regress TO PUBLIC;
SET search_path = public, outbox_regress;
\pset format unaligned
\pset tuples_only on

-- A role without grants
SET ROLE regress_outbox_app;
SELECT outcome(statement) FROM unnest(ARRAY[
	$$SELECT outbox_enqueue('e', '{}')$$, $$SELECT outbox_enqueue_bytes('e', '')$$,
	$$SELECT outbox_enqueue_text('e', '{}')$$,
	$$SELECT outbox_enqueue_batch('[]')$$, 'SELECT outbox_internal.outbox_batch_element(0)',
	$$INSERT INTO outbox (event_type, payload) VALUES ('e', '{}')$$,
	'SELECT * FROM outbox', 'SELECT * FROM outbox_archive', 'SELECT * FROM outbox_route',
	'SELECT * FROM outbox_control', 'SELECT * FROM outbox_messages',
	'SELECT * FROM outbox_failed', 'SELECT * FROM outbox_status',
	'SELECT * FROM outbox_workers', 'SELECT outbox_pause()', 'SELECT outbox_resume()',
	'SELECT outbox_internal.outbox_set_paused(NULL, false, NULL)', 'SELECT outbox_requeue(NULL)',
	'SELECT outbox_requeue_failed()', 'SELECT outbox_discard(NULL)',
	'SELECT outbox_worker_restart()', 'SELECT outbox_internal.outbox_archive_maintain(''1 day'')',
	'SELECT outbox_internal.outbox_claims()', 'SELECT outbox_internal.outbox_relay_state()', 'SELECT outbox_internal.outbox_worker_stats()',
	'SELECT outbox_internal.outbox_key_hash(''r'', NULL, ''x'')', 'SELECT outbox_version()', 'SELECT * FROM outbox_versions', 'SELECT outbox_internal.outbox_library_versions()',
	'SELECT nextval(''outbox_seq_seq'')', 'SELECT outbox_uuid7()']) statement;
RESET ROLE;

-- EXECUTE on outbox_enqueue: it can enqueue, and nothing else
GRANT EXECUTE ON FUNCTION outbox_enqueue TO regress_outbox_app, regress_outbox_billing;
SET ROLE regress_outbox_app;
SELECT length(outbox_enqueue('app', '{}', aggregate_id => '1', headers => '{"a": 1}',
	properties => '{"priority": 1}', available_at => '2100-01-01')::text);
SELECT outcome(statement) FROM unnest(ARRAY[
	$$SELECT outbox_enqueue('e', '{}', route => 'nowhere')$$,
	$$SELECT outbox_enqueue_bytes('e', '')$$, $$SELECT outbox_enqueue_text('e', '{}')$$,
	$$INSERT INTO outbox (event_type, payload) VALUES ('e', '{}')$$,
	'SELECT * FROM outbox', 'SELECT * FROM outbox_route', 'DELETE FROM outbox',
	'SELECT currval(''outbox_seq_seq'')']) statement;
-- errors come without a look at the tables, and leave the role as it was
SELECT outcome($$SELECT outbox_enqueue('', '{}')$$);
SELECT current_user;
DO $$
BEGIN
	PERFORM outbox_enqueue('', '{}');
EXCEPTION WHEN invalid_parameter_value THEN
	PERFORM set_config('regress.who', current_user::text, false);
END
$$;
SELECT current_user, current_setting('regress.who');
RESET ROLE;
SELECT event_type FROM outbox;

-- What the caller brings along is not run as the owner of the table
CREATE FUNCTION whoami() RETURNS jsonb LANGUAGE sql VOLATILE AS 'SELECT to_jsonb(current_user)';
SET ROLE regress_outbox_app;
SELECT outbox_enqueue('who', whoami()) IS NOT NULL;
RESET ROLE;
SELECT payload FROM outbox WHERE event_type = 'who';

-- and neither are operators that its search_path leads to
CREATE SCHEMA regress_trojan AUTHORIZATION regress_outbox_app;
SET ROLE regress_outbox_app;
CREATE TABLE regress_trojan.called (who text);
CREATE FUNCTION regress_trojan.eq(text, text) RETURNS boolean LANGUAGE plpgsql
	SET search_path = pg_catalog AS $$
BEGIN
	INSERT INTO regress_trojan.called VALUES (current_user);
	RETURN $1 = $2;
END
$$;
CREATE OPERATOR regress_trojan.= (LEFTARG = text, RIGHTARG = text, FUNCTION = regress_trojan.eq);
RESET ROLE;
UPDATE outbox_route SET max_attempts = max_attempts;
SET ROLE regress_outbox_app;
SET search_path = regress_trojan, pg_catalog, public, outbox_regress;
SELECT outbox_enqueue('trojan', '{}') IS NOT NULL;
SET search_path = public, outbox_regress;
SELECT who FROM regress_trojan.called;
RESET ROLE;
DROP SCHEMA regress_trojan CASCADE;

-- Routes can be kept to some roles and their members
CREATE ROLE regress_outbox_none;
INSERT INTO outbox_route (name, enqueue_roles) VALUES
	('billing', '{regress_outbox_billing}'), ('nobody', '{}'),
	('gone', '{regress_outbox_none, regress_outbox_app}');
DROP ROLE regress_outbox_none;
SELECT outbox_pause('gone'), outbox_resume('gone');
-- unknown names are mistakes, but in a restore
INSERT INTO outbox_route (name, enqueue_roles) VALUES ('e', '{regress_outbox_none}');
INSERT INTO outbox_route (name, enqueue_roles) VALUES ('e', '{NULL}');
UPDATE outbox_route SET enqueue_roles = enqueue_roles || '{regress_outbox_too}' WHERE name = 'gone';
BEGIN;
SET LOCAL check_function_bodies = off;
SELECT set_config('search_path', '', true);
SET LOCAL client_min_messages = warning;
INSERT INTO public.outbox_route (name, enqueue_roles) VALUES ('e', '{regress_outbox_none}');
ROLLBACK;
-- nor does a function that lends its owner's rights restore for its caller
CREATE FUNCTION outbox_regress.lent() RETURNS void LANGUAGE sql SECURITY DEFINER
	AS $$ INSERT INTO public.outbox (route, event_type, payload, headers) VALUES ('unknown', '', '{}', '[]') $$;
BEGIN;
SET LOCAL check_function_bodies = off;
SELECT set_config('search_path', '', true);
SET LOCAL ROLE regress_outbox_app;
SELECT outbox_regress.lent();
ROLLBACK;
DROP FUNCTION outbox_regress.lent();
CREATE VIEW routes AS
	SELECT r AS route, outbox_regress.outcome(format('SELECT outbox_enqueue(''e'', ''{}'', route => %L)', r))
	FROM unnest(ARRAY['billing', 'nobody', 'gone', 'default']) r;
GRANT SELECT ON routes TO PUBLIC;
SET ROLE regress_outbox_app;
TABLE routes;
SET ROLE regress_outbox_billing;
TABLE routes;
SET ROLE regress_outbox_member;
TABLE routes;
-- a member that does not inherit has those rights only after SET ROLE
RESET ROLE;
CREATE ROLE regress_outbox_distant NOINHERIT IN ROLE regress_outbox_billing;
GRANT EXECUTE ON FUNCTION outbox_enqueue TO regress_outbox_distant;
SET SESSION AUTHORIZATION regress_outbox_distant;
TABLE routes;
SET ROLE regress_outbox_billing;
TABLE routes;
RESET SESSION AUTHORIZATION;
REVOKE EXECUTE ON FUNCTION outbox_enqueue FROM regress_outbox_distant;
DROP ROLE regress_outbox_distant;
TABLE routes;
-- and the list can change
UPDATE outbox_route SET enqueue_roles = NULL WHERE name = 'nobody';
UPDATE outbox_route SET enqueue_roles = '{}' WHERE name = 'billing';
SET ROLE regress_outbox_billing;
TABLE routes;
RESET ROLE;

-- Whose right counts is the current user's: SET ROLE, SET SESSION AUTHORIZATION,
-- and the owner of a SECURITY DEFINER function
UPDATE outbox_route SET enqueue_roles = '{regress_outbox_billing}' WHERE name = 'billing';
CREATE FUNCTION bill() RETURNS text LANGUAGE sql SECURITY DEFINER
	SET search_path = public, outbox_regress, pg_temp
	AS $$SELECT outcome('SELECT outbox_enqueue(''e'', ''{}'', route => ''billing'')')$$;
ALTER FUNCTION bill() OWNER TO regress_outbox_billing;
SET SESSION AUTHORIZATION regress_outbox_app;
SELECT outcome('SELECT outbox_enqueue(''e'', ''{}'', route => ''billing'')'), bill();
SET SESSION AUTHORIZATION regress_outbox_billing;
SELECT outcome('SELECT outbox_enqueue(''e'', ''{}'', route => ''billing'')'), bill();
RESET SESSION AUTHORIZATION;
DROP FUNCTION bill();
UPDATE outbox_route SET enqueue_roles = '{}' WHERE name = 'billing';

-- INSERT and COPY without any other right; columns can be granted as well
GRANT INSERT ON outbox TO regress_outbox_orm;
SET ROLE regress_outbox_orm;
INSERT INTO outbox (event_type, payload) VALUES ('orm', '{}');
COPY outbox (event_type, payload) FROM stdin;
orm	{}
\.
SELECT outcome(statement) FROM unnest(ARRAY[
	$$INSERT INTO outbox (event_type, payload) VALUES ('', '{}')$$,
	$$INSERT INTO outbox (event_type, payload, route) VALUES ('e', '{}', 'gone')$$,
	$$INSERT INTO outbox (event_type, payload) VALUES ('e', '{}') RETURNING id$$,
	'SELECT count(*) FROM outbox', 'UPDATE outbox SET route = ''default''',
	'DELETE FROM outbox', 'TRUNCATE outbox', $$SELECT outbox_enqueue('e', '{}')$$]) statement;
RESET ROLE;
REVOKE INSERT ON outbox FROM regress_outbox_orm;
GRANT INSERT (event_type, payload), SELECT (id) ON outbox TO regress_outbox_orm;
SET ROLE regress_outbox_orm;
SELECT outcome(statement) FROM unnest(ARRAY[
	$$INSERT INTO outbox (event_type, payload) VALUES ('e', '{}') RETURNING id$$,
	$$INSERT INTO outbox (event_type, payload, status) VALUES ('e', '{}', 'failed')$$]) statement;
RESET ROLE;
SELECT count(*) FROM outbox WHERE event_type = 'orm';

-- Monitors read the views that tell no content
GRANT SELECT ON outbox_problems, outbox_status, outbox_routes_status, outbox_metrics, outbox_workers TO regress_outbox_monitor;
-- with the functions behind them
GRANT EXECUTE ON FUNCTION outbox_internal.outbox_relay_state, outbox_internal.outbox_worker_stats,
	outbox_internal.outbox_backlog, outbox_internal.outbox_route_stats, outbox_database_stats,
	outbox_internal.outbox_problem_list, outbox_internal.outbox_metric_list TO regress_outbox_monitor;
SET ROLE regress_outbox_monitor;
SELECT outcome(statement) FROM unnest(ARRAY['SELECT backlog, state, hint FROM outbox_status',
	'SELECT * FROM outbox_workers', 'SELECT * FROM outbox_routes_status', 'SELECT * FROM outbox_problems', 'SELECT * FROM outbox_metrics', 'SELECT * FROM outbox_messages', 'SELECT * FROM outbox']) statement;
RESET ROLE;

-- Operators need EXECUTE only
GRANT EXECUTE ON FUNCTION outbox_pause, outbox_resume, outbox_requeue,
	outbox_requeue_failed, outbox_discard, outbox_worker_restart TO regress_outbox_operator;
INSERT INTO outbox (event_type, payload, status) VALUES ('f', '{}', 'failed'), ('f', '{}', 'failed');
SELECT id FROM outbox WHERE status = 'failed' ORDER BY seq LIMIT 1 \gset
SET ROLE regress_outbox_operator;
SELECT outcome(statement) FROM unnest(ARRAY['SELECT outbox_pause(''billing'')',
	'SELECT outbox_resume()', 'SELECT outbox_pause()', 'SELECT outbox_worker_restart()',
	'SELECT outbox_internal.outbox_set_paused(NULL, true, NULL)', 'SELECT * FROM outbox_failed',
	$$SELECT outbox_enqueue('e', '{}')$$]) statement;
SELECT outbox_requeue(:'id'), outbox_discard(:'id'), outbox_requeue_failed();
RESET ROLE;

-- A function in a query of a view sees the rows that the view shows, and no others
BEGIN;
CREATE FUNCTION pg_temp.leak(v anyelement) RETURNS boolean LANGUAGE plpgsql STABLE COST 0.0000001 AS $$
BEGIN
	RAISE WARNING 'sees %', v;
	RETURN true;
END
$$;
GRANT SELECT ON outbox_failed, outbox_held_keys TO pg_monitor;
DELETE FROM outbox;
INSERT INTO outbox (event_type, payload, aggregate_id, status, attempts, available_at) VALUES
	('e', '"a"', 'failed', 'failed', 1, NULL), ('e', '"b"', 'held', 'pending', 1, '2100-01-01'), ('e', '"c"', 'ready', 'pending', 0, NULL);
INSERT INTO outbox_job (kind, state, arguments, created_by, total) VALUES ('replay', 'waiting', '{}', 'r', 1), ('replay', 'done', '{}', 'r', 2);
SET LOCAL enable_indexscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL client_min_messages = warning;
SET LOCAL ROLE pg_monitor;
SELECT aggregate_id FROM outbox_failed WHERE pg_temp.leak(payload);
SELECT aggregate_id FROM outbox_held_keys WHERE pg_temp.leak(aggregate_id);
SELECT total FROM outbox_progress WHERE pg_temp.leak(total);
RESET ROLE;
-- which costs no sort where the table has an index
SET LOCAL enable_indexscan = on;
EXPLAIN (COSTS OFF) SELECT * FROM outbox_failed ORDER BY seq LIMIT 1;
ROLLBACK;

-- Settings belong to superusers; credentials are not for everybody to read
SET ROLE regress_outbox_app;
SELECT outcome(statement) FROM unnest(ARRAY['SET outbox.enabled = off',
	'SET outbox.strict_keys = on', 'SET outbox.broker_uri = ''amqp://h''',
	'SET outbox.max_message_size = 2048', 'SHOW outbox.retention']) statement;
SELECT statement, left(outcome(statement), 5) FROM unnest(ARRAY['SHOW outbox.broker_uri',
	'SHOW outbox.passfile', 'SHOW outbox.tls_key_file']) statement;
RESET ROLE;

TRUNCATE outbox;
DELETE FROM outbox_route WHERE name <> 'default';
DROP VIEW routes;
DROP FUNCTION whoami();
DROP OWNED BY regress_outbox_app, regress_outbox_billing, regress_outbox_orm,
	regress_outbox_monitor, regress_outbox_operator, regress_outbox_member;
DROP ROLE regress_outbox_app, regress_outbox_billing, regress_outbox_orm,
	regress_outbox_monitor, regress_outbox_operator, regress_outbox_member;
