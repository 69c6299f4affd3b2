-- DROP EXTENSION leaves nothing, and the extension works in any schema.
SET client_min_messages = error;

SELECT outbox_internal.outbox_archive_maintain('1 day') IS NOT NULL OR true AS ok;
SELECT outbox_enqueue('e', '{}') IS NOT NULL AS ok;
DROP SCHEMA outbox_regress CASCADE;
DROP EXTENSION outbox;
SELECT relname FROM pg_class WHERE relname LIKE 'outbox%';
SELECT proname FROM pg_proc WHERE proname LIKE 'outbox%';
SELECT nspname FROM pg_namespace WHERE nspname LIKE 'outbox%';

-- The schema of what only the extension uses is the extension's
CREATE SCHEMA outbox_internal;
\set VERBOSITY terse
CREATE EXTENSION outbox;
CREATE EXTENSION outbox SCHEMA outbox_internal;
\set VERBOSITY default
DROP SCHEMA outbox_internal;

-- Names that need quotes, a search_path that leads elsewhere
CREATE SCHEMA "Out Box";
BEGIN;
CREATE EXTENSION outbox SCHEMA "Out Box";
SELECT "Out Box".outbox_pause();
COMMIT;
DROP SCHEMA outbox_internal;
-- no text that is read when it runs names the schema
SELECT p.oid::regprocedure FROM pg_depend d JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND p.prosqlbody IS NULL AND p.prosrc ~* 'out box';
SELECT "Out Box".outbox_enqueue('e', '{}', aggregate_id => '1') IS NOT NULL AS ok;
SELECT "Out Box".outbox_enqueue_bytes('b', '\x01') IS NOT NULL AS ok;
INSERT INTO "Out Box".outbox (event_type, payload, status) VALUES ('f', '{}', 'failed');
SELECT event_type, status FROM "Out Box".outbox_messages ORDER BY seq;
SELECT backlog, failed FROM "Out Box".outbox_status;
SELECT "Out Box".outbox_requeue_failed();
SELECT "Out Box".outbox_requeue(id), "Out Box".outbox_discard(id)
FROM "Out Box".outbox WHERE event_type = 'f';
SELECT "Out Box".outbox_pause('default');
SELECT "Out Box".outbox_resume('default');
-- what a restore brings
BEGIN;
SET LOCAL check_function_bodies = off;
SELECT set_config('search_path', '', true);
INSERT INTO "Out Box".outbox_route (name, exchange) VALUES ('default', 'other');
INSERT INTO "Out Box".outbox_control (system_identifier, database_oid) VALUES (1, 2);
SELECT system_identifier, database_oid FROM "Out Box".outbox_control;
COMMIT;
SELECT "Out Box".outbox_adopt();
SELECT exchange FROM "Out Box".outbox_route;
BEGIN;
LOCK TABLE "Out Box".outbox_archive;
-- (a relay may have made some already)
SELECT count(outbox_internal.outbox_archive_maintain('1 day')) <= 3 AS ok FROM generate_series(1, 4);
COMMIT;
SELECT count(*) FROM pg_inherits WHERE inhparent = '"Out Box".outbox_archive'::regclass;
DROP EXTENSION outbox;
SELECT relname FROM pg_class WHERE relname LIKE 'outbox%';

-- A second life in the same session
BEGIN;
CREATE EXTENSION outbox;
SELECT outbox_pause();
COMMIT;
SELECT outbox_enqueue('e', '{}') IS NOT NULL AS ok;
SELECT event_type FROM outbox;
DROP EXTENSION outbox;

-- ALTER DEFAULT PRIVILEGES grants nothing of it, nor of the archive's partitions
CREATE ROLE regress_outbox_default;
BEGIN;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO regress_outbox_default WITH GRANT OPTION;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO regress_outbox_default, PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO regress_outbox_default;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO regress_outbox_default;
CREATE EXTENSION outbox;
SELECT outbox_pause();
SELECT count(outbox_internal.outbox_archive_make_day(current_date + 40));
SELECT outbox_enqueue('e', '{}') IS NOT NULL AS ok;
SELECT d.classid::regclass, pg_describe_object(d.classid, d.objid, 0), a.privilege_type
FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
	LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
	LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
	LEFT JOIN pg_namespace n ON d.classid = 'pg_namespace'::regclass AND n.oid = d.objid,
	aclexplode(coalesce(c.relacl, p.proacl, n.nspacl)) a
WHERE e.extname = 'outbox' AND a.grantee IN (0, 'regress_outbox_default'::regrole) AND a.privilege_type <> 'EXECUTE'
	OR a.grantee = 'regress_outbox_default'::regrole;
GRANT TRIGGER ON outbox TO regress_outbox_default;
GRANT REFERENCES (id, seq) ON outbox TO regress_outbox_default, PUBLIC;
GRANT REFERENCES ON outbox_history TO regress_outbox_default;
SELECT ok, detail, hint FROM outbox_preflight() WHERE "check" = 'grants';
-- an owner who is not a superuser locks what is his
GRANT USAGE ON SCHEMA outbox_internal TO regress_outbox_default;
GRANT EXECUTE ON FUNCTION outbox_internal.outbox_lock_table TO regress_outbox_default;
SET ROLE regress_outbox_default;
SELECT outbox_internal.outbox_lock_table('pg_authid'::regclass, 'AccessExclusiveLock', false);
ROLLBACK;
DROP ROLE regress_outbox_default;

-- DROP SCHEMA ... CASCADE drops it, as anywhere, also when the schema was renamed
CREATE EXTENSION outbox SCHEMA "Out Box";
ALTER SCHEMA "Out Box" RENAME TO moved;
SELECT moved.outbox_pause();
SELECT moved.outbox_enqueue('e', '{}') IS NOT NULL AS ok;
DROP SCHEMA moved CASCADE;
SELECT nspname FROM pg_namespace WHERE nspname LIKE 'outbox%';
SELECT extname FROM pg_extension WHERE extname = 'outbox';
