-- outbox_capture(): rows that are legal, and cannot be published as they are.
SET client_min_messages = error;
SELECT outbox_version() IS NOT NULL AS loaded;
SET search_path = public, outbox_regress;
\pset format unaligned
\pset tuples_only on
CREATE FUNCTION taken() RETURNS TABLE (event_type text, aggregate_id text, payload jsonb, headers jsonb)
LANGUAGE sql AS $$
	WITH gone AS (DELETE FROM outbox RETURNING *)
	SELECT event_type, aggregate_id, payload, headers FROM gone ORDER BY seq
$$;
-- A table with a trigger that has these arguments, whose rows were there before
CREATE PROCEDURE capture(VARIADIC args text[]) LANGUAGE plpgsql AS $$
BEGIN
	DROP TRIGGER IF EXISTS e ON docs;
	TRUNCATE docs;
	INSERT INTO docs VALUES ('nul', '"\u0000"', '{}', 'x'), ('half', '["\ud800"]', NULL, 'x'), ('huge', '1e200000', '{1,2}', 'x'),
		('array', '1', '{1,"\"\\u0000\""}', 'x'), ('', '2', '{}', 'x'), (repeat('k', 256), '3', '{}', 'x');
	EXECUTE format('CREATE TRIGGER e AFTER INSERT OR UPDATE OR DELETE ON docs FOR EACH ROW EXECUTE FUNCTION outbox_capture(%s)',
		(SELECT string_agg(quote_literal(a), ',') FROM unnest(args) a));
END
$$;
CREATE TABLE docs (code text PRIMARY KEY, "The doc" json, docs json[], note text);

-- By default a row like that is not written, but can be deleted
CALL capture('event=doc');
TRUNCATE docs;
SELECT outcome('INSERT INTO docs VALUES (' || v || ')') FROM unnest(ARRAY[
	$$'a', '"\u0000"'$$, $$'a', '["\ud800"]'$$, $$'a', '1e200000'$$, $$'a', '1', ARRAY['2', '{"a": "\u0000"}']::json[]$$,
	$$'', '1'$$, $$repeat('k', 256), '1'$$, $$repeat('k', 255), '1'$$]) v;
CALL capture('event=doc');
SELECT left(code, 5), outcome(format('UPDATE docs SET note = ''y'' WHERE code = %L', code)) FROM docs ORDER BY code COLLATE "C";
DELETE FROM docs;
SELECT event_type, left(aggregate_id, 5), jsonb_set(payload, '{code}', to_jsonb(left(payload->>'code', 5))), headers FROM taken()
ORDER BY payload->>'code' COLLATE "C";
-- with a key that cannot be one, another one can be given to it
CALL capture('event=doc');
UPDATE docs SET code = 'short' WHERE code = repeat('k', 256);
UPDATE docs SET code = 'full' WHERE code = '';
SELECT event_type, aggregate_id, left(payload->>'code', 5), headers FROM taken();

-- The owner's choice: nothing incomplete, or whatever can be published
CALL capture('event=doc', 'unpublishable=refuse');
SELECT left(code, 5), outcome(format('DELETE FROM docs WHERE code = %L', code)) FROM docs ORDER BY code COLLATE "C";
CALL capture('event=doc', 'unpublishable=omit', 'headers=op');
INSERT INTO docs VALUES ('a', '"\u0000"', NULL, 'x'), ('b', '1', NULL, 'x');
UPDATE docs SET note = 'y' WHERE length(code) < 255;
SELECT event_type, aggregate_id, payload, headers FROM taken() ORDER BY 1, payload->>'code' COLLATE "C";

-- What an UPDATE leaves alone is in the way only if it is published; what the row was never is
CALL capture('event=doc', 'payload=changed');
UPDATE docs SET note = 'y' WHERE code = 'nul';
SELECT * FROM taken();
CALL capture('event=doc', 'payload=both');
SELECT outcome($$UPDATE docs SET note = 'y' WHERE code = 'nul'$$);
UPDATE docs SET "The doc" = '"mended"' WHERE code = 'nul';
UPDATE docs SET code = 'NUL' WHERE code = 'nul';
SELECT * FROM taken();
CALL capture('event=doc', 'unpublishable=refuse', 'payload=both');
SELECT outcome($$UPDATE docs SET "The doc" = '"mended"' WHERE code = 'nul'$$);
-- a column that does not count is not in the way
CALL capture('event=doc', 'except="The doc"');
INSERT INTO docs VALUES ('a', '"\u0000"', NULL, 'x');
SELECT * FROM taken();
SELECT outcome($$CREATE TRIGGER f AFTER INSERT ON docs FOR EACH ROW EXECUTE FUNCTION outbox_capture('unpublishable=no')$$);
DROP TABLE docs;

-- Size: the largest columns are left out, no more of them than have to be
CREATE TABLE large (id integer PRIMARY KEY, a text, b text, c bytea, d numeric);
INSERT INTO large VALUES (1, repeat('a', 500), repeat('b', 600), NULL, 1), (2, repeat('a', 2000), 'b', repeat('c', 600)::bytea, 1),
	(3, 'a', 'b', NULL, 1e5000), (4, repeat('a', 100000), NULL, repeat('c', 200000)::bytea, 1);
CREATE TRIGGER e AFTER INSERT OR UPDATE OR DELETE ON large FOR EACH ROW EXECUTE FUNCTION outbox_capture();
SET outbox.max_message_size = 1024;
SELECT outcome('INSERT INTO large VALUES (5, ''a'', repeat(''b'', 1100))');
SELECT outcome('UPDATE large SET d = 2 WHERE id = ' || id) FROM large ORDER BY id;
DELETE FROM large;
SELECT aggregate_id, length(payload->>'a') AS a, length(payload->>'b') AS b, length(payload->>'c') AS c, length(payload->>'d') AS d, headers
FROM taken();
-- of an UPDATE what the row was goes first
DROP TRIGGER e ON large;
INSERT INTO large VALUES (1, repeat('a', 2000), 'b'), (2, repeat('a', 600), 'b');
CREATE TRIGGER e AFTER UPDATE ON large FOR EACH ROW EXECUTE FUNCTION outbox_capture('payload=both');
UPDATE large SET a = repeat('A', 700);
SELECT outcome('UPDATE large SET a = repeat(''A'', 1024)');
SELECT aggregate_id, length(payload #>> '{old,a}'), length(payload #>> '{new,a}'), headers FROM taken() ORDER BY 1;
-- what the format puts around it counts, with all headers
INSERT INTO outbox_route (name, format, sequence) VALUES ('envelope', 'masstransit', 'key');
DROP TRIGGER e ON large;
TRUNCATE outbox, large;
INSERT INTO large SELECT n, repeat('a', 400), repeat('b', n) FROM generate_series(1, 600) n;
CREATE TRIGGER e AFTER DELETE ON large FOR EACH ROW EXECUTE FUNCTION outbox_capture('route=envelope', 'columns=a,b', 'headers=op,table');
SET outbox.max_message_size = 1100;
SET outbox.traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
DELETE FROM large;
SELECT headers->'x-outbox-omitted' AS omitted, count(*) FROM outbox GROUP BY 1 ORDER BY 2;
RESET outbox.traceparent;
RESET outbox.max_message_size;
TRUNCATE outbox, outbox_key_number;
DELETE FROM outbox_route WHERE name = 'envelope';
DROP TABLE large;

-- Size before any limit of ours: a jsonb holds less than 256 MB, and some values are longer there
CREATE DOMAIN raw AS bytea;
CREATE UNLOGGED TABLE enormous (id integer PRIMARY KEY, note text, bits varbit, bytes raw);
ALTER TABLE enormous ALTER bits SET STORAGE EXTERNAL, ALTER bytes SET STORAGE EXTERNAL;
CREATE TRIGGER e AFTER UPDATE OR DELETE ON enormous FOR EACH ROW EXECUTE FUNCTION outbox_capture();
INSERT INTO enormous SELECT 1, 'x', bit || bit || bit || bit FROM (SELECT 0::bit(70000000)) n(bit);
SELECT outcome('UPDATE enormous SET note = ''y''');
DELETE FROM enormous;
SELECT aggregate_id, payload, headers FROM taken();
-- it holds either column, and not both
INSERT INTO enormous VALUES (2, 'x', NULL, convert_to(repeat('a', 70000000), 'UTF8'));
SET outbox.max_message_size = '512MB';
SELECT outcome('UPDATE enormous SET bits = 0::bit(70000000) || 0::bit(70000000) WHERE id = 2');
RESET outbox.max_message_size;
-- either row, and not both
DROP TRIGGER e ON enormous;
CREATE TRIGGER e AFTER UPDATE ON enormous FOR EACH ROW EXECUTE FUNCTION outbox_capture('payload=both', 'unpublishable=omit');
UPDATE enormous SET note = 'y' WHERE id = 2;
SELECT aggregate_id, payload, headers FROM taken();
DROP TABLE enormous;
DROP DOMAIN raw;

-- What the route makes of the key: its routing key, and its format
INSERT INTO outbox_route (name, routing_key) VALUES ('long', repeat('r', 200) || '{aggregate_id}');
INSERT INTO outbox_route (name, format, format_options) VALUES ('events', 'cloudevents', '{"source": "/"}');
CREATE TABLE keys (a text, b text, route text, PRIMARY KEY (a, b));
INSERT INTO keys VALUES ('long', repeat('k', 60)), ('control', E'\x7f');
CREATE TRIGGER l AFTER INSERT OR DELETE ON keys FOR EACH ROW EXECUTE FUNCTION outbox_capture('event=l', 'route=long', 'columns=a');
CREATE TRIGGER e AFTER INSERT OR DELETE ON keys FOR EACH ROW EXECUTE FUNCTION outbox_capture('event=e', 'route=events', 'columns=a');
SELECT outcome($$INSERT INTO keys VALUES ('x', repeat('k', 60))$$);
SELECT outcome($$INSERT INTO keys VALUES ('x', E'\x7f')$$);
DELETE FROM keys;
SELECT event_type, payload->>'a', left(aggregate_id, 9), headers FROM taken() ORDER BY 1, 2;
DROP TABLE keys;
-- A cast to json of somebody's own, which fails; FOR EACH STATEMENT
CREATE TYPE mood AS ENUM ('fine', 'broken');
CREATE FUNCTION mood_json(mood) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
	IF $1 = 'broken' THEN
		RAISE EXCEPTION 'no mood' USING ERRCODE = 'XX123', HINT = 'Have another one.';
	END IF;
	RETURN '"fine"';
END
$$;
CREATE CAST (mood AS json) WITH FUNCTION mood_json(mood);
CREATE TABLE moods (id integer PRIMARY KEY, mood mood, moods mood[]);
INSERT INTO moods VALUES (1, 'fine', '{fine,broken}'), (2, 'broken', '{fine}');
CREATE TRIGGER i AFTER INSERT ON moods REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION outbox_capture();
CREATE TRIGGER d AFTER DELETE ON moods REFERENCING OLD TABLE AS o FOR EACH STATEMENT EXECUTE FUNCTION outbox_capture();
SELECT outcome($$INSERT INTO moods VALUES (3, 'broken')$$);
DELETE FROM moods;
SELECT aggregate_id, payload, headers FROM taken();
DROP TABLE moods;
DROP CAST (mood AS json);
DROP FUNCTION mood_json, taken;
DROP TYPE mood;
DROP PROCEDURE capture;
DELETE FROM outbox_route WHERE name <> 'default';
RESET search_path;
