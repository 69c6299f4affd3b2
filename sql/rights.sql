-- Whose right counts in each public function: doc/security.md has a table of it, which
-- test/tools/doc-check compares with this list.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
\pset format unaligned
\pset tuples_only on
BEGIN;
-- One who may execute all of them, and is in no list of roles.
CREATE ROLE regress_outbox_executor;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO regress_outbox_executor;
GRANT EXECUTE ON FUNCTION outbox_internal.outbox_reason_hint(text, boolean, text, text) TO regress_outbox_executor;
INSERT INTO outbox_route (name, relay) VALUES ('closed', 'internal'), ('leased', 'external');
INSERT INTO outbox (id, route, event_type, payload) VALUES
	('00000000-0000-7000-8000-000000000001', 'closed', 'e', '{}'), ('00000000-0000-7000-8000-000000000002', 'leased', 'e', '{}');
INSERT INTO outbox_internal.outbox_lease (token, route, claimed_by, expires_at, ids, keys)
	VALUES (1, 'leased', current_user, 'infinity', '{00000000-0000-7000-8000-000000000002}', '{0}');
UPDATE outbox_route SET enqueue_roles = '{}', relay_roles = '{}' WHERE name IN ('closed', 'leased');
CREATE TABLE captured (id integer PRIMARY KEY);
ALTER TABLE captured OWNER TO regress_outbox_executor;

CREATE TABLE calls (name text, call text);
INSERT INTO calls VALUES
	('outbox_enqueue', $$outbox_enqueue('e', '{}', route => 'closed')$$),
	('outbox_enqueue_bytes', $$outbox_enqueue_bytes('e', '', route => 'closed')$$),
	('outbox_enqueue_text', $$outbox_enqueue_text('e', '{}', route => 'closed')$$),
	('outbox_enqueue_batch', $$FROM outbox_enqueue_batch('[{"event_type": "e", "payload": {}, "route": "closed"}]')$$),
	('outbox_enqueue_once', $$outbox_enqueue_once('k', 'e', '{}', route => 'closed')$$),
	('outbox_capture', NULL),
	('outbox_claim', $$FROM outbox_claim('leased')$$), ('outbox_ack', 'outbox_ack(1)'),
	('outbox_nack', $$outbox_nack(1, '00000000-0000-7000-8000-000000000002', 'no')$$),
	('outbox_extend', 'outbox_extend(1)'), ('outbox_release', 'outbox_release(1)'),
	('outbox_edit', $$outbox_edit('00000000-0000-7000-8000-000000000001', payload => '2')$$),
	('outbox_requeue', $$outbox_requeue('00000000-0000-7000-8000-000000000001')$$),
	('outbox_requeue_ids', $$outbox_requeue_ids('{00000000-0000-7000-8000-000000000001}')$$),
	('outbox_requeue_failed', $$outbox_requeue_failed('closed')$$),
	('outbox_discard', $$outbox_discard('00000000-0000-7000-8000-000000000001')$$),
	('outbox_discard_messages', $$outbox_discard_messages('r', route => 'closed', max_messages => 1)$$),
	('outbox_erase', $$FROM outbox_erase('t', '1')$$), ('outbox_pause', $$outbox_pause('closed')$$),
	('outbox_resume', $$outbox_resume('closed')$$), ('outbox_replay', $$outbox_replay('-infinity', route => 'closed')$$),
	('outbox_job_cancel', 'outbox_job_cancel(0)'), ('outbox_job_retry', 'outbox_job_retry(0)'),
	('outbox_adopt', 'outbox_adopt()'), ('outbox_worker_restart', 'outbox_worker_restart()'),
	('outbox_preflight', $$FROM outbox_preflight('closed')$$), ('outbox_top', 'FROM outbox_top()'),
	('outbox_locked_rows', 'FROM outbox_locked_rows()'), ('outbox_table_lockers', 'FROM outbox_table_lockers()'),
	('outbox_database_stats', 'FROM outbox_database_stats()'), ('outbox_quantile', $$outbox_quantile(0.5, '{1}', '{1}')$$),
	('outbox_reason_hint', $$FROM outbox_reason_hint('not reached')$$), ('outbox_uuid7', 'outbox_uuid7()'),
	('outbox_version', 'outbox_version()'), ('outbox_wait', $$outbox_wait('00000000-0000-7000-8000-000000000001', '0')$$);
GRANT SELECT ON calls TO regress_outbox_executor;

-- The column of the route that refuses it, or the error that is none of rights.
CREATE FUNCTION pg_temp.asks(name text, call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
	state text;
	message text;
	hint text;
BEGIN
	IF name = 'outbox_capture' THEN
		CREATE TRIGGER c AFTER INSERT ON captured FOR EACH ROW EXECUTE FUNCTION outbox_capture('route=closed');
		INSERT INTO captured VALUES (1);
	ELSE
		EXECUTE 'SELECT ' || call INTO result;
	END IF;
	/* Whoever may not know of the message is told that there is none. */
	RETURN CASE WHEN name = 'outbox_wait' AND result = 'unknown' THEN 'enqueue_roles' ELSE '' END;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
	RETURN coalesce(substring(hint FROM '(\w+_roles) in outbox_route'), state || ' ' || message);
END
$$;
CREATE TABLE asked (name text, asks text);
GRANT INSERT ON asked TO regress_outbox_executor;
SET LOCAL ROLE regress_outbox_executor;
INSERT INTO asked SELECT name, pg_temp.asks(name, call) FROM calls;
RESET ROLE;

-- function, as whom it runs, to whom CREATE EXTENSION grants it, the route's column that it asks
SELECT p.proname, CASE WHEN f.prosecdef THEN 'owner' ELSE 'caller' END,
	(SELECT string_agg(CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE grantee::regrole::text END, ', ')
	 FROM aclexplode(p.proacl) WHERE grantee NOT IN (p.proowner, 'regress_outbox_executor'::regrole)),
	coalesce(a.asks, 'not called')
FROM functions f JOIN pg_proc p ON p.oid = f.oid LEFT JOIN asked a ON a.name = p.proname
WHERE f.schema = 'public'::regnamespace ORDER BY p.proname COLLATE "C";
-- each public function is called above, and has one line here
SELECT p.proname AS not_called FROM functions f JOIN pg_proc p ON p.oid = f.oid
WHERE f.schema = 'public'::regnamespace AND p.proname NOT IN (SELECT name FROM calls);
ROLLBACK;
