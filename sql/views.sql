-- Tables and views: their columns, by which doc-check looks for them in the pages, and what views show of rows.
SET client_min_messages = error;

SELECT relname AS relation, attname AS column, format_type(atttypid, atttypmod) AS type
FROM outbox_regress.relations r JOIN pg_attribute a ON a.attrelid = r.oid
WHERE relkind IN ('r', 'p', 'v') AND schema = 'public'::regnamespace AND attnum > 0 AND NOT attisdropped
ORDER BY relname COLLATE "C", attnum;

-- Nothing there
SELECT database = current_database() AS database, state IS NOT NULL AS state, backlog,
	oldest_pending_age, scheduled, retrying, failed, in_flight
FROM outbox_status;
SELECT count(*) FROM outbox_messages;
SELECT count(*) FROM outbox_failed;

-- One of each kind
SELECT outbox_enqueue('ready', '1') IS NOT NULL AS ok;
SELECT outbox_enqueue('scheduled', '2', available_at => '2100-01-01') IS NOT NULL AS ok;
SELECT outbox_enqueue_bytes('bytes', '\x03') IS NOT NULL AS ok;
INSERT INTO outbox (event_type, payload, attempts, last_error, available_at) VALUES
	('retrying', '4', 2, 'nacked', '2100-01-01');
INSERT INTO outbox (event_type, payload, status, attempts, last_error, last_error_reason) VALUES
	('failed', '5', 'failed', 10, 'returned', 'unroutable');
BEGIN;
INSERT INTO outbox_archive (seq, id, route, event_type, payload, created_at, attempts, published_at)
VALUES (0, outbox_uuid7(), 'default', 'published', '6', now() - interval '1 minute', 1, now());
SELECT event_type, status, attempts, last_error, last_error_reason, published_at IS NOT NULL AS published,
	payload, body
FROM outbox_messages ORDER BY seq;
SELECT event_type, attempts, last_error, last_error_reason FROM outbox_failed;
SELECT backlog, oldest_pending_age BETWEEN '0' AND '1 hour' AS age, scheduled, retrying, failed
FROM outbox_status;
ROLLBACK;

-- The oldest that waits for the broker counts, not one that has failed
BEGIN;
UPDATE outbox SET created_at = now() - interval '2 days' WHERE event_type IN ('failed', 'scheduled');
SELECT oldest_pending_age < '1 day' AS age FROM outbox_status;
UPDATE outbox SET created_at = now() - interval '2 days' WHERE event_type = 'retrying';
SELECT oldest_pending_age > '1 day' AS age FROM outbox_status;
ROLLBACK;

-- A backlog is critical at ten times the age that is a warning; what is good to know is no problem of outbox_status
BEGIN;
DELETE FROM outbox WHERE event_type <> 'ready';
UPDATE outbox SET created_at = now() - 5 * current_setting('outbox.backlog_warning_age')::interval;
SELECT severity FROM outbox_problems WHERE problem = 'backlog old';
UPDATE outbox SET created_at = now() - 11 * current_setting('outbox.backlog_warning_age')::interval;
SELECT severity FROM outbox_problems WHERE problem = 'backlog old';
INSERT INTO outbox (event_type, payload, aggregate_type, aggregate_id, attempts, last_error, available_at) VALUES
	('held', '1', 'a', '1', 1, 'nacked', '2100-01-01'), ('behind', '2', 'a', '1', 0, NULL, NULL);
SELECT severity, subject FROM outbox_problems WHERE problem = 'key held';
SELECT problems = (SELECT count(*) FROM outbox_problems WHERE severity <> 'info') AS same FROM outbox_status;
ROLLBACK;
-- What is wrong with messages is told by the reason, and not by words of an error; what is none counts as refused
BEGIN;
DELETE FROM outbox;
INSERT INTO outbox (event_type, payload, attempts, available_at, last_error, last_error_reason)
	SELECT 'e', '{}', 1, '2100-01-01', 'returned by the broker: queue "basic.nack"', reason
	FROM unnest('{unroutable,queue refuses,message refused,external nack,disk full,nonsense,NULL}'::text[]) reason;
SELECT severity, problem, subject, detail, hint, command FROM outbox_problems WHERE subject ~ '^route' ORDER BY problem;
SELECT p.problem FROM outbox_problems p, outbox_reason_hint(p.problem) a
WHERE p.subject ~ '^route' AND (p.severity, p.hint) IS DISTINCT FROM (a.severity, a.hint);
-- Permissions of the broker's are shown; settings are filled in for who may read them
UPDATE outbox SET last_error = 'ACCESS_REFUSED - access to topic ''a.b''' WHERE last_error_reason = 'message refused';
SELECT command FROM outbox_problems WHERE detail ~ 'topic';
CREATE ROLE regress_outbox_monitor;
GRANT USAGE ON SCHEMA outbox_internal TO regress_outbox_monitor;
GRANT SELECT ON outbox_problems TO regress_outbox_monitor;
GRANT EXECUTE ON FUNCTION outbox_internal.outbox_problem_list(outbox_internal.outbox_route_count[]),
	outbox_internal.outbox_reason_hint(text, boolean, text, text) TO regress_outbox_monitor;
SET LOCAL ROLE regress_outbox_monitor;
SELECT command FROM outbox_problems WHERE detail ~ 'topic';
SELECT r.command FROM unnest('{login refused,password file not private,key passphrase wrong,client certificate refused,host unknown}'::text[]) n,
	outbox_internal.outbox_reason_hint(n, true, NULL, NULL) r;
RESET ROLE;
GRANT pg_read_all_settings TO regress_outbox_monitor;
SET LOCAL ROLE regress_outbox_monitor;
SELECT command FROM outbox_problems WHERE detail ~ 'topic';
RESET ROLE;
-- No problem needs the extension's files but a version mismatch
ALTER FUNCTION pg_catalog.pg_extension_update_paths(name) RENAME TO regress_outbox_paths;
DISCARD PLANS;
SELECT count(*) > 0 AS told FROM outbox_problems;
ALTER FUNCTION pg_catalog.regress_outbox_paths(name) RENAME TO pg_extension_update_paths;
-- A name with control characters stands in no command
INSERT INTO outbox_route (name) VALUES (E'quiet\x1bm');
UPDATE outbox SET route = E'quiet\x1bm';
UPDATE outbox SET attempts = 1, available_at = '2100-01-01' WHERE status = 'pending';
SELECT problem, command FROM outbox_problems WHERE subject ~ 'quiet' ORDER BY problem;
ROLLBACK;
-- Of more than 20 the oldest
BEGIN;
INSERT INTO outbox_route (name, on_failed) VALUES ('held', 'block');
INSERT INTO outbox (event_type, payload, route, aggregate_type, aggregate_id, status)
	SELECT 'f', '{}', 'held', 't', (100 - n)::text, 'failed' FROM generate_series(1, 25) n;
SELECT count(*), min(substring(subject FROM '"t" "(\d+)"')), max(substring(subject FROM '"t" "(\d+)"')) FROM outbox_problems
WHERE problem = 'key held' AND subject ~ 'held';
ROLLBACK;

-- A scheduled message waits from the time that it was scheduled for; a retry
-- waits from the beginning, whatever the time of its next attempt
BEGIN;
UPDATE outbox SET created_at = now() - interval '2 days';
UPDATE outbox SET available_at = now() - interval '1 minute' WHERE event_type IN ('ready', 'scheduled', 'bytes');
DELETE FROM outbox WHERE event_type = 'retrying';
SELECT backlog, scheduled, oldest_pending_age BETWEEN '1 minute' AND '1 hour' AS age FROM outbox_status;
UPDATE outbox SET attempts = 1, available_at = now() + interval '1 minute' WHERE event_type = 'bytes';
SELECT backlog, scheduled, retrying, oldest_pending_age > '1 day' AS age FROM outbox_status;
ROLLBACK;

-- Each external route shows the age of its oldest message, however many another one has, and
-- however many of its own entries are dead
BEGIN;
INSERT INTO outbox_route (name, exchange, relay) SELECT 'ext' || i, '', 'external' FROM generate_series(1, 3) i;
INSERT INTO outbox (event_type, payload, route, available_at, attempts, last_error)
	SELECT 'e', '{}', 'ext1', CASE WHEN i > 2500 THEN now() + interval '1 hour' END, (i > 2500)::int, 'e' FROM generate_series(1, 5000) i;
INSERT INTO outbox (event_type, payload, route)
	SELECT 'e', '{}', 'ext2' FROM generate_series(1, 2500) i;
INSERT INTO outbox (event_type, payload, route) VALUES ('live', '{}', 'ext2'), ('live', '{}', 'ext3');
INSERT INTO outbox (event_type, payload, route, available_at, attempts, last_error)
	VALUES ('live', '{}', 'ext3', now() + interval '1 hour', 1, 'e');
UPDATE outbox SET created_at = now() - CASE route WHEN 'ext1' THEN 1 WHEN 'ext2' THEN 2 ELSE 3 END * interval '1 day' WHERE route ~ '^ext';
DELETE FROM outbox WHERE route = 'ext2' AND event_type = 'e';
SELECT route, extract(day FROM oldest_pending_age) AS days, estimated, retrying > 0 AS retrying FROM outbox_routes_status WHERE route ~ '^ext' ORDER BY 1;
SELECT severity, subject FROM outbox_problems WHERE problem = 'external relay missing' ORDER BY 2;
ROLLBACK;

-- Messages that wait for their route: the hint names it, if any are due, beside
-- what it says of the relay
CREATE FUNCTION pg_temp.routes(hint text) RETURNS text LANGUAGE sql AS
	$$SELECT substring(hint, 'Messages wait .*')$$;
SELECT pg_temp.routes(hint) FROM outbox_status;
INSERT INTO outbox_route (name, paused) VALUES ('held', true), ('empty', true), ('later', true), ('other', true);
SELECT outbox_enqueue('e', '{}', route => 'held') IS NOT NULL AS ok FROM generate_series(1, 3);
SELECT outbox_enqueue('e', '{}', route => 'later', available_at => '2100-01-01') IS NOT NULL AS ok;
SELECT pg_temp.routes(hint) FROM outbox_status;
SELECT outbox_enqueue('e', '{}', route => 'other') IS NOT NULL AS ok;
-- (a restore may bring messages whose routes it does not bring)
BEGIN;
SET LOCAL check_function_bodies = off;
SELECT set_config('search_path', '', true);
INSERT INTO public.outbox (event_type, payload, route, origin) VALUES ('e', '{}', 'gone', 1), ('e', '{}', 'gone', 1);
COMMIT;
SELECT pg_temp.routes(hint), backlog, scheduled, failed FROM outbox_status;
-- whoever monitors the server sees that, too, and nothing of the tables
SET ROLE pg_monitor;
SELECT pg_temp.routes(hint), backlog, scheduled, failed FROM public.outbox_status;
SELECT count(*) FROM outbox;
RESET ROLE;
SELECT outbox_resume('held'), outbox_resume('other');
SELECT pg_temp.routes(hint) FROM outbox_status;
DELETE FROM outbox WHERE route <> 'default';
DELETE FROM outbox_route WHERE name <> 'default';
SELECT pg_temp.routes(hint) FROM outbox_status;

-- Nothing is in flight: either no relay runs, or it is paused (install.sql)
SELECT * FROM outbox_internal.outbox_claims();
SELECT in_flight FROM outbox_status;
SELECT count(*) FROM outbox_workers WHERE in_flight > 0 OR claimed > 0;
SELECT outbox_worker_restart() >= 0 AS told;

-- What it runs with, for who monitors the server
SET ROLE pg_monitor;
SELECT component, version ~ '^(OpenSSL )?[0-9]+(\.|devel|beta|rc)' AS version,
	built_with ~ '^(OpenSSL )?[0-9]+(\.|devel|beta|rc)' AS built_with, about <> '' AS about
FROM outbox_versions;
RESET ROLE;

-- A hint wherever something is to be done
SELECT state IN ('publishing', 'idle', 'starting', 'connecting', 'broker down', 'blocked',
	'paused', 'disabled', 'config error', 'database error', 'waiting for standby', 'version mismatch',
	'stopping', 'stopped', 'standby', 'not preloaded') AS known,
	state IN ('publishing', 'idle', 'starting', 'connecting') OR hint IS NOT NULL AS hint
FROM outbox_status;

TRUNCATE outbox;

-- A table that is gone when its lockers are asked for
SELECT outbox_internal.outbox_row_lockers(0, '(0,1)') IS NULL AS gone;
