-- The archive's partitions, one a day (UTC), made ahead and dropped when due.
SET client_min_messages = error;
SET search_path = public, outbox_regress;

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
	FROM outbox_archive_maintain(retention) done
$$;

-- Retention 0 needs none
SELECT maintain('0');
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
	SELECT i, outbox_uuid7(), 'default', 'e', now(), 0, clock_timestamp() + i * interval '1 day'
	FROM generate_series(-3, 3) i;
SELECT tableoid = 'outbox_archive_default'::regclass AS by_default, array_agg(seq ORDER BY seq)
FROM outbox_archive GROUP BY 1 ORDER BY 1;
-- bounds are days of UTC whatever the session's zone
SELECT bool_and(published_at AT TIME ZONE 'UTC' >= to_date(right(tableoid::regclass::text, 8), 'YYYYMMDD')
	AND published_at AT TIME ZONE 'UTC' < to_date(right(tableoid::regclass::text, 8), 'YYYYMMDD') + 1) AS utc
FROM outbox_archive WHERE tableoid <> 'outbox_archive_default'::regclass;
-- what the default partition keeps goes as well, by DELETE
SELECT maintain('1 day');
SELECT array_agg(seq ORDER BY seq) FROM outbox_archive_default;

-- Old partitions, the oldest first, when their last row is out of retention
TRUNCATE outbox_archive_default;
CREATE PROCEDURE add_day(days_ago int)
LANGUAGE plpgsql AS $$
DECLARE
	day date := (clock_timestamp() AT TIME ZONE 'UTC')::date - days_ago;
	part text := 'outbox_archive_p' || to_char(day, 'YYYYMMDD');
BEGIN
	EXECUTE format('CREATE TABLE %I PARTITION OF outbox_archive FOR VALUES FROM (%L) TO (%L)',
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
-- a table of the user that only looks like one is not touched
CREATE TABLE outbox_archive_p20200101 (x int);
SELECT maintain('0');
SELECT count(*) FROM outbox_archive_p20200101;

-- A day whose rows are in the default partition keeps them there
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
INSERT INTO outbox_archive (seq, id, route, event_type, created_at, attempts, published_at)
	VALUES (1, outbox_uuid7(), 'default', 'e', now(), 0, clock_timestamp());
SELECT maintain('1 day');
SELECT maintain('1 day');
SELECT maintain('1 day');
SELECT outcome('SELECT outbox_archive_maintain(NULL)');
ROLLBACK;

DROP VIEW parts;
