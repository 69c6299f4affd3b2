-- A message exists if and only if the transaction that enqueued it commits.
SET client_min_messages = error;
\set SHOW_CONTEXT never

CREATE TABLE outbox_regress.orders (id int PRIMARY KEY,
	amount bigint NOT NULL CHECK (amount > 0));
CREATE FUNCTION outbox_regress.create_order(id int, amount bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO outbox_regress.orders VALUES (id, amount);
	PERFORM outbox_enqueue('order.created',
		jsonb_build_object('id', id, 'amount', amount),
		aggregate_type => 'order', aggregate_id => id::text);
END
$$;
CREATE VIEW outbox_regress.both AS
	SELECT o.id AS order_id, m.aggregate_id, m.payload
	FROM outbox_regress.orders o FULL JOIN outbox m ON m.aggregate_id = o.id::text
	ORDER BY coalesce(o.id::text, m.aggregate_id);

-- Business row and message, or neither: with the right payload and id
SELECT outbox_regress.create_order(1, 1999);
SELECT outbox_regress.create_order(2, -5);
SELECT outbox_regress.create_order(1, 100);
BEGIN;
SELECT outbox_regress.create_order(3, 5);
ROLLBACK;
TABLE outbox_regress.both;

-- A message that is refused takes its transaction with it
BEGIN;
INSERT INTO outbox_regress.orders VALUES (4, 4);
SELECT outbox_enqueue('', '{}');
COMMIT;
TABLE outbox_regress.both;

-- Savepoints
BEGIN;
SELECT outbox_regress.create_order(5, 5);
SAVEPOINT a;
SELECT outbox_regress.create_order(6, 6);
ROLLBACK TO a;
SELECT outbox_regress.create_order(7, 7);
RELEASE a;
COMMIT;
TABLE outbox_regress.both;

-- An exception that is caught
DO $$
BEGIN
	PERFORM outbox_regress.create_order(8, 8);
	BEGIN
		PERFORM outbox_regress.create_order(9, 9);
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
END
$$;
TABLE outbox_regress.both;

-- A trigger that enqueues
TRUNCATE outbox, outbox_regress.orders;
CREATE FUNCTION outbox_regress.order_event() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM outbox_enqueue('order.' || lower(TG_OP), to_jsonb(coalesce(NEW, OLD)),
		aggregate_type => 'order', aggregate_id => (coalesce(NEW, OLD)).id::text);
	RETURN NULL;
END
$$;
CREATE TRIGGER event AFTER INSERT OR UPDATE OR DELETE ON outbox_regress.orders
	FOR EACH ROW EXECUTE FUNCTION outbox_regress.order_event();
INSERT INTO outbox_regress.orders VALUES (1, 10), (2, 20);
UPDATE outbox_regress.orders SET amount = 11 WHERE id = 1;
INSERT INTO outbox_regress.orders VALUES (3, 30), (4, -1);
DELETE FROM outbox_regress.orders WHERE id = 2;
SELECT event_type, aggregate_id, payload FROM outbox ORDER BY seq;

-- A deferred one enqueues at commit
TRUNCATE outbox, outbox_regress.orders;
DROP TRIGGER event ON outbox_regress.orders;
CREATE CONSTRAINT TRIGGER event AFTER INSERT ON outbox_regress.orders
	DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION outbox_regress.order_event();
BEGIN;
INSERT INTO outbox_regress.orders VALUES (1, 10);
SELECT count(*) FROM outbox;
COMMIT;
SELECT event_type, aggregate_id FROM outbox;

-- A procedure that commits and rolls back
TRUNCATE outbox;
CREATE PROCEDURE outbox_regress.batch()
LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..6 LOOP
		PERFORM outbox_enqueue('batch', to_jsonb(i));
		IF i % 2 = 0 THEN COMMIT; ELSIF i % 3 = 0 THEN ROLLBACK; END IF;
	END LOOP;
END
$$;
CALL outbox_regress.batch();
SELECT payload FROM outbox ORDER BY seq;

-- A portal that outlives the statement, and a read-only transaction
TRUNCATE outbox;
BEGIN;
DECLARE c CURSOR FOR SELECT outbox_enqueue('c', to_jsonb(i)) IS NOT NULL FROM generate_series(1, 5) i;
FETCH 2 FROM c;
COMMIT;
SELECT payload FROM outbox ORDER BY seq;
BEGIN READ ONLY;
SELECT outbox_enqueue('e', '{}');
ROLLBACK;

\set VERBOSITY sqlstate
BEGIN READ ONLY;
SELECT outbox_enqueue('e', '{}');
ROLLBACK;
\set VERBOSITY default

-- Out of a big table, with everything set for parallel plans: a serial one, all rows
TRUNCATE outbox;
BEGIN;
CREATE TABLE outbox_regress.big AS SELECT i FROM generate_series(1, 20000) i;
ANALYZE outbox_regress.big;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
SET LOCAL max_parallel_workers_per_gather = 4;
SELECT set_config(name, 'on', true) IS NOT NULL AS forced FROM pg_settings
WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
EXPLAIN (COSTS OFF) SELECT sum(i) FROM outbox_regress.big WHERE i % 10 = 0;
EXPLAIN (COSTS OFF) SELECT outbox_enqueue('p', to_jsonb(i)) FROM outbox_regress.big WHERE i % 10 = 0;
SELECT count(outbox_enqueue('p', to_jsonb(i))) FROM outbox_regress.big WHERE i % 10 = 0;
COMMIT;
SELECT count(*), count(DISTINCT payload), max(payload::int) FROM outbox;
TRUNCATE outbox;
DROP TABLE outbox_regress.big;

-- Temporary tables of the same names in front are not taken for ours
CREATE TEMP TABLE outbox (LIKE public.outbox);
CREATE TEMP TABLE outbox_route (LIKE public.outbox_route);
SELECT outbox_enqueue('temp', '{}') IS NOT NULL AS ok;
SELECT count(*) FROM pg_temp.outbox;
SELECT event_type FROM public.outbox WHERE event_type = 'temp';
DROP TABLE pg_temp.outbox, pg_temp.outbox_route;

-- As behind a pooler: a session is reset between clients, each with a search_path of
-- its own, and nothing of it is needed
SELECT outbox_enqueue('pooled', '1') IS NOT NULL AS ok;
DISCARD ALL;
SELECT outbox_enqueue('pooled', '2') IS NOT NULL AS ok;
DISCARD PLANS;
SET search_path = pg_catalog;
BEGIN;
SELECT public.outbox_enqueue('pooled', '3') IS NOT NULL AS ok;
INSERT INTO public.outbox (event_type, payload) VALUES ('pooled', '4');
COMMIT;
DISCARD ALL;
SELECT public.outbox_enqueue_text('pooled', '5') IS NOT NULL AS ok;
INSERT INTO public.outbox_new (event_type, payload) VALUES ('pooled', '6');
SELECT payload FROM public.outbox WHERE event_type = 'pooled' ORDER BY seq;

TRUNCATE outbox;
DROP VIEW outbox_regress.both;
DROP TABLE outbox_regress.orders;

-- A route of a statement that fails is forgotten with it
CREATE FUNCTION public.use_route() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM outbox_enqueue('e', '{}', route => NEW.name);
	RAISE 'used';
END
$$;
CREATE TRIGGER a AFTER INSERT ON outbox_route FOR EACH ROW EXECUTE FUNCTION public.use_route();
INSERT INTO outbox_route (name) VALUES ('undone');
SELECT outbox_enqueue('e', '{}', route => 'undone') IS NOT NULL AS ok;
TRUNCATE outbox;
DROP TRIGGER a ON outbox_route;
DROP FUNCTION public.use_route;
