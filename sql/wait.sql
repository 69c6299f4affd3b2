-- outbox_wait(): what it says at once, and refuses.  What it waits for is in test/isolation
-- and test/t/wait.pl.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
\set SHOW_CONTEXT never
CREATE ROLE regress_outbox_app;
GRANT EXECUTE ON FUNCTION outbox_enqueue, outbox_wait TO regress_outbox_app;
TRUNCATE outbox, outbox_archive;
\set id '''00000000-0000-7000-8000-000000000001'''
\set no_id '''00000000-0000-7000-8000-000000000002'''
SELECT outbox_enqueue('e', '{}', message_id => :id) = :id;

-- whoever may call it needs no right on the tables
SET ROLE regress_outbox_app;
SELECT outbox_wait(:id, '0'), outbox_wait(:id, '2 ms'), outbox_wait(:no_id);
SELECT outbox_wait(NULL);
SELECT outbox_wait(:id, NULL);
SELECT outbox_wait(:id, '-1 us');
SELECT outbox_wait(:id, '01:00:00.000001');
SELECT outbox_wait(:id, '1 day');
SELECT outbox_wait(:id, '-1 month 1 hour');
RESET ROLE;

-- not in the transaction that has enqueued it
BEGIN;
SELECT outbox_enqueue('e', '{}', message_id => :no_id) = :no_id;
SELECT outbox_wait(:id, '0');
SELECT outbox_wait(:no_id);
ROLLBACK;
SELECT outbox_wait(outbox_enqueue('e', '{}', message_id => :no_id));
BEGIN;
SAVEPOINT s;
INSERT INTO outbox (id, event_type, payload) VALUES (:no_id, 'e', '{}');
RELEASE s;
SELECT outbox_wait(:no_id);
ROLLBACK;
DO $$
BEGIN
	BEGIN
		INSERT INTO outbox (id, event_type, payload) VALUES ('00000000-0000-7000-8000-000000000002', 'e', '{}');
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN NULL;
	END;
	RAISE INFO 'rolled back: %', outbox_wait('00000000-0000-7000-8000-000000000002');
	BEGIN
		PERFORM outbox_wait(outbox_enqueue('e', '{}'));
	EXCEPTION WHEN active_sql_transaction THEN RAISE INFO 'refused';
	END;
END
$$;
-- nor in one that has changed it
BEGIN;
UPDATE outbox SET status = 'failed';
SELECT outbox_wait(:id);
ROLLBACK;

-- in a transaction that may write nothing
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT count(*) FROM outbox;
SELECT outbox_wait(:id, '0');
COMMIT;

-- settled
UPDATE outbox SET status = 'failed';
SELECT outbox_wait(:id);
INSERT INTO outbox_archive (seq, id, route, event_type, created_at, attempts, published_at)
	SELECT seq, id, route, event_type, created_at, attempts, now() FROM outbox;
SELECT outbox_wait(:id);
TRUNCATE outbox;
SELECT outbox_wait(:id);
TRUNCATE outbox_archive;
SELECT outbox_wait(:id);

-- policies that hide rows do not hide them from it
ALTER TABLE outbox ENABLE ROW LEVEL SECURITY;
ALTER TABLE outbox FORCE ROW LEVEL SECURITY;
SELECT outbox_enqueue('e', '{}', message_id => :id) = :id;
SET ROLE regress_outbox_app;
SELECT outbox_wait(:id, '0');
RESET ROLE;
ALTER TABLE outbox NO FORCE ROW LEVEL SECURITY;
ALTER TABLE outbox DISABLE ROW LEVEL SECURITY;

\pset tuples_only on
\pset format unaligned
-- A message of a route that the caller may not enqueue to is like one that is not there: it is
-- the current user who counts, and the route that the message is on now.
CREATE ROLE regress_outbox_tenant;
GRANT EXECUTE ON FUNCTION outbox_wait TO regress_outbox_tenant;
INSERT INTO outbox_route (name, enqueue_roles) VALUES ('tenant', '{regress_outbox_tenant}'), ('nobody', '{}');
CREATE FUNCTION outbox_regress.told(id uuid) RETURNS text SECURITY DEFINER SET search_path FROM CURRENT
LANGUAGE sql AS 'SELECT outbox_wait(id, ''0'')';
CREATE VIEW outbox_regress.answers AS SELECT outbox_wait('00000000-0000-7000-8000-000000000001', '0'),
	told('00000000-0000-7000-8000-000000000001') AS by_definer;
-- by the one, the other and the owner; each also by a function of the owner's
GRANT SELECT ON outbox_regress.answers TO PUBLIC;
\set answers 'SET ROLE regress_outbox_app; SELECT * FROM answers; SET ROLE regress_outbox_tenant; SELECT * FROM answers; RESET ROLE; SELECT * FROM answers;'
UPDATE outbox SET route = 'tenant';
:answers
-- in its own transaction, too: it cannot tell whose it is
BEGIN;
UPDATE outbox SET event_type = 'changed';
SET ROLE regress_outbox_app;
SELECT outbox_wait(:id, '0');
ROLLBACK;
UPDATE outbox SET status = 'failed';
:answers
-- moved to where it may not enqueue
UPDATE outbox SET route = 'nobody', status = 'pending';
:answers
UPDATE outbox SET route = 'tenant';
-- published; and the same id, by one whose route neither may use
INSERT INTO outbox_archive (seq, id, route, event_type, created_at, attempts, published_at)
	SELECT seq, id, route, event_type, created_at, attempts, now() FROM outbox;
TRUNCATE outbox;
:answers
INSERT INTO outbox_archive (seq, id, route, event_type, created_at, attempts, published_at)
	SELECT seq, id, 'nobody', event_type, created_at, attempts, now() FROM outbox_archive;
:answers
-- of a route that is gone only the owner of the tables knows
DELETE FROM outbox_route WHERE name = 'tenant';
:answers
TRUNCATE outbox_archive;
DELETE FROM outbox_route WHERE name = 'nobody';
DROP VIEW outbox_regress.answers;
DROP FUNCTION outbox_regress.told(uuid);

TRUNCATE outbox;
REVOKE EXECUTE ON FUNCTION outbox_enqueue, outbox_wait FROM regress_outbox_app;
REVOKE EXECUTE ON FUNCTION outbox_wait FROM regress_outbox_tenant;
DROP ROLE regress_outbox_app, regress_outbox_tenant;
