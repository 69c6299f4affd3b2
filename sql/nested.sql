-- Triggers of an administrator's on outbox that enqueue in their turn, while the statement
-- that fired them runs.
SET client_min_messages = warning;
CREATE FUNCTION nest() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.event_type = 'outer' THEN
		ALTER SCHEMA public RENAME TO elsewhere;
		PERFORM elsewhere.outbox_enqueue('inner', '{}');
		PERFORM elsewhere.outbox_enqueue_batch('[{"event_type": "inner", "payload": {}}]');
	END IF;
	RETURN NULL;
END
$$;
CREATE TRIGGER nest AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION nest();

-- the text of the plan that runs has another schema by then
SELECT outbox_enqueue('first', '{}') IS NOT NULL AS ok;
BEGIN;
SELECT outbox_enqueue('outer', '{}') IS NOT NULL AS ok;
SELECT event_type FROM elsewhere.outbox ORDER BY seq;
ROLLBACK;
BEGIN;
SELECT count(*) FROM outbox_enqueue_batch('[{"event_type": "outer", "payload": {}}, {"event_type": "next", "payload": {}}]');
SELECT event_type FROM elsewhere.outbox ORDER BY seq;
ROLLBACK;
SELECT outbox_enqueue('last', '{}') IS NOT NULL AS ok;
DROP FUNCTION nest CASCADE;

-- a route that changes while a message of it is numbered
INSERT INTO outbox_route (name, sequence, relay) VALUES ('numbered', 'key', 'internal'), ('other', NULL, 'external');
CREATE FUNCTION change_routes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE public.outbox_route SET max_attempts = max_attempts + 1 WHERE name <> 'default';
	PERFORM public.outbox_enqueue('inner', '{}', route => 'other');
	RETURN NEW;
END
$$;
CREATE TRIGGER change_routes BEFORE INSERT ON outbox_key_number FOR EACH ROW EXECUTE FUNCTION change_routes();
SELECT outbox_enqueue('outer', '{}', NULL, '1', route => 'numbered') IS NOT NULL AS ok;
SELECT event_type, route, outlet, headers->'x-outbox-key-seq' AS key_seq FROM outbox WHERE route <> 'default' ORDER BY seq;
DROP FUNCTION change_routes CASCADE;
TRUNCATE outbox, outbox_key_number;
DELETE FROM outbox_route WHERE name <> 'default';
