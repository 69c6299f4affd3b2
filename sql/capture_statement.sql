-- outbox_capture() FOR EACH STATEMENT: a message for each row of the transition tables.
SET client_min_messages = error;
SELECT outbox_version() IS NOT NULL AS loaded;
SET search_path = public, outbox_regress;
\pset format unaligned
\pset tuples_only on
CREATE FUNCTION taken() RETURNS TABLE (event_type text, aggregate_id text, payload jsonb)
LANGUAGE sql AS $$
	WITH gone AS (DELETE FROM outbox RETURNING *)
	SELECT event_type, aggregate_id, payload FROM gone ORDER BY seq
$$;
-- Three triggers, as the server has it
CREATE PROCEDURE capture(target regclass, VARIADIC args text[]) LANGUAGE plpgsql AS $$
DECLARE
	list text := (SELECT string_agg(quote_literal(a), ',') FROM unnest(args) a);
BEGIN
	EXECUTE format('CREATE TRIGGER inserted AFTER INSERT ON %s REFERENCING NEW TABLE AS n
		FOR EACH STATEMENT EXECUTE FUNCTION outbox_capture(%s)', target, list);
	EXECUTE format('CREATE TRIGGER updated AFTER UPDATE ON %s REFERENCING OLD TABLE AS o NEW TABLE AS n
		FOR EACH STATEMENT EXECUTE FUNCTION outbox_capture(%s)', target, list);
	EXECUTE format('CREATE TRIGGER deleted AFTER DELETE ON %s REFERENCING OLD TABLE AS o
		FOR EACH STATEMENT EXECUTE FUNCTION outbox_capture(%s)', target, list);
END
$$;

CREATE TABLE orders (id integer PRIMARY KEY DEFERRABLE, status text, gone text);
ALTER TABLE orders DROP COLUMN gone;
ALTER TABLE orders ADD note text;
CALL capture('orders', 'event=order', 'payload=diff');
INSERT INTO orders SELECT i, 'new' FROM generate_series(1, 3) i;
UPDATE orders SET status = 'paid' WHERE id < 3;
-- nothing, and nothing that counts
UPDATE orders SET status = 'paid' WHERE id = 7;
UPDATE orders SET status = 'paid' WHERE id < 3;
DELETE FROM orders WHERE id = 1;
COPY orders FROM STDIN WITH (DELIMITER ',');
4,copied,x
5,copied,y
\.
SELECT * FROM taken();
MERGE INTO orders o USING (VALUES (2), (3), (6)) v(id) ON v.id = o.id
	WHEN MATCHED AND o.id = 2 THEN DELETE
	WHEN MATCHED THEN UPDATE SET status = 'merged'
	WHEN NOT MATCHED THEN INSERT VALUES (v.id, 'merged');
SELECT * FROM taken() ORDER BY 1, 2;

-- Keys that change: each key's messages agree with what has become of its row
TRUNCATE orders;
INSERT INTO orders SELECT i, 'row ' || i FROM generate_series(1, 4) i;
DELETE FROM outbox;
UPDATE orders SET id = id + 1;
SELECT * FROM taken();
UPDATE orders SET id = 7 - id;		-- swaps them
SELECT * FROM taken();
SELECT id, status FROM orders ORDER BY id;
-- old keys first, whichever is less
TRUNCATE orders;
INSERT INTO orders VALUES (5, 'a'), (6, 'b'), (7, 'c');
DELETE FROM outbox;
UPDATE orders SET id = CASE id WHEN 5 THEN 3 WHEN 6 THEN 6 ELSE 1 END, note = 'x';
SELECT event_type, aggregate_id FROM taken();
-- many of them: each row has its pair
TRUNCATE orders;
INSERT INTO orders SELECT i, 'many' FROM generate_series(1, 1000) i;
DELETE FROM outbox;
UPDATE orders SET id = CASE WHEN id % 2 = 0 THEN id ELSE 3000 - id END, status = status || id;
SELECT event_type, count(*), count(DISTINCT aggregate_id) FROM taken() GROUP BY 1 ORDER BY 1;
DROP TABLE orders;

-- Not by a unique key; by one that may be null
CREATE TABLE items (a integer, head integer, v text);
CALL capture('items', 'key=head', 'payload=both');
INSERT INTO items VALUES (1, 1, 'a'), (2, 1, 'b'), (3, NULL, 'c'), (4, NULL, 'd');
DELETE FROM outbox;
UPDATE items SET v = upper(v);
SELECT * FROM taken();
UPDATE items SET head = CASE a WHEN 1 THEN NULL WHEN 3 THEN 2 ELSE head END, v = v || a;
SELECT event_type, aggregate_id, payload #> '{old,a}', payload #> '{new,a}' FROM taken();
DROP TABLE items;
-- by the row, whatever other row had its key
CREATE TABLE line (id integer PRIMARY KEY, order_id integer, item text);
CALL capture('line', 'key=order_id', 'payload=both');
INSERT INTO line VALUES (1, 100, 'pen'), (2, 200, 'cup');
DELETE FROM outbox;
UPDATE line SET order_id = order_id + 100;
SELECT * FROM taken();
DROP TABLE line;
-- and without a key
CREATE TABLE items (a integer);
CALL capture('items', 'key=');
INSERT INTO items VALUES (1);
UPDATE items SET a = 2;
DELETE FROM items;
SELECT * FROM taken();
DROP TABLE items;

-- Partitions: a row that moves has its pair; none has one when a trigger leaves one out
CREATE TABLE parts (id integer PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE TABLE parts_2 (v text, id integer NOT NULL);
ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (10) TO (20);
CALL capture('parts', 'key=v', 'payload=diff');
INSERT INTO parts VALUES (1, 'a'), (2, 'b'), (3, 'c'), (12, 'd');
UPDATE parts SET id = id + 8 WHERE id < 4;
SELECT * FROM taken();
CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER leave_out BEFORE INSERT ON parts_2 FOR EACH ROW EXECUTE FUNCTION leave_out();
TRUNCATE parts;
INSERT INTO parts VALUES (1, 'a'), (2, 'b'), (3, 'c');
UPDATE parts SET id = CASE WHEN v = 'b' THEN 12 ELSE id + 3 END;
SELECT * FROM taken();
SELECT * FROM parts ORDER BY id;
DROP TABLE parts;
DROP FUNCTION leave_out;

-- Several triggers read the same transition tables; settings of the session do not show
CREATE TABLE twice (at timestamptz PRIMARY KEY, v text);
CALL capture('twice', 'event=one');
CREATE FUNCTION count_rows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM outbox_enqueue('counted', to_jsonb((SELECT count(*) FROM n)));
	RETURN NULL;
END
$$;
CREATE TRIGGER counted AFTER INSERT ON twice REFERENCING NEW TABLE AS n
	FOR EACH STATEMENT EXECUTE FUNCTION count_rows();
CREATE TRIGGER zzz AFTER INSERT ON twice REFERENCING NEW TABLE AS n
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_capture('event=two', 'columns=v');
SET timezone = 'Asia/Tokyo';
INSERT INTO twice VALUES ('2026-01-01 00:00+00', repeat('x', 3)), ('2026-01-02 00:00+00', NULL);
RESET timezone;
SELECT * FROM taken() ORDER BY 1, 2;
DROP TABLE twice;
DROP FUNCTION count_rows, taken;
DROP PROCEDURE capture;
RESET search_path;
