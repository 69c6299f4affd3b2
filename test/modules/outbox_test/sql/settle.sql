-- Settling: published messages leave the table.
SELECT outbox_test_worker_session();

CREATE TEMP TABLE claimed (LIKE outbox, tid tid);
CREATE PROCEDURE pg_temp.fill()
LANGUAGE sql AS $$
	TRUNCATE outbox, outbox_archive, claimed;
	INSERT INTO outbox (event_type, payload, aggregate_id, headers, properties, routing_key, attempts)
		SELECT 'e' || i, to_jsonb(i), i, '{"h": 1}', '{"priority": 1}', 'k', i FROM generate_series(1, 5) i;
	INSERT INTO outbox (event_type, body) VALUES ('bytes', '\x00');
	INSERT INTO claimed SELECT *, ctid FROM outbox;
$$;
-- how many remain
CREATE FUNCTION pg_temp.settle(archive text DEFAULT 'message') RETURNS bigint
LANGUAGE sql AS $$
	SELECT count(*) FILTER (WHERE r) FROM unnest(
		(SELECT outbox_test_settle(array_agg(tid), array_agg(id), archive) FROM claimed)) r
$$;
CREATE TEMP VIEW result AS
	SELECT (SELECT count(*) FROM outbox) AS live, count(*) AS archived,
		count(*) FILTER (WHERE (c.seq, c.id, c.route, c.event_type, c.aggregate_type, c.aggregate_id,
			c.payload, c.body, c.headers, c.properties, c.routing_key, c.created_at, c.attempts)
			IS NOT DISTINCT FROM (a.seq, a.id, a.route, a.event_type, a.aggregate_type, a.aggregate_id,
			a.payload, a.body, a.headers, a.properties, a.routing_key, a.created_at, a.attempts)) AS same
	FROM outbox_archive a LEFT JOIN claimed c USING (id);

-- into the archive, as they were
CALL pg_temp.fill();
SELECT pg_temp.settle();
SELECT * FROM pg_temp.result;
SELECT bool_and(published_at BETWEEN now() - interval '1 minute' AND clock_timestamp()) FROM outbox_archive;
SELECT event_type, status FROM outbox_messages ORDER BY seq;
-- again, as after a lost commit: nothing twice
SELECT pg_temp.settle();
SELECT * FROM pg_temp.result;

-- or, with retention 0, nowhere
CALL pg_temp.fill();
SELECT pg_temp.settle('none');
SELECT * FROM pg_temp.result;

-- or all but the body: without the statement, and by it those that have moved
CREATE TEMP VIEW metadata AS
	SELECT count(*) FILTER (WHERE num_nonnulls(a.payload, a.body) = 0) AS bodiless,
		count(*) FILTER (WHERE (c.seq, c.id, c.route, c.event_type, c.aggregate_type, c.aggregate_id,
			c.headers, c.properties, c.routing_key, c.created_at, c.attempts)
			IS NOT DISTINCT FROM (a.seq, a.id, a.route, a.event_type, a.aggregate_type, a.aggregate_id,
			a.headers, a.properties, a.routing_key, a.created_at, a.attempts)) AS same,
		count(DISTINCT published_at) AS times
	FROM outbox_archive a LEFT JOIN claimed c USING (id);
CALL pg_temp.fill();
SELECT pg_temp.settle('metadata');
SELECT r.live, r.archived, m.* FROM pg_temp.result r, pg_temp.metadata m;
SELECT event_type, status, payload, body, published_at IS NOT NULL AS published FROM outbox_messages ORDER BY seq;
CALL pg_temp.fill();
UPDATE outbox SET attempts = attempts + 1;
UPDATE claimed SET attempts = attempts + 1;
SELECT pg_temp.settle('metadata');
SELECT r.live, r.archived, m.bodiless, m.same, m.times > 1 AS by_statement FROM pg_temp.result r, pg_temp.metadata m;

-- A row that was changed since is not where it was, but found
CALL pg_temp.fill();
UPDATE outbox SET routing_key = 'changed' WHERE event_type IN ('e2', 'bytes');
SELECT pg_temp.settle();
SELECT * FROM pg_temp.result;
SELECT event_type, routing_key FROM outbox_archive ORDER BY seq;
CALL pg_temp.fill();
UPDATE outbox SET routing_key = 'changed';
SELECT pg_temp.settle('none');
SELECT * FROM pg_temp.result;

-- A row that was discarded since is gone; the others are settled
CALL pg_temp.fill();
SELECT outbox_discard(id) FROM outbox WHERE event_type = 'e3';
SELECT pg_temp.settle();
SELECT * FROM pg_temp.result;

-- Rows that moved: others have taken their places, and stay
CALL pg_temp.fill();
DELETE FROM claimed WHERE event_type NOT IN ('e3', 'e4');
CREATE INDEX backwards ON outbox (seq DESC);
CLUSTER outbox USING backwards;
DROP INDEX backwards;
DELETE FROM outbox WHERE event_type IN ('e1', 'e2');
SELECT count(*) FROM claimed c JOIN outbox o ON o.ctid = c.tid AND o.seq <> c.seq;
SELECT pg_temp.settle();
SELECT event_type FROM outbox ORDER BY seq;
SELECT event_type FROM outbox_archive ORDER BY seq;

-- The table has become shorter than where they were
CALL pg_temp.fill();
TRUNCATE outbox;
SELECT pg_temp.settle();
SELECT pg_temp.settle('none');
SELECT * FROM pg_temp.result;

-- One without an id is none of ours
BEGIN;
CALL pg_temp.fill();
ALTER TABLE outbox DROP CONSTRAINT outbox_pkey, ALTER id DROP NOT NULL, DISABLE TRIGGER outbox_row;
TRUNCATE outbox;
INSERT INTO outbox (id, event_type) SELECT NULL, event_type FROM claimed;
SELECT pg_temp.settle();
SELECT * FROM pg_temp.result;
ROLLBACK;

-- Many in one statement
TRUNCATE outbox, outbox_archive, claimed;
INSERT INTO outbox (event_type, payload) SELECT 'e', to_jsonb(i) FROM generate_series(1, 10000) i;
INSERT INTO claimed SELECT *, ctid FROM outbox ORDER BY random();
SELECT pg_temp.settle();
SELECT count(*) FROM outbox;
SELECT count(DISTINCT id) FROM outbox_archive;

-- What kind of partition takes them: found for each row before it is deleted.
-- Without the statement all rows of a round have one time.
CREATE TEMP VIEW way AS
	SELECT CASE count(DISTINCT published_at) WHEN 1 THEN 'direct' ELSE 'statement' END AS way FROM outbox_archive;
ALTER TABLE outbox_archive DETACH PARTITION outbox_internal.outbox_archive_default;
DO $$
DECLARE day regclass;
BEGIN
	FOR day IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'outbox_archive'::regclass LOOP
		EXECUTE format('ALTER EXTENSION outbox DROP TABLE %s', day);
		EXECUTE format('DROP TABLE %s', day);
	END LOOP;
END $$;
-- none
CALL pg_temp.fill();
\set VERBOSITY terse
SELECT pg_temp.settle();
\set VERBOSITY default
SELECT * FROM pg_temp.result;
-- one with its columns in another order, and a check of its own
CREATE TABLE other_order (gone int, attempts int NOT NULL, published_at timestamptz NOT NULL,
	created_at timestamptz NOT NULL, available_at timestamptz, routing_key text, properties jsonb, headers jsonb,
	body bytea, payload jsonb, aggregate_id text, aggregate_type text, event_type text NOT NULL,
	route text NOT NULL, id uuid NOT NULL, seq bigint NOT NULL,
	CHECK (tableoid = 'other_order'::regclass AND attempts < 6));
ALTER TABLE other_order DROP gone;
CREATE UNIQUE INDEX ON other_order (id);
ALTER TABLE outbox_archive ATTACH PARTITION other_order DEFAULT;
CALL pg_temp.fill();
SELECT pg_temp.settle();
SELECT * FROM pg_temp.result, pg_temp.way;
SET enable_seqscan = off;
SELECT count(*) FROM other_order o JOIN claimed c USING (id) WHERE o.seq = c.seq;
RESET enable_seqscan;
CALL pg_temp.fill();
UPDATE outbox SET attempts = 6 WHERE event_type = 'e5';
UPDATE claimed c SET tid = o.ctid FROM outbox o WHERE o.id = c.id;
\set VERBOSITY terse
SELECT pg_temp.settle();
\set VERBOSITY default
SELECT * FROM pg_temp.result;
-- one with a trigger
CREATE FUNCTION pg_temp.stamp() RETURNS trigger LANGUAGE plpgsql AS
'BEGIN NEW.routing_key := TG_NAME; RETURN NEW; END';
CREATE TRIGGER stamped BEFORE INSERT ON other_order FOR EACH ROW EXECUTE FUNCTION pg_temp.stamp();
CALL pg_temp.fill();
SELECT pg_temp.settle();
SELECT way, r.live, r.archived, (SELECT count(*) FROM outbox_archive WHERE routing_key = 'stamped') AS stamped
FROM pg_temp.result r, pg_temp.way;
DROP TABLE other_order;
-- one that is partitioned in its turn, by another column
CREATE TABLE by_type PARTITION OF outbox_archive DEFAULT PARTITION BY LIST (event_type);
CREATE TABLE by_type_e1 PARTITION OF by_type FOR VALUES IN ('e1');
CREATE TABLE by_type_others PARTITION OF by_type DEFAULT;
CALL pg_temp.fill();
SELECT pg_temp.settle();
SELECT * FROM pg_temp.result, pg_temp.way;
SELECT tableoid::regclass, count(*) FROM outbox_archive GROUP BY 1 ORDER BY 1;
-- of which one has a trigger: the statement takes its rows only
CREATE TRIGGER stamped BEFORE INSERT ON by_type_e1 FOR EACH ROW EXECUTE FUNCTION pg_temp.stamp();
CALL pg_temp.fill();
SELECT pg_temp.settle();
SELECT * FROM pg_temp.result;
SELECT tableoid::regclass, count(*), count(DISTINCT published_at) AS times, count(*) FILTER (WHERE routing_key = 'stamped') AS stamped
FROM outbox_archive GROUP BY 1 ORDER BY 1;
DROP TABLE by_type;
ALTER TABLE outbox_archive ATTACH PARTITION outbox_internal.outbox_archive_default DEFAULT;

-- Into the partition of today, where there is one, as the statement would
DO $$ BEGIN WHILE outbox_internal.outbox_archive_maintain('1 day') IS NOT NULL LOOP END LOOP; END $$;
CALL pg_temp.fill();
SELECT pg_temp.settle();
SELECT * FROM pg_temp.result;
SELECT DISTINCT tableoid::regclass::text = 'outbox_internal.outbox_archive_p' || to_char(published_at AT TIME ZONE 'UTC', 'YYYYMMDD') AS its_day
FROM outbox_archive;

-- Large values are what they were, and are not compressed anew
CALL pg_temp.fill();
UPDATE outbox SET payload = NULL, body = decode(repeat(md5(event_type), 20000), 'hex') WHERE event_type = 'e1';
UPDATE outbox SET payload = (SELECT jsonb_agg(sha256(i::text::bytea)::text) FROM generate_series(1, 5000) i)
WHERE event_type = 'e2';
TRUNCATE claimed;
INSERT INTO claimed SELECT *, ctid FROM outbox;
SELECT pg_temp.settle();
SELECT * FROM pg_temp.result;
-- of which 'metadata' writes nothing
CREATE FUNCTION pg_temp.archived_bytes() RETURNS bigint LANGUAGE sql
AS $$ SELECT sum(pg_table_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'outbox_archive'::regclass $$;
SELECT pg_temp.archived_bytes() > 200000 AS with_bodies;
CALL pg_temp.fill();
UPDATE outbox SET payload = NULL, body = decode(repeat(md5(event_type), 20000), 'hex') WHERE event_type = 'e1';
TRUNCATE claimed;
INSERT INTO claimed SELECT *, ctid FROM outbox;
SELECT pg_temp.settle('metadata');
SELECT m.*, pg_temp.archived_bytes() < 200000 AS small FROM pg_temp.metadata m;
SELECT count(DISTINCT attstorage), min(attstorage)
FROM pg_attribute WHERE attname IN ('payload', 'body', 'headers', 'properties')
	AND attrelid IN (SELECT 'outbox_archive'::regclass UNION
		SELECT inhrelid FROM pg_inherits WHERE inhparent = 'outbox_archive'::regclass);

-- Indexes that somebody has added are kept
CREATE INDEX added ON outbox_archive (upper(event_type)) WHERE aggregate_id IS NOT NULL;
CALL pg_temp.fill();
SELECT pg_temp.settle();
SET enable_seqscan = off;
SELECT count(*) FROM outbox_archive WHERE upper(event_type) LIKE 'E%' AND aggregate_id IS NOT NULL;
RESET enable_seqscan;
DROP INDEX added;
-- and so are checks: nothing is settled
ALTER TABLE outbox_archive ADD CONSTRAINT added CHECK (event_type <> 'e4') NOT VALID;
CALL pg_temp.fill();
\set VERBOSITY sqlstate
SELECT pg_temp.settle();
\set VERBOSITY default
SELECT * FROM pg_temp.result;
ALTER TABLE outbox_archive DROP CONSTRAINT added;
TRUNCATE outbox_archive;
ALTER TABLE outbox_archive ALTER aggregate_id SET NOT NULL;
CALL pg_temp.fill();
\set VERBOSITY sqlstate
SELECT pg_temp.settle();
\set VERBOSITY default
SELECT * FROM pg_temp.result;
ALTER TABLE outbox_archive ALTER aggregate_id DROP NOT NULL;

-- Triggers that somebody has added fire
CREATE TEMP TABLE fired (what text);
CREATE FUNCTION pg_temp.fire() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO pg_temp.fired VALUES (TG_NAME);
	RETURN NULL;
END $$;
CREATE TRIGGER added_row AFTER DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION pg_temp.fire();
CALL pg_temp.fill();
SELECT pg_temp.settle();
SELECT * FROM pg_temp.result;
CALL pg_temp.fill();
SELECT pg_temp.settle('none');
SELECT * FROM pg_temp.result;
DROP TRIGGER added_row ON outbox;
CREATE TRIGGER added_archived AFTER INSERT ON outbox_archive FOR EACH ROW EXECUTE FUNCTION pg_temp.fire();
CALL pg_temp.fill();
SELECT pg_temp.settle();
SELECT * FROM pg_temp.result;
DROP TRIGGER added_archived ON outbox_archive;
SELECT what, count(*) FROM fired GROUP BY what ORDER BY what;

-- and a column gets its default
ALTER TABLE outbox_archive ADD added integer DEFAULT 7;
CALL pg_temp.fill();
SELECT pg_temp.settle();
SELECT * FROM pg_temp.result;
SELECT DISTINCT added FROM outbox_archive;
ALTER TABLE outbox_archive DROP added;
CALL pg_temp.fill();
SELECT pg_temp.settle();
SELECT * FROM pg_temp.result, pg_temp.way;

-- and so does one of the bodies that 'metadata' leaves out
ALTER TABLE outbox_archive ALTER payload SET DEFAULT '"redacted"';
CALL pg_temp.fill();
SELECT pg_temp.settle('metadata');
SELECT payload, count(*) FROM outbox_archive GROUP BY payload;
ALTER TABLE outbox_archive ALTER payload DROP DEFAULT;

-- A table that has the name of the archive takes nothing: it is none of the extension's
CALL pg_temp.fill();
BEGIN;
ALTER TABLE outbox_archive RENAME TO history;
CREATE TABLE outbox_archive (LIKE history) PARTITION BY RANGE (published_at);
CREATE TABLE theirs PARTITION OF outbox_archive DEFAULT;
SELECT pg_temp.settle();
ROLLBACK;
SELECT * FROM pg_temp.result;
SELECT pg_temp.settle();
SELECT * FROM pg_temp.result, pg_temp.way;

-- It is undone with its transaction: the messages are still to be published
CALL pg_temp.fill();
BEGIN;
SELECT pg_temp.settle();
ROLLBACK;
SELECT * FROM pg_temp.result;
SELECT count(*) FROM outbox_test_claim();
TRUNCATE outbox, outbox_archive;

-- A rule that leaves nothing of a DELETE is over when it is dropped
INSERT INTO outbox (event_type, payload) VALUES ('ruled', '1');
CREATE RULE added AS ON DELETE TO outbox DO INSTEAD NOTHING;
SELECT outbox_test_settle(array_agg(ctid), array_agg(id), 'none') FROM outbox;
DROP RULE added ON outbox;
SELECT outbox_test_settle(array_agg(ctid), array_agg(id), 'none') FROM outbox;
SELECT count(*) FROM outbox;
TRUNCATE outbox;

-- A trigger that keeps a published row would have it published for ever
TRUNCATE outbox, outbox_archive;
CREATE FUNCTION pg_temp.keep() RETURNS trigger LANGUAGE plpgsql AS
'BEGIN RETURN CASE WHEN OLD.event_type = ''e2'' THEN NULL ELSE OLD END; END';
CREATE TRIGGER keep BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION pg_temp.keep();
CALL pg_temp.fill();
SELECT pg_temp.settle();
SELECT pg_temp.settle('none');
SELECT count(*) FROM outbox;
DROP TRIGGER keep ON outbox;
TRUNCATE outbox, outbox_archive;
