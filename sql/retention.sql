-- The archive's partitions, one a day (UTC), made ahead and dropped when due.
SET client_min_messages = error;
SET search_path = public, outbox_regress, outbox_internal;

CREATE VIEW parts AS
	SELECT c.relname, to_date(right(c.relname, 8), 'YYYYMMDD')
			- (clock_timestamp() AT TIME ZONE 'UTC')::date AS day,
		EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid
			AND deptype = 'e') AS member
	FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
	WHERE inhparent = 'outbox_archive'::regclass AND c.relname <> 'outbox_archive_default';

-- All in one transaction, with the lock that keeps a relay from doing the same
BEGIN;
LOCK TABLE outbox_archive;
DO $$
DECLARE
	part text;
BEGIN
	FOR part IN SELECT relname FROM parts LOOP
		EXECUTE format('ALTER EXTENSION outbox DROP TABLE %I', part);
		EXECUTE format('DROP TABLE %I', part);
	END LOOP;
END
$$;
CREATE FUNCTION maintain(retention interval) RETURNS text
LANGUAGE sql AS $$	/* dates as days from today */
	SELECT regexp_replace(done, '\d{8}$', '') || (to_date(right(done, 8), 'YYYYMMDD')
		- (clock_timestamp() AT TIME ZONE 'UTC')::date)::text
	FROM outbox_internal.outbox_archive_maintain(retention) done
$$;

-- Retention 0 needs none
SELECT maintain('0');
-- Of several retentions the longest makes partitions, and holds in the default one
INSERT INTO outbox_route (name, retention) VALUES ('keeps', '5 days');
INSERT INTO outbox_archive (seq, id, route, event_type, created_at, attempts, published_at)
	SELECT ago, outbox_uuid7(), 'keeps', 'e', now(), 0, clock_timestamp() - ago * interval '24 hours'
	FROM unnest(ARRAY[4, 7]) ago;
SAVEPOINT keeps;
SELECT outbox_internal.outbox_archive_maintain('0') IS NOT NULL FROM generate_series(1, 4);
SELECT count(DISTINCT day) FROM parts;
SELECT seq FROM outbox_archive;
ROLLBACK TO keeps;
DELETE FROM outbox_route WHERE name = 'keeps';
TRUNCATE outbox_internal.outbox_archive_default;
-- Today's, tomorrow's, and the day after's; one a call
SELECT maintain('1 day');
SELECT maintain('1 day');
SELECT maintain('1 day');
SELECT maintain('1 day');
SELECT day, member FROM parts ORDER BY day;
-- they are as the table that they are part of
SELECT count(*) FROM parts p JOIN pg_index ON indrelid = p.relname::regclass;
-- rows find their day
INSERT INTO outbox_archive (seq, id, route, event_type, created_at, attempts, published_at)
	SELECT i, outbox_uuid7(), 'default', 'e', now(), 0, clock_timestamp() + i * interval '24 hours'
	FROM generate_series(-3, 3) i;
SELECT tableoid = 'outbox_archive_default'::regclass AS by_default, array_agg(seq ORDER BY seq)
FROM outbox_archive GROUP BY 1 ORDER BY 1;
-- bounds are days of UTC whatever the session's zone
SELECT bool_and(published_at AT TIME ZONE 'UTC' >= to_date(right(tableoid::regclass::text, 8), 'YYYYMMDD')
	AND published_at AT TIME ZONE 'UTC' < to_date(right(tableoid::regclass::text, 8), 'YYYYMMDD') + 1) AS utc
FROM outbox_archive WHERE tableoid <> 'outbox_archive_default'::regclass;
-- what the default partition keeps goes as well, by DELETE
SELECT maintain('1 day');
SELECT array_agg(seq ORDER BY seq) FROM outbox_internal.outbox_archive_default;

-- Old partitions, the oldest first, when their last row is out of retention
TRUNCATE outbox_internal.outbox_archive_default;
CREATE PROCEDURE add_day(days_ago int)
LANGUAGE plpgsql AS $$
DECLARE
	day date := (clock_timestamp() AT TIME ZONE 'UTC')::date - days_ago;
	part text := 'outbox_archive_p' || to_char(day, 'YYYYMMDD');
BEGIN
	EXECUTE format('CREATE TABLE outbox_internal.%I PARTITION OF outbox_archive FOR VALUES FROM (%L) TO (%L)',
		part, day || ' 00:00+00', day + 1 || ' 00:00+00');
	EXECUTE format('ALTER EXTENSION outbox ADD TABLE %I', part);
END
$$;
CALL add_day(4);
CALL add_day(3);
CALL add_day(1);
SELECT maintain('365 days');
SELECT maintain('2 days');
SELECT maintain('2 days');
SELECT maintain('2 days');
SELECT day FROM parts ORDER BY day;
-- retention 0: all whose day is over, and no other
SELECT maintain('0');
SELECT maintain('0');
SELECT day FROM parts ORDER BY day;
-- What depends on one that is to be cut down piece by piece keeps it whole, and is named.
CALL add_day(4);
INSERT INTO outbox_archive (seq, id, route, event_type, created_at, attempts, published_at, body)
	SELECT i, outbox_uuid7(), 'default', 'e', now(), 0, clock_timestamp() - interval '96 hours', convert_to(repeat('x', 1900), 'UTF8')
	FROM generate_series(1, 10000) i;
CREATE FUNCTION maintain_beside_view() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE VIEW holder AS SELECT FROM outbox_internal.%I', (SELECT relname FROM pg_class
		WHERE relname ~ '^outbox_archive_(p|dropping)' AND relkind = 'r' ORDER BY pg_relation_size(oid) DESC LIMIT 1));
	PERFORM outbox_internal.outbox_archive_maintain('0');
	RETURN 'nothing depends on it';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || regexp_replace(SQLERRM, '_p?\d+', '_N', 'g');
END
$$;
SELECT maintain_beside_view();
SELECT regexp_replace(outbox_internal.outbox_archive_maintain('0'), '\d+', 'N');
SELECT maintain_beside_view();
DO $$
DECLARE
	dropping text := (SELECT relname FROM pg_class WHERE relname ~ '^outbox_archive_dropping');
BEGIN
	EXECUTE format('ALTER EXTENSION outbox DROP TABLE %1$I; DROP TABLE %1$I', dropping);
END
$$;
-- a table of the user that only looks like one is not touched
CREATE TABLE outbox_archive_p20200101 (x int);
SELECT maintain('0');
SELECT count(*) FROM outbox_archive_p20200101;

-- Routes with a retention of their own: a day is divided, by retention
CREATE FUNCTION maintained(retention interval) RETURNS text
LANGUAGE sql AS $$	/* days from today, and no hash */
	SELECT regexp_replace(replace(done, p, 'p' || to_date(p, '"p"YYYYMMDD') - (clock_timestamp() AT TIME ZONE 'UTC')::date),
		'_[0-9a-f]{8}$', '_HASH')
	FROM outbox_internal.outbox_archive_maintain(retention) done, substring(done FROM '_(p[0-9]{8})') p
$$;
CREATE VIEW pieces AS
	SELECT day - (clock_timestamp() AT TIME ZONE 'UTC')::date AS day,
		regexp_replace(substr(name, 25), '_[0-9a-f]{8}$', '_HASH') AS piece, own_retention, alone, due,
		pg_get_expr(c.relpartbound, c.oid) AS bound, obj_description(c.oid, 'pg_class') AS about,
		EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid
			AND deptype = 'e') AS member, c.oid
	FROM outbox_internal.outbox_archive_partitions('3 days') p JOIN pg_class c ON c.oid = p.partition;
CREATE PROCEDURE add_messages(days_ago int)
LANGUAGE sql AS $$
	INSERT INTO outbox_archive (seq, id, route, event_type, created_at, attempts, published_at)
		SELECT days_ago, outbox_uuid7(), r, 'e', now(), 0, clock_timestamp() - days_ago * interval '24 hours'
		FROM unnest(ARRAY['short', 'as short', 'long', E'it''s \\ "odd"', 'none', 'default', 'not there']) r
$$;
TRUNCATE outbox_archive;
SELECT maintained('3 days') FROM generate_series(1, 2);
INSERT INTO outbox_route (name, retention) VALUES ('short', '1 day'), ('as short', '24:00'),
	('long', '1 mon'), (E'it''s \\ "odd"', '0.5 s'), ('none', '0');
-- today stays as it is; days that have not begun are made anew
SELECT maintained('3 days') FROM generate_series(1, 3);
SELECT day, piece, own_retention, CASE WHEN piece <> '' THEN bound END AS bound, member FROM pieces ORDER BY day, piece;
SELECT piece, regexp_replace(about, '\d{4}-\d\d-\d\d', 'DAY') FROM pieces WHERE day = 1 ORDER BY piece;
-- who has locked today's is seen, and nobody waits for those of other days
SELECT p.day, count(*) FROM outbox_table_lockers() l JOIN pieces p ON p.oid = l.relation GROUP BY 1;
-- but not one that has rows, for which there is no reason but a clock
CALL add_messages(-1);
SELECT piece, array_agg(route ORDER BY route COLLATE "C") FROM outbox_archive a JOIN pieces p ON p.oid = a.tableoid
GROUP BY 1 ORDER BY 1;
UPDATE outbox_route SET retention = '2 days' WHERE name = 'long';
SELECT maintained('3 days') FROM generate_series(1, 2);
UPDATE outbox_route SET retention = '1 mon' WHERE name = 'long';
SELECT maintained('3 days') FROM generate_series(1, 2);
-- each piece goes when its retention is over, the rest is emptied, and the day goes last
SELECT outbox_internal.outbox_archive_make_day((clock_timestamp() AT TIME ZONE 'UTC')::date - ago) FROM unnest(ARRAY[2, 4, 40]) ago;
CALL add_messages(2);
CALL add_messages(4);
CALL add_messages(40);
SELECT maintained('3 days') FROM generate_series(1, 9);
SELECT day, piece, alone, due FROM pieces WHERE day < 0 ORDER BY day, piece;
SELECT seq, array_agg(route ORDER BY route COLLATE "C") FROM outbox_archive WHERE seq > 0 GROUP BY 1 ORDER BY 1;
-- what has no place any more finds one, until the day is over for all
CALL add_messages(4);
SELECT maintained('3 days') FROM generate_series(1, 2);
SELECT partitions, ahead, ahead_wanted, overdue, dropping, default_partition_used FROM outbox_internal.outbox_archive_state();
-- nothing is kept but that of these routes
SELECT maintained('0') FROM generate_series(1, 2);
DELETE FROM outbox_route WHERE retention IS NOT NULL;
-- those of a route that is gone are kept as long as it said, and are not behind
SELECT detail FROM outbox_problems WHERE problem = 'archive behind';
SELECT outcome('SELECT outbox_internal.outbox_archive_shrink(''outbox_archive_default'', 1)');
SELECT outcome('SELECT outbox_internal.outbox_archive_shrink(''outbox'', 1)');
SELECT outcome(format('INSERT INTO outbox_route (name, retention) VALUES (''r'', %L)', r))
FROM unnest(ARRAY['-1 s', '80 years']) r;

-- A day whose rows are in the default partition keeps them there
DO $$
DECLARE
	part text;
BEGIN
	FOR part IN SELECT relname FROM pg_class WHERE relname ~ '^outbox_archive_p\d{8}' AND relkind IN ('r', 'p')
			AND oid <> 'outbox_archive_p20200101'::regclass
		ORDER BY 1 DESC LOOP
		EXECUTE format('ALTER EXTENSION outbox DROP TABLE %I', part);
		EXECUTE format('DROP TABLE %I', part);
	END LOOP;
END
$$;
INSERT INTO outbox_archive (seq, id, route, event_type, created_at, attempts, published_at)
	VALUES (1, outbox_uuid7(), 'default', 'e', now(), 0, clock_timestamp());
SELECT maintain('1 day');
SELECT maintain('1 day');
SELECT maintain('1 day');
-- What depends on a day keeps that day only, whoever has made it, and is named.
-- In the default partition each route's own retention counts.
SELECT outbox_internal.outbox_archive_make_day((clock_timestamp() AT TIME ZONE 'UTC')::date - ago) FROM unnest(ARRAY[4, 5, 40]) ago;
DO $$
BEGIN
	EXECUTE format('CREATE FUNCTION holder_of_a_day() RETURNS oid BEGIN ATOMIC SELECT %L::regclass::oid; END',
		(SELECT min('outbox_internal.' || relname) FROM pg_class WHERE relname ~ '^outbox_archive_p20\d{6}$' AND relnamespace = 'outbox_internal'::regnamespace));
END
$$;
INSERT INTO outbox_route (name, retention) VALUES ('long', '1 mon');
INSERT INTO outbox_archive (seq, id, route, event_type, created_at, attempts, published_at)
	SELECT 12, outbox_uuid7(), r, 'e', now(), 0, clock_timestamp() - interval '12 days' FROM unnest(ARRAY['default', 'long']) r;
SELECT maintained('1 day') FROM generate_series(1, 5);
SELECT day, piece, due FROM pieces WHERE day < 0 ORDER BY day, piece;
SELECT array_agg(route) FROM outbox_archive WHERE seq = 12;
SELECT regexp_replace(outcome('SELECT maintained(''1 day'')'), '_p\d{8}', '_pN', 'g');
-- A day that is kept, as doc/maintenance.md has it, is the administrator's, with all its pieces
SELECT outbox_internal.outbox_archive_make_day((clock_timestamp() AT TIME ZONE 'UTC')::date - 3);
CALL add_messages(3);
SELECT to_char((clock_timestamp() AT TIME ZONE 'UTC')::date - 3, '"outbox_archive_p"YYYYMMDD') AS day \gset
CREATE SCHEMA kept;
\set ECHO none
SELECT format('ALTER EXTENSION outbox DROP TABLE %1$s; ALTER TABLE %1$s SET SCHEMA kept', relid)
FROM pg_partition_tree('outbox_internal.' || :'day') \gexec
\set ECHO all
ALTER TABLE outbox_archive DETACH PARTITION kept.:"day";
CREATE ROLE regress_outbox_analyst;
ALTER TABLE kept.:"day" OWNER TO regress_outbox_analyst;
SELECT outbox_enqueue('after', '{}') IS NOT NULL AS enqueues;
SELECT count(*) FROM kept.:"day";
SELECT substr(c.relname, 25) ~ '^(_rest|_\d+_[0-9a-f]+)?$' AS piece, e.extname FROM pg_class c
	LEFT JOIN (pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND d.deptype = 'e') ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
WHERE c.relnamespace = 'kept'::regnamespace AND c.relkind IN ('r', 'p');
ROLLBACK;

-- What is cut off does not come back: not of a table that may become another again,
-- and not beside somebody who reads it
CREATE TABLE outbox_archive_dropping_1 (a text) WITH (autovacuum_enabled = off);
INSERT INTO outbox_archive_dropping_1 SELECT repeat('x', 500) FROM generate_series(1, 100);
CREATE INDEX ON outbox_archive_dropping_1 (a);
CREATE TABLE shrink_later (a text);
\set VERBOSITY sqlstate
SELECT outbox_internal.outbox_archive_shrink('outbox_archive_dropping_1', 0);
SELECT outbox_internal.outbox_archive_shrink('outbox_archive_dropping_1', -1);
SELECT outbox_internal.outbox_archive_shrink(1, 1);
BEGIN READ ONLY;
SELECT outbox_internal.outbox_archive_shrink('outbox_archive_dropping_1', 1);
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT FROM outbox_archive_dropping_1;
FETCH c;
SELECT outbox_internal.outbox_archive_shrink('outbox_archive_dropping_1', 1);
ROLLBACK;
BEGIN;
SAVEPOINT s;
ALTER TABLE shrink_later RENAME TO outbox_archive_dropping_2;
RELEASE s;
SELECT outbox_internal.outbox_archive_shrink('outbox_archive_dropping_2', 1);
ROLLBACK;
\set VERBOSITY default
SELECT count(*) FROM outbox_archive_dropping_1;
SELECT outbox_internal.outbox_archive_shrink('outbox_archive_dropping_1', 1), outbox_internal.outbox_archive_shrink('outbox_archive_dropping_1', 1000),
	pg_relation_size('outbox_archive_dropping_1') + pg_indexes_size('outbox_archive_dropping_1') AS bytes;
DROP TABLE outbox_archive_dropping_1, shrink_later;

DROP VIEW parts;
