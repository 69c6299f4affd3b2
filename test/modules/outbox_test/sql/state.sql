-- What a worker reads of its database beside messages.
SELECT outbox_test_worker_session();

-- Routes, each in full, and the pause of the whole
INSERT INTO outbox_route VALUES ('é', 'x', 'fanout', '{aggregate_id}', 3, 'none', 'block', true, '{}');
INSERT INTO outbox_route (name, failed_route, retention, archive, sequence, max_pending) VALUES
	('all', 'é', '1 day 0.5 s', 'metadata', 'key', 7);
INSERT INTO outbox_route (name, relay, slot, sequence) VALUES ('log', 'cdc', 'reader', 'seq'), ('other', 'external', NULL, NULL);
SELECT * FROM outbox_test_routes() ORDER BY name COLLATE "C" \gx
-- the C code's list of the columns is that of the table, and of its CHECK's arguments
SELECT coalesce(l.number, a.attnum) AS column, l.name, a.attname, l.type::regtype, a.atttypid::regtype
	FROM outbox_test_route_columns() l
	FULL JOIN (SELECT * FROM pg_attribute WHERE attrelid = 'outbox_route'::regclass AND attnum > 0) a ON a.attnum = l.number
	WHERE (lower(l.name), l.type) IS DISTINCT FROM (a.attname::text, a.atttypid);
SELECT array_agg(lower(name) ORDER BY number) = p.proargnames AS arguments
	FROM outbox_test_route_columns(), pg_proc p
	WHERE checked AND p.oid = 'outbox_internal.outbox_route_allowed'::regproc GROUP BY p.oid;
-- a row that has not changed is not loaded again
CREATE TEMP TABLE before AS SELECT * FROM outbox_test_route_versions();
ANALYZE outbox_route;
UPDATE outbox_route SET max_attempts = max_attempts;
SELECT count(*) FROM before b JOIN outbox_test_route_versions() n USING (name) WHERE n.version <> b.version;
UPDATE outbox_route SET max_attempts = max_attempts + 1 WHERE name = 'all';
UPDATE outbox_route SET exchange_type = NULL, failed_route = NULL WHERE name = 'é';
SELECT b.name FROM before b JOIN outbox_test_route_versions() n USING (name) WHERE n.version <> b.version ORDER BY name COLLATE "C";
DROP TABLE before;
-- a load that fails at one row, past the CHECK, keeps nothing of the others
BEGIN;
ALTER TABLE outbox_route DROP CONSTRAINT outbox_route_allowed;
INSERT INTO outbox_route (name, format, retention) VALUES ('unfit', 'celery', '1000000 years');
DO $$
BEGIN
	FOR i IN 1 .. 100 LOOP
		BEGIN
			PERFORM outbox_test_keep_routes();
			RAISE 'all routes were loaded';
		EXCEPTION WHEN numeric_value_out_of_range THEN
			IF i = 100 THEN
				RAISE NOTICE '%', SQLERRM;
			END IF;
		END;
	END LOOP;
END $$;
SELECT name, used_bytes < 500 AS nothing_is_left FROM pg_backend_memory_contexts
	WHERE name IN ('outbox test routes', 'outbox format');
ROLLBACK;
DELETE FROM outbox_route WHERE name IN ('all', 'log', 'other');
SELECT outbox_test_paused();
BEGIN;
SELECT outbox_resume();
SELECT outbox_test_paused();
ROLLBACK;

-- A view in the place of the control row is none of the extension's
BEGIN;
ALTER TABLE outbox_control RENAME TO control;
CREATE VIEW outbox_control AS SELECT * FROM control;
SELECT outbox_test_paused();
ROLLBACK;
SELECT outbox_test_paused();

-- A copy of another database is silent until adopted
SELECT outbox_test_copy(), outbox_adopt();
UPDATE outbox_control SET database_oid = 1;
SELECT outbox_test_copy(), outbox_adopt(), outbox_test_copy();
UPDATE outbox_control SET system_identifier = system_identifier + 1;
SELECT outbox_test_copy(), outbox_adopt(), outbox_test_copy(), outbox_adopt();
-- and so is a server of another environment
UPDATE outbox_control SET environment = 'another';
SELECT outbox_test_copy(), outbox_adopt(), outbox_test_copy();
-- what a restored dump brings replaces what CREATE EXTENSION has made
SET check_function_bodies = off;
SELECT set_config('search_path', '', false);
INSERT INTO "Out Box".outbox_control (paused, system_identifier, database_oid) VALUES (false, 1, 2);
RESET check_function_bodies;
RESET search_path;
SELECT count(*), min(system_identifier), min(database_oid) FROM outbox_control;
SELECT outbox_test_copy(), outbox_adopt(), outbox_test_copy();
-- and so is one with messages of another
SELECT outbox_test_accepts(outbox_internal.outbox_origin()), outbox_test_accepts(1);
-- as logical replication brings them
BEGIN;
SET LOCAL session_replication_role = replica;
INSERT INTO outbox (event_type, payload, origin, route)
VALUES ('e', '{}', 1, 'not yet'), ('e', '{}', 2, 'not yet'), ('e', '{}', DEFAULT, 'default');
SET LOCAL session_replication_role = origin;
SELECT CASE WHEN origin = outbox_internal.outbox_origin() THEN 'own' ELSE origin::text END AS origin, route FROM outbox_test_claim();
SELECT outbox_test_copy(), outbox_adopt(), outbox_test_copy();
SELECT outbox_test_accepts(outbox_internal.outbox_origin()), outbox_test_accepts(1), outbox_test_accepts(2), outbox_test_accepts(3);
UPDATE outbox_control SET adopted_origins = '{NULL, 3}';
SELECT outbox_test_accepts(1), outbox_test_accepts(3);
ROLLBACK;
SELECT outbox_pause();
DELETE FROM outbox_route WHERE name <> 'default';

-- Prepared transactions, whose rows are to be looked at when they end
SELECT outbox_test_prepared();
BEGIN;
SELECT outbox_enqueue('e', '{}') IS NOT NULL AS ok;
PREPARE TRANSACTION 'outbox_test_1';
BEGIN;
SELECT outbox_enqueue('e', '{}') IS NOT NULL AS ok;
PREPARE TRANSACTION 'outbox_test_2';
SELECT outbox_test_prepared(); -- two
SELECT count(*) FROM outbox_test_claim();
COMMIT PREPARED 'outbox_test_1';
ROLLBACK PREPARED 'outbox_test_2';
SELECT outbox_test_prepared();
SELECT count(*) FROM outbox_test_claim();

-- Retention in seconds, as the setting has it
BEGIN;
LOCK TABLE outbox_archive;
DO $$
BEGIN
	WHILE outbox_test_maintain(86400) IS NOT NULL LOOP
	END LOOP;
END
$$;
SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox_archive'::regclass;
SELECT outbox_test_maintain(86400) IS NULL AS done, outbox_test_maintain(0) IS NULL AS nothing,
	outbox_test_maintain(2147483647) IS NULL AS long;
ROLLBACK;
-- A message that is published on a day with a partition goes there
BEGIN;
LOCK TABLE outbox_archive;
SELECT count(outbox_test_maintain(86400)) >= 0 AS ok FROM generate_series(1, 3);
SELECT outbox_test_settle(array_agg(tid), array_agg(id)) FROM outbox_test_claim();
SELECT tableoid::regclass::text LIKE '%outbox_archive_p%' AS part FROM outbox_archive;
ROLLBACK;

-- The statements follow the extension into another schema
RESET lock_timeout; -- the real relay may be making partitions
DROP EXTENSION outbox_test, outbox;
CREATE SCHEMA other;
BEGIN;
CREATE EXTENSION outbox SCHEMA other;
SELECT other.outbox_pause();
COMMIT;
CREATE EXTENSION outbox_test;
SELECT other.outbox_enqueue('other', '{}') IS NOT NULL AS ok;
SELECT event_type FROM outbox_test_claim();
DROP EXTENSION outbox_test, outbox;
