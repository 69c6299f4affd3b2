-- Replay out of the archive: arguments, what is listed, what a chunk does.  The relay,
-- which is off here, would call outbox_internal.outbox_job_step().  Messages are of yesterday, so that it
-- does not remove them as out of retention.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
\set SHOW_CONTEXT never
TRUNCATE outbox, outbox_archive, outbox_job, outbox_history RESTART IDENTITY CASCADE;
DELETE FROM outbox_route WHERE name LIKE 'replay%';
INSERT INTO outbox_route (name) VALUES ('replay'), ('replay gone');

CREATE FUNCTION at(i int) RETURNS timestamptz LANGUAGE sql
AS $$ SELECT date_trunc('day', now(), 'UTC') - interval '12 hours' + i * interval '1 minute' $$;
CREATE FUNCTION step(messages int DEFAULT 500, bytes bigint DEFAULT 1000000, earlier uuid[] DEFAULT '{}')
RETURNS text LANGUAGE sql
AS $$ SELECT outcome || coalesce(' ' || cardinality(ids), '') FROM outbox_internal.outbox_job_step(messages, bytes, earlier) $$;
CREATE VIEW jobs AS
	SELECT id, state, total, done, skipped, position, started_at IS NOT NULL AS started,
		ended_at IS NOT NULL AS ended, last_error
	FROM outbox_job ORDER BY id;
CREATE FUNCTION of(job bigint) RETURNS text LANGUAGE sql	/* what is to be done, in its order */
AS $$
	SELECT string_agg(seq::text, ' ' ORDER BY first, n)
	FROM outbox_internal.outbox_job_list l, unnest(seqs) WITH ORDINALITY u(seq, n) WHERE l.job = of.job
$$;

-- Published in another order than enqueued, as after a requeue or with another clock
INSERT INTO outbox_archive (seq, id, route, event_type, aggregate_type, aggregate_id, payload, body,
	headers, properties, routing_key, created_at, available_at, attempts, published_at)
SELECT i, ('00000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid,
	CASE WHEN i % 5 = 0 THEN 'replay' ELSE 'default' END, 'e' || i, CASE WHEN i % 2 = 0 THEN 'order' END,
	CASE WHEN i % 2 = 0 THEN (i % 4)::text END,
	CASE WHEN i % 3 > 0 THEN to_jsonb(i) END, CASE WHEN i % 3 = 0 THEN 'body'::bytea END,
	CASE WHEN i % 4 = 0 THEN '{"h": 1}'::jsonb END, CASE WHEN i = 8 THEN '{"priority": 3}'::jsonb END,
	CASE WHEN i = 8 THEN 'rk' END, at(i), at(i), i % 2, at(CASE i WHEN 3 THEN 9 ELSE i END)
FROM generate_series(1, 12) i ORDER BY i % 5;

-- Arguments
SELECT outbox_replay(NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_replay(at(1), new_ids => NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_replay(at(1), 'infinity');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_replay('2024-01-01 00:02+00', '2024-01-01 00:02+00');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_replay(at(1), max_messages => 0);
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_replay(at(1), route => 'nowhere');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_job_cancel(1000), 1 AS n;
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_job_retry(1000), 1 AS n;
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) FROM outbox_job;
SELECT step();

-- What is listed: the time, half-open; filters; in the order of seq
CREATE FUNCTION listed(args text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	job bigint;
	result text;
BEGIN
	EXECUTE 'SELECT outbox_replay(' || args || ')' INTO job;
	result := concat_ws(': ', (SELECT state || ' ' || total FROM outbox_job WHERE id = job), of(job));
	PERFORM outbox_job_cancel(job);
	RETURN result;
END
$$;
SELECT args, listed(args) FROM unnest(ARRAY['''-infinity''', 'at(2), at(4)', 'at(9)', 'at(9), at(10)',
	'at(13)', '''-infinity'', NULL, ''replay''', 'at(0), aggregate_type => ''order''',
	'at(0), aggregate_type => ''order'', aggregate_id => ''2''', 'at(0), aggregate_id => ''0''',
	'at(0), aggregate_id => ''none''', 'at(0), max_messages => 3', 'at(2), at(10), max_messages => 100']) args;
SELECT DISTINCT state, ended_at IS NOT NULL AS ended FROM outbox_job ORDER BY 1;
SELECT count(*) FROM outbox_internal.outbox_job_list;
TRUNCATE outbox_job, outbox_history RESTART IDENTITY CASCADE;

-- Chunk by chunk, in order; every field as it was, and what says that it is a replay
SELECT outbox_replay('-infinity') AS job \gset
SELECT kind, arguments - 'published_to' AS arguments, created_by = session_user AS mine FROM outbox_job;
SELECT kind, subject, state, started_at, total, estimated, done, percent, rate, estimated_end FROM outbox_progress;
SELECT step(5);
SELECT * FROM jobs;
SELECT kind, subject, state, total, done, percent, rate > 0 AS rate, estimated_end > now() AS ends FROM outbox_progress;
SELECT step(5), step(5);
SELECT * FROM jobs;
SELECT count(*) FROM outbox_internal.outbox_job_list;
SELECT step();
SELECT count(*) FROM outbox_progress;
SELECT string_agg(event_type, ' ' ORDER BY seq) FROM outbox;
SELECT count(*) FROM outbox o JOIN outbox_archive a USING (id)
WHERE (o.route, o.event_type, o.aggregate_type, o.aggregate_id, o.payload, o.body, o.properties, o.routing_key)
	IS NOT DISTINCT FROM
	(a.route, a.event_type, a.aggregate_type, a.aggregate_id, a.payload, a.body, a.properties, a.routing_key)
	AND o.status = 'pending' AND o.attempts = 0 AND o.available_at IS NULL AND o.created_at > now() - interval '1 hour';
SELECT headers - 'x-outbox-replayed-timestamp' AS headers,
	(headers->>'x-outbox-replayed-timestamp')::bigint - extract(epoch FROM at(0)) AS replayed_timestamp
FROM outbox WHERE event_type IN ('e7', 'e8') ORDER BY seq;
SELECT action, subject, messages, detail - 'published_to' AS detail FROM outbox_history ORDER BY id;

-- Not faster than it is published: what an earlier chunk has put in
SELECT outbox_replay('-infinity', new_ids => true) AS job \gset
SELECT array_agg(id) AS ten FROM (SELECT id FROM outbox ORDER BY seq LIMIT 10) o \gset
SELECT step(5, 1000000, :'ten');
DELETE FROM outbox WHERE id = ANY (:'ten'::uuid[]) AND event_type NOT IN ('e1', 'e2');
SELECT step(5, 1000000, :'ten');
UPDATE outbox SET status = 'failed' WHERE event_type = 'e1';
SELECT step(5, 1000000, :'ten');
-- dead letters wait on a paused route as long as it takes
SELECT array_agg(id) AS others FROM outbox \gset
SELECT step(1, 1000000, :'others');
BEGIN;
INSERT INTO outbox_route (name, paused) VALUES ('parked', true);
UPDATE outbox_route SET failed_route = 'parked' WHERE name = 'default';
SELECT step(1, 1000000, :'others');
-- (not so messages that a job has put there itself)
UPDATE outbox SET route = 'parked';
SELECT step(1, 1000000, :'others');
UPDATE outbox SET last_error = 'returned';
SELECT step(1, 1000000, :'others');
ROLLBACK;
-- a job that waits says for what, behind an older error, until it goes on
BEGIN;
UPDATE outbox_job SET last_error = 'one was skipped' WHERE id = :job;
SELECT outcome FROM outbox_internal.outbox_job_step(1, 1000000, :'others', true);
SELECT last_error, last_error_at IS NOT NULL AS at FROM outbox_job WHERE id = :job;
UPDATE outbox_route SET paused = true;
SELECT outcome FROM outbox_internal.outbox_job_step(1, 1000000, :'others', true);
SELECT last_error FROM outbox_job WHERE id = :job;
SELECT step(1);
SELECT last_error FROM outbox_job WHERE id = :job;
ROLLBACK;
BEGIN;
SELECT outcome FROM outbox_internal.outbox_job_step(1, 1000000, :'others', true);
SELECT last_error FROM outbox_job WHERE id = :job;
SELECT step(1);
SELECT last_error, last_error_at FROM outbox_job WHERE id = :job;
ROLLBACK;
-- new ids; the first ones are remembered, through a replay of a replay too
SELECT event_type, o.id <> a.id AS new, o.headers->>'x-outbox-replayed-from' = a.id::text AS original
FROM outbox o JOIN outbox_archive a USING (event_type) WHERE o.headers->>'x-outbox-replay' = :'job' ORDER BY o.seq;
SELECT outbox_job_cancel(:job), outbox_job_cancel(:job) AS again;
SELECT * FROM jobs WHERE id = :job;
SELECT count(*) FROM outbox_internal.outbox_job_list;
SELECT action, subject, messages, detail - 'published_to' AS detail FROM outbox_history ORDER BY id DESC LIMIT 2;
INSERT INTO outbox_archive (seq, id, route, event_type, payload, headers, created_at, attempts, published_at)
SELECT 100, outbox_uuid7(), 'default', 'again', '1', '{"x-outbox-replay": 7, "x-outbox-replayed-from": "first",
	"x-outbox-replayed-timestamp": 7}', at(0), 0, at(100);
TRUNCATE outbox;
SELECT outbox_replay(at(100), new_ids => true) AS job \gset
SELECT step();
SELECT headers - 'x-outbox-replay' AS headers, headers->>'x-outbox-replay' = :'job' AS job FROM outbox;

-- Bytes: at least one message a chunk
TRUNCATE outbox, outbox_archive, outbox_job RESTART IDENTITY CASCADE;
INSERT INTO outbox_archive (seq, id, route, event_type, body, created_at, attempts, published_at)
SELECT i, outbox_uuid7(), 'default', 'bytes', convert_to(repeat('x', 1000), 'UTF8'), at(i), 0, at(i)
FROM generate_series(1, 5) i;
SELECT outbox_replay('-infinity') AS job \gset
SELECT step(5, 1), step(5, 1500), step(5, 100000), step();
SELECT * FROM jobs;

-- Skipped: live already; refused by a check; without a route; gone from the archive.  What is
-- in their chunk goes on.
TRUNCATE outbox, outbox_archive, outbox_job RESTART IDENTITY CASCADE;
CREATE TABLE old_day PARTITION OF outbox_archive FOR VALUES FROM ('2023-01-01 00:00+00') TO ('2023-01-02 00:00+00');
INSERT INTO outbox_archive (seq, id, route, event_type, payload, created_at, attempts, published_at)
SELECT i, ('00000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid,
	CASE i WHEN 2 THEN 'replay gone' ELSE 'default' END, 's' || i, to_jsonb(i), at(i), 0,
	CASE i WHEN 3 THEN '2023-01-01 12:00+00' ELSE at(i) END
FROM generate_series(1, 6) i;
INSERT INTO outbox (id, event_type, payload) SELECT id, 'live', '0' FROM outbox_archive WHERE seq = 4;
SELECT outbox_replay('-infinity') AS job \gset
DELETE FROM outbox_route WHERE name = 'replay gone';
DROP TABLE old_day;
SELECT step(2);
SELECT * FROM jobs;
SELECT step(1);
SELECT last_error FROM jobs;
SELECT step(1);
SELECT last_error FROM jobs;
SELECT step(2);
SELECT * FROM jobs;
SELECT string_agg(event_type, ' ' ORDER BY seq) FROM outbox;
TRUNCATE outbox;
ALTER TABLE outbox ADD CONSTRAINT no_five CHECK (event_type <> 's5');
SELECT outbox_replay('-infinity') AS job \gset
SELECT step();
SELECT * FROM jobs WHERE id = :job;
SELECT string_agg(event_type, ' ' ORDER BY seq) FROM outbox;
ALTER TABLE outbox DROP CONSTRAINT no_five;
-- twice in the archive, as it was replayed before
TRUNCATE outbox;
INSERT INTO outbox_archive SELECT (a.o).* FROM (SELECT a AS o FROM outbox_archive a WHERE seq = 6) a;
SELECT outbox_replay('-infinity', max_messages => 1000) AS job \gset
SELECT step();
SELECT state, total, done, skipped, last_error FROM jobs WHERE id = :job;

-- The archive was rewritten meanwhile: an error, and nothing is skipped
TRUNCATE outbox;
SELECT outbox_replay('-infinity') AS job \gset
DELETE FROM outbox_archive WHERE seq = 6;
VACUUM FULL outbox_archive;
SELECT step();
SELECT position, skipped FROM jobs WHERE id = :job;
SELECT outbox_job_cancel(:job);

-- What is not the messages' fault is an error, which the relay notes
TRUNCATE outbox, outbox_job RESTART IDENTITY CASCADE;
SELECT outbox_replay('-infinity') AS job \gset
DELETE FROM outbox_internal.outbox_job_list;
SELECT step();
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_internal.outbox_job_error(:job, 'in the way', false);
SELECT state, last_error, last_error_at IS NOT NULL AS at, ended_at IS NULL AS goes_on FROM outbox_job;
SELECT outbox_job_retry(:job);
SELECT outbox_internal.outbox_job_error(:job, 'no more', true);
SELECT state, last_error, ended_at IS NULL AS goes_on FROM outbox_job;
SELECT step();
SELECT outbox_job_retry(:job);
SELECT state, ended_at IS NULL AS goes_on FROM outbox_job;
SELECT outbox_internal.outbox_job_error(:job, 'no more', true);
-- it is the job's that erred, not the next one's; and not one's that has ended
SELECT outbox_replay('-infinity', max_messages => 1) AS next \gset
SELECT outbox_internal.outbox_job_error(:job, 'late', true);
SELECT id = :job AS failed, state, last_error FROM outbox_job ORDER BY id;
SELECT outbox_job_cancel(:next);
SELECT outbox_job_cancel(:job), outbox_job_retry(:job);

-- Jobs run one after the other; old ones go when another is filed
SELECT outbox_replay('-infinity', max_messages => 1), outbox_replay('-infinity', max_messages => 2);
SELECT step(), step(), step();
UPDATE outbox_job SET ended_at = now() - CASE WHEN id = 1 THEN interval '29 days' ELSE '31 days' END WHERE id < 4;
SELECT outbox_replay('-infinity', max_messages => 1) AS job \gset
SELECT id, state FROM outbox_job ORDER BY id;
SELECT outbox_job_cancel(:job);

-- Without a body nothing can be replayed, and nothing of what is asked for with it
TRUNCATE outbox, outbox_archive, outbox_job, outbox_history RESTART IDENTITY CASCADE;
INSERT INTO outbox_archive (seq, id, route, event_type, payload, headers, created_at, attempts, published_at)
SELECT i, outbox_uuid7(), CASE WHEN i > 4 THEN 'replay' ELSE 'default' END, 'm' || i,
	CASE WHEN i < 4 OR i = 7 THEN 'null'::jsonb END, '{"h": 1}', at(i), 0, at(i)
FROM generate_series(1, 7) i;
SELECT outbox_replay('-infinity');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_replay(at(4), route => 'default');
SELECT (SELECT count(*) FROM outbox_job), (SELECT count(*) FROM outbox_internal.outbox_job_list), (SELECT count(*) FROM outbox_history);
SELECT outbox_replay('-infinity', at(4)) AS job \gset
SELECT step();
SELECT outbox_replay('-infinity', max_messages => 3) AS job \gset
SELECT total, done, skipped, last_error FROM jobs;

-- The list of a job that somebody has deleted goes when the next one is filed, even with its id
TRUNCATE outbox_job RESTART IDENTITY;
SELECT outbox_replay('-infinity', max_messages => i) FROM generate_series(1, 2) i;
SELECT job, cardinality(seqs) FROM outbox_internal.outbox_job_list ORDER BY job;

-- Who may
TRUNCATE outbox, outbox_archive, outbox_job RESTART IDENTITY CASCADE;
INSERT INTO outbox_archive (seq, id, route, event_type, payload, created_at, attempts, published_at)
VALUES (1, outbox_uuid7(), 'default', 'again', '1', at(0), 0, at(1));
CREATE ROLE regress_outbox_replayer;
GRANT USAGE ON SCHEMA outbox_regress TO regress_outbox_replayer;
SET ROLE regress_outbox_replayer;
SELECT outcome(statement) FROM unnest(ARRAY['SELECT outbox_replay(''-infinity'')', 'SELECT outbox_job_cancel(1)',
	'SELECT outbox_job_retry(1)', 'SELECT outbox_internal.outbox_job_step(1, 1, ''{}'')', 'SELECT outbox_internal.outbox_job_error(1, '''', true)',
	'SELECT outbox_internal.outbox_job_next()', 'SELECT * FROM outbox_job', 'SELECT * FROM outbox_progress']) statement;
RESET ROLE;
GRANT EXECUTE ON FUNCTION outbox_replay TO regress_outbox_replayer;
SET ROLE regress_outbox_replayer;
SELECT outbox_replay('-infinity', max_messages => 1) AS job \gset
RESET ROLE;
SELECT created_by FROM outbox_job WHERE id = :job;
SELECT step();
SELECT role, action FROM outbox_history ORDER BY id DESC LIMIT 2;

TRUNCATE outbox, outbox_archive, outbox_job, outbox_history RESTART IDENTITY CASCADE;
DROP OWNED BY regress_outbox_replayer;
DROP ROLE regress_outbox_replayer;
DROP FUNCTION listed, step, at;
DROP FUNCTION of;
DROP VIEW jobs;
DELETE FROM outbox_route WHERE name = 'replay';
