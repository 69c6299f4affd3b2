-- Repairs: by ids, edit, discard by filter, erasure; each remembered.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
SET bytea_output = hex;
\set SHOW_CONTEXT never
CREATE ROLE regress_outbox_app;
CREATE ROLE regress_outbox_operator;
GRANT EXECUTE ON FUNCTION outbox_enqueue TO regress_outbox_app;
GRANT EXECUTE ON FUNCTION outbox_requeue, outbox_requeue_ids, outbox_requeue_failed, outbox_edit,
	outbox_discard, outbox_discard_messages, outbox_erase, outbox_pause, outbox_resume,
	outbox_adopt, outbox_worker_restart TO regress_outbox_operator;
INSERT INTO outbox_route (name, routing_key, enqueue_roles) VALUES
	('own', '{event_type}', NULL), ('long', '{event_type}.{aggregate_id}', NULL), ('kept', 'k', '{}');
DELETE FROM outbox_history;
CREATE FUNCTION remembered() RETURNS TABLE (action text, subject text, messages bigint, reason text, detail jsonb)
LANGUAGE sql AS $$
	WITH taken AS (DELETE FROM outbox_history h RETURNING h.*)
	SELECT t.action, regexp_replace(t.subject, '[0-9a-f-]{36}', 'ID'), t.messages, t.reason, t.detail
	FROM taken t ORDER BY t.id
$$;
CREATE PROCEDURE outbox_regress.fill()
LANGUAGE sql AS $$
	TRUNCATE outbox;
	INSERT INTO outbox (id, event_type, payload, aggregate_type, aggregate_id, status,
		attempts, last_error, created_at)
	SELECT format('00000000-0000-7000-8000-%s', lpad(i::text, 12, '0'))::uuid,
		CASE WHEN i <= 3 THEN 'a' ELSE 'b' END, to_jsonb(i), 'order', (i % 2)::text,
		CASE WHEN i <= 6 THEN 'failed' ELSE 'pending' END, 10,
		CASE WHEN i % 3 = 0 THEN 'returned: 312 NO_ROUTE' ELSE 'nacked' END,
		timestamptz '2024-01-01' + i * interval '1 day'
	FROM generate_series(1, 8) i;
$$;
CREATE FUNCTION outbox_regress.msg(i integer) RETURNS uuid
LANGUAGE sql AS $$ SELECT format('00000000-0000-7000-8000-%s', lpad(i::text, 12, '0'))::uuid $$;

-- Requeue, by an operator who has EXECUTE only
CALL fill();
SELECT msg(1) AS m1, msg(2) AS m2, ARRAY[msg(2), msg(3), msg(3), msg(7), msg(99), NULL] AS some \gset
SET ROLE regress_outbox_operator;
SELECT outbox_requeue(:'m1'), outbox_requeue(:'m1');
SELECT outbox_requeue_ids(:'some'), outbox_requeue_ids(:'some'), outbox_requeue_ids('{}');
SELECT outbox_requeue_failed(event_type => 'b', max_messages => 2), outbox_requeue_failed(event_type => 'x');
SELECT outbox_requeue_failed(), outbox_requeue_failed();
SELECT outbox_requeue_ids(NULL);
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
SELECT payload, status, attempts FROM outbox ORDER BY seq;
SELECT * FROM remembered();

-- Edit: what is given replaces, what is named in clear goes, all else stays
CALL fill();
UPDATE outbox SET headers = '{"h": 1}', routing_key = 'was', properties = '{"priority": 1}' WHERE id = :'m1';
CREATE VIEW edited AS
	SELECT payload, body, headers, properties, routing_key, route, status, attempts, last_error
	FROM outbox WHERE id = outbox_regress.msg(1);
SET ROLE regress_outbox_operator;
SELECT outbox_edit(:'m1', '{"right": true}', reason => 'CHG-1');
RESET ROLE;
SELECT * FROM edited \gx
SELECT * FROM remembered();
SELECT outbox_edit(:'m1', headers => '{"h": 2}', properties => '{"priority": 2}', routing_key => 'now', route => 'own');
SELECT * FROM edited \gx
SELECT * FROM remembered();
SELECT outbox_edit(:'m1', body => '\x00ff', clear => '{headers,properties,routing_key}');
SELECT * FROM edited \gx
SELECT * FROM remembered();
SELECT outbox_edit(:'m1', body => '\x01');
SELECT outbox_edit(:'m1', '2', route => 'default');
SELECT * FROM remembered();
-- nothing is different
SELECT outbox_edit(:'m1'), outbox_edit(:'m1', '2'), outbox_edit(:'m1', clear => '{headers}');
SELECT * FROM remembered();
-- of what is large, size and hash
UPDATE outbox SET payload = to_jsonb(repeat('x', 1048576)) WHERE id = :'m1';
SELECT outbox_edit(:'m1', body => convert_to(repeat('y', 700001), 'UTF8'));
SELECT outbox_edit(:'m1', 'null');
SELECT detail FROM remembered();
-- a waiting message stays pending, and scheduled
UPDATE outbox SET available_at = '2100-01-01' WHERE id = msg(7);
SELECT outbox_edit(msg(7), '7.5');
SELECT payload, status, available_at = '2100-01-01' AS scheduled FROM outbox WHERE id = msg(7);
-- on another route it does, too, but a retry begins again there
UPDATE outbox SET attempts = 0 WHERE id = msg(7);
SELECT outbox_edit(msg(7), route => 'own');
SELECT attempts, available_at = '2100-01-01' AS scheduled FROM outbox WHERE id = msg(7);
UPDATE outbox SET attempts = 3 WHERE id = msg(7);
SELECT outbox_edit(msg(7), route => 'default');
SELECT attempts, available_at FROM outbox WHERE id = msg(7);
-- an edited message is checked as a new one is
SELECT args, outcome('SELECT outbox_edit(' || args || ')') FROM unnest(ARRAY[
	'msg(99), ''1''', 'NULL, ''1''', 'msg(1), ''1'', ''\x00''', 'msg(1), clear => ''{payload}''',
	'msg(1), clear => ''{headers,NULL}''', 'msg(1), clear => ''{{headers,NULL}}''', 'msg(1), clear => ''{}''', 'msg(1), headers => ''[]''',
	'msg(1), headers => ''{"CC": ["x"]}''', 'msg(1), properties => ''{"user_id": "x"}''',
	'msg(1), routing_key => repeat(''x'', 256)', 'msg(1), route => ''nowhere''',
	'msg(1), to_jsonb(repeat(''x'', 16777216))', 'msg(1), route => ''kept''']) args;
UPDATE outbox SET aggregate_id = repeat('x', 255) WHERE id = :'m1';
SELECT outcome('SELECT outbox_edit(msg(1), route => ''long'')');
DELETE FROM outbox_history;
-- a message of another database: only where it was adopted, and then it is ours
ALTER TABLE outbox DISABLE TRIGGER outbox_row;
UPDATE outbox SET origin = 42 WHERE id = :'m2';
ALTER TABLE outbox ENABLE TRIGGER outbox_row;
SELECT outcome('SELECT outbox_edit(msg(2), ''1'')');
UPDATE outbox_control SET adopted_origins = '{41,42}';
SELECT outcome('SELECT outbox_edit(msg(2), headers => ''[]'')');
SELECT outbox_edit(msg(2), '1');
SELECT payload, origin = outbox_internal.outbox_origin() AS ours FROM outbox WHERE id = :'m2';
UPDATE outbox_control SET adopted_origins = '{}';
DROP VIEW edited;

-- Discard by filter, with a reason
CALL fill();
DELETE FROM outbox_history;
CREATE FUNCTION discarded(args text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
	result text;
BEGIN
	CALL outbox_regress.fill();
	EXECUTE 'SELECT outbox_discard_messages(' || args || ')' INTO n;
	SELECT n || ': ' || coalesce(string_agg(payload::text, ' ' ORDER BY seq), '') INTO result FROM outbox;
	RETURN result;
END
$$;
INSERT INTO outbox_route (name) VALUES ('x');
SELECT args, discarded(args) FROM unnest(ARRAY['''r''', '''r'', ''pending''', '''r'', route => ''x''',
	'''r'', event_type => ''a''', '''r'', aggregate_type => ''order'', aggregate_id => ''1''',
	'''r'', last_error_like => ''%NO_ROUTE''', '''r'', created_before => ''2024-01-04''',
	'''r'', max_messages => 2', '''r'', max_messages => 0', '''r'', ids => ARRAY[msg(1), msg(7), msg(99)]',
	'''r'', ''pending'', ''default'', ''b'', ''order'', ''1'', ''nack%'', ''2025-01-01'', ARRAY[msg(7)], 5']) args;
SELECT * FROM remembered();
SELECT outcome('SELECT outbox_discard_messages(' || args || ')') FROM unnest(ARRAY['NULL', '''''',
	'''r'', NULL', '''r'', ''published''', '''r'', max_messages => -1', '''r'', ids => NULL', '''r'', ids => ''{NULL}''',
	'''r'', route => ''unknown''']) args;
DELETE FROM outbox_route WHERE name = 'x';
SELECT discarded('''r'', ids => ''{}''');
SELECT outcome('SELECT outbox_requeue_failed(route => ''unknown'')');
CALL fill();
SET ROLE regress_outbox_operator;
SELECT outbox_discard_messages('queue of the old shop', last_error_like => '%NO_ROUTE%');
SELECT outbox_discard(:'m1'), outbox_discard(:'m1');
RESET ROLE;
SELECT * FROM remembered();
-- it ends with the transaction
BEGIN;
SELECT outbox_discard_messages('r'), outbox_requeue_failed(), outbox_edit(msg(7), '1');
ROLLBACK;
SELECT * FROM remembered();
SELECT count(*) FROM outbox;

-- Erasure of one key: live, archived, and what the history has of it
CALL fill();
DO $$ BEGIN WHILE outbox_internal.outbox_archive_maintain('1 day') IS NOT NULL LOOP END LOOP; END $$;
INSERT INTO outbox_archive (seq, id, route, event_type, aggregate_type, aggregate_id, payload, created_at, attempts, published_at)
SELECT i, outbox_uuid7(), 'default', 'e', CASE WHEN i % 4 > 1 THEN 'order' END, (i % 2)::text, '{}', now(), 0,
	CASE WHEN i <= 8 THEN now() WHEN i <= 16 THEN now() + interval '1 day' ELSE timestamptz '2020-01-01' END
FROM generate_series(1, 20) i;
SELECT outbox_edit(:'m1', '"new"');
SELECT outbox_edit(:'m2', '"new"');
SELECT outbox_requeue_failed(aggregate_id => '1', max_messages => 1), outbox_requeue_failed(aggregate_type => 'thing'),
	outbox_requeue_failed(aggregate_type => 'order', max_messages => 1);
SELECT outbox_replay('-infinity', aggregate_id => '1', max_messages => 1) > 0 AS filed;
-- beside a publication of all tables, too
CREATE PUBLICATION regress_outbox_all FOR ALL TABLES;
SET ROLE regress_outbox_operator;
SELECT * FROM outbox_erase('order', '1', reason => 'ticket 7');
SELECT * FROM outbox_erase('order', '1');
SELECT * FROM outbox_erase(NULL, '0');
SELECT outbox_erase('order', NULL);
\echo :LAST_ERROR_SQLSTATE
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outbox_erase('order', '0');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
RESET ROLE;
DROP PUBLICATION regress_outbox_all;
-- Of all routes
BEGIN;
INSERT INTO outbox_route (name) VALUES ('second');
SELECT count(outbox_enqueue('e', '{}', 'order', 'both', route => r)) FROM unnest('{default,second}'::text[]) r;
SELECT live, remaining FROM outbox_erase('order', 'both');
ROLLBACK;
SELECT payload FROM outbox ORDER BY seq;
SELECT aggregate_type, aggregate_id, count(*) FROM outbox_archive GROUP BY 1, 2 ORDER BY 1, 2;
SELECT (SELECT detail->'key_hash' FROM outbox_history WHERE reason = 'ticket 7')
	= to_jsonb(outbox_internal.outbox_key_hash('', 'order', '1')) AS by_hash;
SELECT action, regexp_replace(subject, '\d+', 'N') AS subject, messages, reason,
	detail - '{key_hash,published_to}'::text[] AS detail FROM remembered();

SELECT arguments - 'published_to' AS arguments FROM outbox_job ORDER BY id DESC LIMIT 1;
DELETE FROM outbox_job;

-- What is about the relay
SELECT outbox_adopt();
UPDATE outbox_control SET timeline = 0, environment = 'other';
SET ROLE regress_outbox_operator;
SELECT outbox_adopt(), outbox_adopt();
SELECT outbox_worker_restart() >= 0 AS told;
BEGIN READ ONLY;
SELECT outbox_worker_restart() >= 0 AS told;
ROLLBACK;
RESET ROLE;
SELECT action, subject, detail->'before'->'environment' AS before, detail->'after'->'environment' AS after,
	(detail->'before') - '{adopted_at,adopted_origins,database_oid,environment,system_identifier,timeline}'::text[] AS rest
FROM remembered() WHERE action <> 'restart workers';

-- An application can do none of it
SET ROLE regress_outbox_app;
SELECT outcome(statement) FROM unnest(ARRAY['SELECT outbox_requeue_ids(''{}'')',
	'SELECT outbox_edit(NULL, ''1'')', 'SELECT outbox_discard_messages(''r'')',
	'SELECT outbox_erase(''order'', ''1'')', 'SELECT outbox_internal.outbox_check_unclaimed(NULL)', 'SELECT outbox_internal.outbox_tell_workers()',
	'SELECT outbox_adopt()', 'SELECT outbox_worker_restart()']) statement;
SET ROLE regress_outbox_operator;
SELECT outcome(statement) FROM unnest(ARRAY['TABLE outbox_history', 'TABLE outbox',
	'SELECT outbox_internal.outbox_check_unclaimed(NULL)', 'SELECT outbox_internal.outbox_tell_workers()']) statement;
RESET ROLE;

TRUNCATE outbox, outbox_archive;
DELETE FROM outbox_route WHERE name <> 'default';
DROP FUNCTION discarded(text), msg(integer), remembered();
DROP PROCEDURE fill();
DROP OWNED BY regress_outbox_app, regress_outbox_operator;
DROP ROLE regress_outbox_app, regress_outbox_operator;
