-- Triggers that an administrator adds: they run as the owner under
-- outbox_enqueue(), in a restricted operation, which a deferred one outlives.
SET search_path = public, outbox_regress;
SET client_min_messages = error;
\pset format unaligned
\pset tuples_only on
CREATE ROLE regress_outbox_app;
GRANT USAGE ON SCHEMA outbox_regress TO PUBLIC;
GRANT EXECUTE ON FUNCTION outbox_enqueue, outbox_enqueue_batch TO regress_outbox_app;
GRANT INSERT ON outbox TO regress_outbox_app;
SELECT relowner::regrole AS owner FROM pg_class WHERE oid = 'outbox'::regclass \gset

-- who, with which search_path
CREATE TABLE outbox_regress.seen (what text, who text, path text);
CREATE FUNCTION outbox_regress.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO outbox_regress.seen VALUES (NEW.event_type, current_user, current_setting('search_path'));
	RETURN NULL;
END $$;
GRANT INSERT ON outbox_regress.seen TO regress_outbox_app;
CREATE TRIGGER note AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION outbox_regress.note();
SET ROLE regress_outbox_app;
SELECT outbox_enqueue('function', '{}') IS NOT NULL;
INSERT INTO outbox (event_type, payload) VALUES ('insert', '{}');
RESET ROLE;
SELECT what, who = :'owner' AS owner, path FROM outbox_regress.seen;
SHOW search_path;
DROP TRIGGER note ON outbox;

-- what is deferred is refused by its name, and an INSERT has it
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON outbox DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION outbox_regress.note();
SET ROLE regress_outbox_app;
SELECT outcome($$SELECT outbox_enqueue('late', '{}')$$);
SELECT outcome($$SELECT outbox_enqueue_batch('[{"event_type": "late", "payload": 1}]')$$);
BEGIN;
INSERT INTO outbox (event_type, payload) VALUES ('late insert', '{}');
COMMIT;
RESET ROLE;
SELECT what FROM outbox_regress.seen WHERE what LIKE 'late%';
-- but not one that is immediate, or disabled
ALTER TABLE outbox DISABLE TRIGGER late;
SELECT outbox_enqueue('disabled', '{}') IS NOT NULL;
DROP TRIGGER late ON outbox;
CREATE CONSTRAINT TRIGGER prompt AFTER INSERT ON outbox DEFERRABLE INITIALLY IMMEDIATE
	FOR EACH ROW EXECUTE FUNCTION outbox_regress.note();
SELECT outbox_enqueue('prompt', '{}') IS NOT NULL;
SELECT what FROM outbox_regress.seen WHERE what = 'prompt';
DROP TRIGGER prompt ON outbox;
-- a constraint has the name that the administrator gave it
CREATE TABLE outbox_regress.kinds (kind text PRIMARY KEY);
INSERT INTO outbox_regress.kinds VALUES ('known');
ALTER TABLE outbox ADD CONSTRAINT known_kind FOREIGN KEY (event_type)
	REFERENCES outbox_regress.kinds DEFERRABLE INITIALLY DEFERRED NOT VALID;
SELECT outcome($$SELECT outbox_enqueue('known', '{}')$$);
ALTER TABLE outbox ALTER CONSTRAINT known_kind DEFERRABLE INITIALLY IMMEDIATE;
SELECT outbox_enqueue('known', '{}') IS NOT NULL;
SELECT split_part(outcome($$SELECT outbox_enqueue('unknown', '{}')$$), E'\n', 1);
ALTER TABLE outbox DROP CONSTRAINT known_kind;

-- The functions for operators, on each table that they write to
BEGIN;
CREATE TABLE outbox_regress.written (name text, event text, call text);
INSERT INTO outbox_regress.written VALUES
	('outbox', 'UPDATE', $$SELECT outbox_requeue('00000000-0000-7000-8000-000000000001')$$),
	('outbox', 'DELETE', $$SELECT outbox_discard('00000000-0000-7000-8000-000000000001')$$),
	('outbox_route', 'UPDATE', $$SELECT outbox_pause('default')$$), ('outbox_control', 'UPDATE', 'SELECT outbox_pause()'),
	('outbox_history', 'INSERT', $$SELECT outbox_pause('default')$$),
	('outbox_archive', 'DELETE', $$SELECT outbox_erase('t', '1')$$),
	('outbox_job', 'INSERT', $$SELECT outbox_replay('-infinity')$$),
	('outbox_internal.outbox_job_list', 'INSERT', $$SELECT outbox_replay('-infinity')$$);
CREATE FUNCTION outbox_regress.unheard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
INSERT INTO outbox (id, event_type, payload, status) VALUES ('00000000-0000-7000-8000-000000000001', 'e', '{}', 'failed');
INSERT INTO outbox_archive (id, seq, route, event_type, aggregate_type, aggregate_id, payload, created_at, published_at, attempts)
VALUES ('00000000-0000-7000-8000-000000000003', 1, 'default', 'e', 't', '1', '{}', now(), now(), 1);
CREATE FUNCTION outbox_regress.tried(name text, event text, call text, deferred boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('CREATE CONSTRAINT TRIGGER late AFTER %s ON %s DEFERRABLE %s FOR EACH ROW EXECUTE FUNCTION outbox_regress.unheard()',
		event, name, CASE WHEN deferred THEN 'INITIALLY DEFERRED' ELSE '' END);
	result := split_part(outbox_regress.outcome(call), E'\n', 1);
	EXECUTE 'DROP TRIGGER late ON ' || name;
	RETURN result;
END
$$;
SELECT name, event, outbox_regress.tried(name, event, call, true) FROM outbox_regress.written ORDER BY name COLLATE "C", event;
-- what could be deferred runs, unless the caller has deferred it
SELECT DISTINCT outbox_regress.tried(name, event, call, false) FROM outbox_regress.written;
SELECT DISTINCT outbox_regress.tried(name, event, 'SET CONSTRAINTS ALL DEFERRED; ' || call, false) FROM outbox_regress.written;
ROLLBACK;

-- a trigger that leaves the row out leaves no id
CREATE FUNCTION outbox_regress.drop_it() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER z_drop BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION outbox_regress.drop_it();
SELECT outbox_enqueue('dropped', '{}') IS NULL;
DROP TRIGGER z_drop ON outbox;

-- constraints, defaults, policies and columns of the administrator's
TRUNCATE outbox;
ALTER TABLE outbox ADD tenant text DEFAULT 'none' NOT NULL, ADD twice text GENERATED ALWAYS AS (event_type || event_type) STORED,
	ADD CONSTRAINT no_secret CHECK (event_type <> 'secret'), ALTER aggregate_type SET NOT NULL;
SELECT outcome($$SELECT outbox_enqueue('e', '{}')$$) LIKE '23502 %';
SELECT outcome($$SELECT outbox_enqueue('secret', '{}', aggregate_type => 't')$$) LIKE '23514 %';
SELECT outbox_enqueue('e', '{}', aggregate_type => 't') IS NOT NULL;
SELECT event_type, tenant, twice FROM outbox ORDER BY seq DESC LIMIT 1;
TRUNCATE outbox;
ALTER TABLE outbox DROP CONSTRAINT no_secret, ADD CONSTRAINT no_secret CHECK (event_type <> 'e');
SELECT outcome($$SELECT outbox_enqueue('e', '{}', aggregate_type => 't')$$) LIKE '23514 %';
ALTER TABLE outbox DROP tenant, DROP twice, DROP CONSTRAINT no_secret, ALTER aggregate_type DROP NOT NULL;
ALTER TABLE outbox ALTER created_at SET DEFAULT '2001-01-01';
SELECT outbox_enqueue('old', '{}') IS NOT NULL;
SELECT created_at = '2001-01-01' FROM outbox WHERE event_type = 'old';
ALTER TABLE outbox ALTER created_at SET DEFAULT pg_catalog.clock_timestamp();
-- the views of the extension keep the types of its columns
\set VERBOSITY terse
ALTER TABLE outbox_route ALTER enqueue_roles TYPE text[];
\set VERBOSITY default

TRUNCATE outbox;
DROP TABLE outbox_regress.seen, outbox_regress.kinds;
DROP FUNCTION outbox_regress.note(), outbox_regress.drop_it();
DROP OWNED BY regress_outbox_app;
DROP ROLE regress_outbox_app;
