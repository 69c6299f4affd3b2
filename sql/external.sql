-- External relays: claim, acknowledge, fail, extend, release.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
\set SHOW_CONTEXT never
TRUNCATE outbox;
-- no worker runs here; a relay may
SET outbox.enabled = on;
SELECT outbox_resume() IS NOT NULL AS resumed;
INSERT INTO outbox_route (name, exchange, routing_key, max_attempts, on_failed, relay) VALUES
	('ext', 'x', '{aggregate_type}.{event_type}', 2, 'skip', 'external'),
	('extblock', 'x', '{event_type}', 1, 'block', 'external'),
	('extnone', 'x', '{event_type}', 1, 'skip', 'external');
UPDATE outbox_route SET ordering = 'none' WHERE name = 'extnone';
UPDATE outbox_route SET ordering = 'pipelined' WHERE name = 'extblock';
-- The names of what is claimed, all in one line; the token in a variable
CREATE FUNCTION outbox_regress.claim(route text, n integer DEFAULT 100, lease interval DEFAULT '1 hour',
	OUT token bigint, OUT names text)
LANGUAGE sql AS $$
	SELECT max(c.token), string_agg(c.event_type || coalesce('/' || c.aggregate_id, ''), ' ' ORDER BY c.seq)
	FROM outbox_claim(route, n, lease, 'regress') c
$$;
CREATE FUNCTION outbox_regress.put(what text, route text DEFAULT 'ext') RETURNS void
LANGUAGE sql AS $$
	SELECT count(outbox_enqueue(split_part(w, '/', 1), to_jsonb(n), 'thing', nullif(split_part(w, '/', 2), ''),
		route => put.route)) FROM unnest(string_to_array(what, ' ')) WITH ORDINALITY u(w, n)
$$;
CREATE FUNCTION outbox_regress.named(name text) RETURNS uuid
LANGUAGE sql AS $$ SELECT id FROM outbox WHERE event_type = name ORDER BY seq LIMIT 1 $$;

-- What an application writes does not decide who publishes it
SELECT put('a/1 b/1 c/2 d');
INSERT INTO outbox (event_type, payload, outlet) VALUES ('internal', '1', 'external');
SELECT event_type, outlet FROM outbox ORDER BY seq;
DELETE FROM outbox WHERE event_type = 'internal';

-- All of it, with its order, then nothing
SELECT * FROM claim('ext') \gset
\echo :names
SELECT token = :token AS same, seq = min(seq) OVER () AS first, event_type, aggregate_type, aggregate_id, payload, body, headers, properties,
	routing_key, created_at <= now(), attempts
FROM outbox_claim('ext');
SELECT route, worker, claimed_by = current_user AS me, expired, messages, expires_at - claimed_at > '59 minutes' AS hour FROM outbox_leases;
SELECT event_type, status FROM outbox_messages ORDER BY seq;
-- Behind what is leased of a key nothing goes; of other keys it does
SELECT put('e/1 f/3');
SELECT names FROM claim('ext', 1);
SELECT names FROM claim('ext');
-- One acknowledged: archived; the rest of the key is still leased
SELECT outbox_ack(:token, ARRAY[named('a')]);
SELECT event_type, published_at IS NOT NULL AS published FROM outbox_messages WHERE event_type = 'a';
SELECT names FROM claim('ext');
SELECT outbox_ack(:token, ARRAY[named('e'), '00000000-0000-0000-0000-000000000000']);
-- Operators keep away from what is leased
\set VERBOSITY sqlstate
SELECT outbox_discard(named('b'));
SELECT outbox_edit(named('b'), payload => '2');
\set VERBOSITY default
SELECT outbox_discard_messages('test', 'pending');
SELECT live, remaining FROM outbox_erase('thing', '2');
-- Acknowledge the rest; then the token is over
SELECT outbox_ack(:token);
\set VERBOSITY sqlstate
SELECT outbox_ack(:token);
SELECT outbox_extend(:token);
SELECT outbox_release(:token);
\set VERBOSITY default
SELECT count(*) FROM outbox_leases;
SELECT string_agg(event_type, ' ' ORDER BY seq) FROM outbox;
SELECT outbox_release(token) FROM outbox_leases;
TRUNCATE outbox, outbox_archive;

-- Nacks: attempts, times, order
SELECT put('a/1 b/1 c/2');
SELECT * FROM claim('ext') \gset
SELECT outbox_nack(:token, named('a'), 'busy', '1 hour');
SELECT event_type, status, attempts, last_error, last_error_reason, available_at > now() + interval '59 minutes' AS later FROM outbox ORDER BY seq;
SELECT severity, problem, subject, detail FROM outbox_problems WHERE subject ~ '^route';
SELECT messages FROM outbox_leases;
\set VERBOSITY sqlstate
SELECT outbox_nack(:token, named('b'), 'busy');
\set VERBOSITY default
SELECT outbox_nack(:token, named('c'), NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_nack(:token, named('c'), 'x', '-1 s');
\echo :LAST_ERROR_SQLSTATE
-- b waits for a
SELECT names FROM claim('ext');
SELECT aggregate_id, reason, behind FROM outbox_held_keys;
SELECT route, backlog, retrying FROM outbox_routes_status WHERE route = 'ext';
UPDATE outbox SET available_at = now() WHERE event_type = 'a';
SELECT outbox_release(:token);
SELECT * FROM claim('ext') \gset
\echo :names
-- the second attempt is the last: failed, and the key goes on
SELECT outbox_nack(:token, named('a'), 'broken');
SELECT event_type, attempts, last_error, last_error_reason, failed_at <= clock_timestamp() AS failed FROM outbox_failed;
SELECT outbox_release(:token);
SELECT * FROM claim('ext') \gset
\echo :names
SELECT outbox_requeue(named('a'));
SELECT names FROM claim('ext');
SELECT outbox_ack(:token);
SELECT * FROM claim('ext') \gset
\echo :names
SELECT outbox_ack(:token);
SELECT count(*) FROM outbox;

-- on_failed = 'block', and the failed_route
SELECT put('a/1 b/1 c/2', 'extblock');
SELECT * FROM claim('extblock', 1) \gset
SELECT outbox_nack(:token, named('a'), 'never');
SELECT names FROM claim('extblock');
UPDATE outbox_route SET failed_route = 'ext' WHERE name = 'extblock';
SELECT outbox_ack(token) FROM outbox_leases;
SELECT outbox_requeue(named('a'));
SELECT * FROM claim('extblock', 1) \gset
SELECT outbox_nack(:token, named('a'), 'never');
SELECT event_type, route, status, attempts, outlet, last_error, last_error_reason,
	(headers->'x-outbox-death'->0) - 'time' AS death FROM outbox WHERE event_type = 'a';
UPDATE outbox_route SET failed_route = 'default' WHERE name = 'ext';
UPDATE outbox_route SET max_attempts = 1 WHERE name = 'ext';
SELECT * FROM claim('ext') \gset
SELECT outbox_nack(:token, named('a'), 'neither');
SELECT event_type, route, outlet, jsonb_array_length(headers->'x-outbox-death') FROM outbox WHERE event_type = 'a';
UPDATE outbox_route SET failed_route = NULL WHERE name IN ('ext', 'extblock');
TRUNCATE outbox;
-- What the failed_route's format or template cannot carry becomes failed where it is, with a number of its own there
INSERT INTO outbox_route (name, exchange, routing_key, format, format_options, sequence) VALUES
	('extcelery', 'x', '{event_type}', 'celery', '{"types": {"known": "shop.known"}}', NULL),
	('extlong', 'x', repeat('k', 230) || '.{event_type}', 'plain', NULL, NULL),
	('extnumbered', 'x', '{event_type}', 'plain', NULL, 'key');
CREATE FUNCTION outbox_regress.nack_one(what text, target text, OUT result text, OUT route text, OUT status text,
	OUT attempts integer, OUT last_error text, OUT numbered jsonb)
LANGUAGE plpgsql AS $$
DECLARE
	c record;
BEGIN
	UPDATE outbox_route SET failed_route = target WHERE name = 'extnone';
	PERFORM put(what, 'extnone');
	SELECT * INTO c FROM outbox_claim('extnone', 1);
	result := outbox_nack(c.token, c.id, 'no');
	SELECT o.route, o.status, o.attempts, o.last_error, o.headers -> 'x-outbox-key-seq' INTO route, status, attempts, last_error, numbered
	FROM outbox o WHERE o.id = c.id;
	DELETE FROM outbox WHERE id = c.id;
END
$$;
SELECT * FROM nack_one('unknown/1', 'extcelery');
SELECT * FROM nack_one('an_event_type_of_some_length_or_more/1', 'extlong');
SELECT * FROM nack_one('a/1', 'extnumbered');
SELECT * FROM nack_one('b/1', 'extnumbered');
-- Another table's index with the name of the key's index, on other types, is not read
BEGIN;
ALTER INDEX outbox_key_number_pkey RENAME TO outbox_key_number_renamed;
CREATE TABLE outbox_regress.mine AS SELECT 5000000000000000000 + i AS route, i AS key_hash FROM generate_series(1, 500) i;
CREATE INDEX outbox_key_number_pkey ON outbox_regress.mine (route, key_hash);
ALTER TABLE outbox_regress.mine SET SCHEMA public;
SELECT * FROM nack_one('c/1', 'extnumbered');
ROLLBACK;
-- An argument that is constant for the statement, over many rows
SELECT put('n1 n2 n3 n4 n5', 'extnone');
CREATE TABLE outbox_regress.claimed AS SELECT token, id, seq - min(seq) OVER () AS n FROM outbox_claim('extnone');
UPDATE outbox_route SET failed_route = NULL, max_attempts = 9 WHERE name = 'extnone';
SELECT length(repeat(E'\x01', 30 + n::integer * 210)) > 0 AS pad, outbox_nack(token, id, 'the broker is down', '1 hour') FROM outbox_regress.claimed;
SELECT DISTINCT last_error FROM outbox;
DROP TABLE outbox_regress.claimed;
TRUNCATE outbox;
UPDATE outbox_route SET retention = '0' WHERE name = 'extnone';
-- A trigger that keeps a published row would have it published again and again
CREATE FUNCTION outbox_regress.keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER keep BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION outbox_regress.keep();
SELECT put('kept', 'extnone');
SELECT * FROM claim('extnone') \gset
SELECT outbox_ack(:token);
DROP TRIGGER keep ON outbox;
CREATE TRIGGER keep BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION outbox_regress.keep();
SELECT outbox_nack(:token, (SELECT id FROM outbox WHERE route = 'extnone'), 'no');
DROP TRIGGER keep ON outbox;
CREATE TRIGGER keep BEFORE UPDATE ON outbox_internal.outbox_lease FOR EACH ROW EXECUTE FUNCTION outbox_regress.keep();
SELECT outbox_extend(:token, '1 min');
DROP TRIGGER keep ON outbox_internal.outbox_lease;
SELECT outbox_ack(:token);
-- A rule that takes the statement away is no matter of later ones
SELECT put('ruled', 'extnone');
SELECT * FROM claim('extnone') \gset
CREATE RULE keep AS ON DELETE TO outbox DO INSTEAD NOTHING;
SELECT outbox_ack(:token);
DROP RULE keep ON outbox;
SELECT outbox_ack(:token);
DROP FUNCTION outbox_regress.nack_one, outbox_regress.keep;
DELETE FROM outbox_route WHERE name IN ('extcelery', 'extlong', 'extnumbered');
UPDATE outbox_route SET max_attempts = 1, retention = NULL WHERE name = 'extnone';
TRUNCATE outbox;

-- Scheduled messages when they are due; more than one claim of many; ordering = 'none'
SELECT outbox_enqueue('later', '{}', 'thing', '1', route => 'ext', available_at => '2100-01-01') IS NOT NULL AS ok;
SELECT put('a/1 b/2 c/3');
SELECT * FROM claim('ext') \gset
\echo :names
SELECT outbox_release(:token, ARRAY[named('b')]);
SELECT messages FROM outbox_leases;
SELECT outbox_ack(:token);
UPDATE outbox SET available_at = '2000-01-01' WHERE event_type = 'later';
SELECT * FROM claim('ext', 1) \gset
\echo :names
SELECT names FROM claim('ext', 1);
DELETE FROM outbox;
SELECT outbox_ack(token) FROM outbox_leases ORDER BY messages;
-- What is released takes its key's later messages along
SELECT put('a/1 b/2 c/1 d e/1');
SELECT * FROM claim('ext') \gset
SELECT outbox_release(:token, ARRAY[named('c'), named('d')]);
SELECT outbox_ack(:token, ARRAY[named('e')]), messages FROM outbox_leases;
SELECT outbox_release(:token, ARRAY[named('a'), named('b')]);
DELETE FROM outbox;
SELECT put('a/1 b/1 c/1', 'extnone');
SELECT names FROM claim('extnone', 2);
SELECT outbox_release(token, ARRAY[named('a')]), messages FROM outbox_leases;
SELECT names FROM claim('extnone', 2);
SELECT outbox_release(token) FROM outbox_leases ORDER BY messages;
TRUNCATE outbox;

-- What is over: takeover, and the fence
SELECT put('a/1 b/1');
SELECT * FROM claim('ext', lease => '1 microsecond') \gset
SELECT expired FROM outbox_leases;
SELECT event_type, status FROM outbox_messages ORDER BY seq;
-- late, but nobody has taken it over
SELECT outbox_ack(:token, ARRAY[named('a')]);
SELECT token, names FROM claim('ext') \gset other_
\echo :other_names
\set VERBOSITY sqlstate
SELECT outbox_ack(:token);
SELECT outbox_nack(:token, named('b'), 'x');
\set VERBOSITY default
SELECT outbox_extend(:other_token, '1 microsecond') < clock_timestamp();
-- an operator ends what has expired
SELECT outbox_discard(named('b'));
\set VERBOSITY sqlstate
SELECT outbox_ack(:other_token);
\set VERBOSITY default
SELECT count(*) FROM outbox_leases;

-- Paused, switched off, or not ours: nothing
SELECT put('a');
SELECT outbox_pause('ext');
SELECT names FROM claim('ext');
SELECT outbox_resume('ext'), outbox_pause();
SELECT names FROM claim('ext');
SELECT outbox_resume();
SET outbox.enabled = off;
SELECT names FROM claim('ext');
SET outbox.enabled = on;
BEGIN;
UPDATE outbox_control SET environment = 'elsewhere';
SELECT names FROM claim('ext');
ROLLBACK;
BEGIN;
UPDATE outbox_control SET database_oid = 1;
SELECT names FROM claim('ext');
ROLLBACK;
BEGIN;
SET LOCAL session_replication_role = replica;
UPDATE outbox SET origin = 42;
SELECT names FROM claim('ext');
UPDATE outbox_control SET adopted_origins = '{42}';
SELECT names FROM claim('ext');
ROLLBACK;
-- What is leased keeps its route
SELECT outbox_enqueue('moves', '{}', route => 'extnone', message_id => '00000000-0000-7000-8000-000000000001') IS NOT NULL AS ok;
SELECT token FROM claim('extnone') \gset
UPDATE outbox SET route = 'extblock' WHERE event_type = 'moves';
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_release(:token);
UPDATE outbox SET route = 'extblock' WHERE event_type = 'moves';
DELETE FROM outbox WHERE event_type = 'moves';
-- Keys that get an order while they are leased
SELECT put('one/7 two/7 three/7', 'extnone');
SELECT names FROM claim('extnone', 1) \gset
UPDATE outbox_route SET ordering = 'key' WHERE name = 'extnone';
SELECT names FROM claim('extnone');
UPDATE outbox_route SET ordering = 'none' WHERE name = 'extnone';
SELECT token, names FROM claim('extnone') \gset
\echo :names
SELECT outbox_nack(:token, named('two'), 'no');
SELECT outbox_nack(:token, named('three'), 'no');
SELECT messages FROM outbox_leases;
DELETE FROM outbox WHERE route = 'extnone';
TRUNCATE outbox_internal.outbox_lease;
-- Claims commit synchronously
BEGIN;
SET LOCAL synchronous_commit = off;
SELECT names FROM claim('ext');
SHOW synchronous_commit;
ROLLBACK;

-- Errors
SELECT * FROM outbox_claim('default');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM outbox_claim('nowhere');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM outbox_claim(NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM outbox_claim('ext', 0);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM outbox_claim('ext', lease => '0');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM outbox_claim('ext', lease => '2 days');
\echo :LAST_ERROR_SQLSTATE
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM outbox_claim('ext');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
SELECT outbox_ack(NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_ack(0);
\echo :LAST_ERROR_SQLSTATE

-- Whose relay
CREATE ROLE regress_outbox_relay;
CREATE ROLE regress_outbox_relays;
GRANT EXECUTE ON FUNCTION outbox_claim, outbox_ack, outbox_nack, outbox_extend, outbox_release TO regress_outbox_relay;
GRANT USAGE ON SCHEMA outbox_regress TO regress_outbox_relay;
SET ROLE regress_outbox_relay;
SELECT names FROM claim('ext');
SELECT * FROM outbox;
SELECT * FROM outbox_internal.outbox_lease;
RESET ROLE;
SELECT claimed_by, outbox_release(token) FROM outbox_leases;
UPDATE outbox_route SET relay_roles = '{regress_outbox_relays}' WHERE name = 'ext';
SELECT * FROM claim('ext') \gset
SET ROLE regress_outbox_relay;
SELECT names FROM claim('ext');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_ack(:token);
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
GRANT regress_outbox_relays TO regress_outbox_relay;
-- a member that does not inherit has those rights only after SET ROLE
ALTER ROLE regress_outbox_relay NOINHERIT;
REVOKE regress_outbox_relays FROM regress_outbox_relay;
GRANT regress_outbox_relays TO regress_outbox_relay;
SET ROLE regress_outbox_relay;
SELECT names FROM claim('ext');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_ack(:token);
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
ALTER ROLE regress_outbox_relay INHERIT;
REVOKE regress_outbox_relays FROM regress_outbox_relay;
GRANT regress_outbox_relays TO regress_outbox_relay;
SET ROLE regress_outbox_relay;
SELECT outbox_ack(:token);
RESET ROLE;
UPDATE outbox_route SET relay_roles = '{regress_outbox_nobody}' WHERE name = 'ext';
UPDATE outbox_route SET relay_roles = '{NULL}' WHERE name = 'ext';
UPDATE outbox_route SET relay_roles = NULL WHERE name = 'ext';

-- Who publishes a route can change; what waits goes along
SELECT put('a/1 b/2');
SELECT outbox_enqueue('late', '{}', route => 'ext', available_at => '2100-01-01') IS NOT NULL AS ok;
SELECT * FROM claim('ext', 1) \gset
UPDATE outbox_route SET relay = 'internal' WHERE name = 'ext';
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_release(:token);
UPDATE outbox_route SET relay = 'internal' WHERE name = 'ext';
SELECT event_type, outlet FROM outbox ORDER BY seq;
SELECT names FROM claim('ext');
\echo :LAST_ERROR_SQLSTATE
UPDATE outbox_route SET relay = 'external' WHERE name = 'ext';
SELECT event_type, outlet FROM outbox ORDER BY seq;
SELECT backlog, scheduled FROM outbox_routes_status WHERE route = 'ext';
-- Which ones there are, says the error: sql/route
\set VERBOSITY terse
UPDATE outbox_route SET relay = 'else' WHERE name = 'ext';
\set VERBOSITY default
\echo :LAST_ERROR_SQLSTATE
-- and a message can go to another route
SELECT outbox_edit(named('a'), route => 'default');
SELECT event_type, route, outlet FROM outbox ORDER BY seq;

-- Due messages of a key that is held leave room for others
SELECT put('k/9', 'extblock');
SELECT * FROM claim('extblock') \gset
SELECT outbox_nack(:token, named('k'), 'no');
SELECT count(outbox_enqueue('due', '{}', 'thing', CASE WHEN i <= 20 THEN '9' END, route => 'extblock', available_at => clock_timestamp() + '10 ms'))
FROM generate_series(1, 25) i;
SELECT pg_sleep(0.05) IS NOT NULL AS slept;
SELECT count(*) FROM outbox_claim('extblock', 10);
-- One that is scheduled and not due holds none of its key
SELECT count(outbox_enqueue('scheduled', '{}', 'thing', '7', route => 'extblock', available_at => '2100-01-01'));
SELECT count(outbox_enqueue('due7', '{}', 'thing', '7', route => 'extblock', available_at => clock_timestamp() + '10 ms'));
SELECT pg_sleep(0.05) IS NOT NULL AS slept;
SELECT token, names FROM claim('extblock') \gset
\echo :names
-- A token is exact in a double; without a time a nack waits as the relay does; nothing is kept where the route says so
SELECT :token < power(2, 53) AS exact;
SELECT outbox_nack(:token, named('due7'), 'no');
DELETE FROM outbox_internal.outbox_lease;
TRUNCATE outbox, outbox_archive;
UPDATE outbox_route SET max_attempts = 9 WHERE name = 'extnone';
SELECT put('n', 'extnone');
SELECT * FROM claim('extnone') \gset
SELECT clock_timestamp() AS before \gset
SELECT outbox_nack(:token, named('n'), 'no');
SELECT attempts, available_at > :'before'::timestamptz + current_setting('outbox.retry_initial')::interval / 4 AS later FROM outbox;
UPDATE outbox SET available_at = NULL;
UPDATE outbox_route SET retention = '0' WHERE name = 'extnone';
SELECT * FROM claim('extnone') \gset
SELECT outbox_ack(:token);
SELECT (SELECT count(*) FROM outbox), (SELECT count(*) FROM outbox_archive) AS kept;
-- what of it, by the route's archive when it is acknowledged
SELECT put('a b c', 'extnone');
UPDATE outbox_route SET archive = 'metadata' WHERE name = 'extnone';
SELECT * FROM claim('extnone') \gset
SELECT outbox_ack(:token, ARRAY[named('a')]);
UPDATE outbox_route SET retention = NULL WHERE name = 'extnone';
SELECT outbox_ack(:token, ARRAY[named('b')]);
UPDATE outbox_route SET archive = 'none' WHERE name = 'extnone';
SELECT outbox_ack(:token);
SELECT (SELECT count(*) FROM outbox), event_type, payload, body FROM outbox_archive;
UPDATE outbox_route SET archive = 'message', retention = '0' WHERE name = 'extnone';
TRUNCATE outbox_archive;

-- A key that has become too long for AMQP since is whole: half a character is no text
DELETE FROM outbox_internal.outbox_lease;
TRUNCATE outbox;
SELECT put(repeat(U&'\20AC', 85), 'extnone');
UPDATE outbox_route SET routing_key = 'x.{event_type}' WHERE name = 'extnone';
SELECT routing_key = 'x.' || event_type AS whole, octet_length(routing_key) FROM outbox_claim('extnone');

-- What is leased cannot be seen under an older snapshot
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outbox_discard(id) FROM outbox;
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
UPDATE outbox_route SET relay = 'internal' WHERE name = 'extblock';
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;

-- A lease that is over hides no more that the relay is missing
DELETE FROM outbox_internal.outbox_lease;
DELETE FROM outbox;
SELECT put('old', 'extnone');
UPDATE outbox SET created_at = created_at - interval '1 hour';
SELECT count(*) FROM outbox_claim('extnone', 1, '1 hour');
SELECT subject FROM outbox_problems WHERE problem = 'external relay missing';
UPDATE outbox_internal.outbox_lease SET expires_at = clock_timestamp();
SELECT subject FROM outbox_problems WHERE problem = 'external relay missing';

-- Whose right counts is the current user's: of a SECURITY DEFINER function its owner's, and
-- in the expression of an index that a superuser ANALYZEs the table's.
DELETE FROM outbox;
DELETE FROM outbox_internal.outbox_lease;
CREATE ROLE regress_outbox_lender;
CREATE ROLE regress_outbox_thief;
GRANT EXECUTE ON FUNCTION outbox_claim, outbox_ack TO regress_outbox_lender, regress_outbox_thief;
UPDATE outbox_route SET relay_roles = '{regress_outbox_lender}' WHERE name = 'extnone';
SELECT put('lent', 'extnone');
CREATE SCHEMA regress_thief AUTHORIZATION regress_outbox_thief;
SET ROLE regress_outbox_thief;
CREATE FUNCTION regress_thief.steal(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	PERFORM public.outbox_ack(token) FROM public.outbox_claim('extnone');
	RETURN $1;
EXCEPTION WHEN insufficient_privilege THEN
	RAISE WARNING '%', SQLERRM;
	RETURN $1;
END
$$;
CREATE TABLE regress_thief.bait AS SELECT 'x'::text AS t;
CREATE INDEX ON regress_thief.bait (regress_thief.steal(t));
RESET ROLE;
ANALYZE regress_thief.bait;
SELECT count(*) FROM outbox;
SELECT count(*) FROM outbox_leases;
CREATE FUNCTION outbox_regress.lent() RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = public
	AS $$ SELECT count(*) FROM outbox_claim('extnone') $$;
ALTER FUNCTION outbox_regress.lent OWNER TO regress_outbox_lender;
SET ROLE regress_outbox_relay;
SELECT lent();
RESET ROLE;
DROP FUNCTION outbox_regress.lent;
DROP SCHEMA regress_thief CASCADE;
DROP OWNED BY regress_outbox_lender, regress_outbox_thief;
DROP ROLE regress_outbox_lender, regress_outbox_thief;

-- A lease that has expired ends when its messages are wanted, and not by a look
SELECT put('x/1', 'extblock');
SELECT * FROM claim('extblock') \gset
UPDATE outbox_internal.outbox_lease SET expires_at = '2000-01-01';
SELECT outbox_discard_messages('test', 'pending', event_type => 'other'), (outbox_erase('thing', 'other')).live;
SELECT count(*) FROM outbox_leases;
SELECT outbox_ack(:token, NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_release(:token, NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_ack(:token, '{}');
SELECT outbox_discard_messages('test', 'pending');
SELECT count(*) FROM outbox_leases;

-- Leases of other messages do not end with it
SELECT put('x/1 y/2', 'extblock');
SELECT token FROM claim('extblock', 1) \gset
SELECT token AS other FROM claim('extblock', 1) \gset
UPDATE outbox_internal.outbox_lease SET expires_at = '2000-01-01';
SELECT outbox_discard_messages('test', 'pending', event_type => 'x');
SELECT token = :other AS other FROM outbox_leases;
SELECT outbox_discard(named('y'));
SELECT count(*) FROM outbox_leases;

-- on_failed follows from the rows: with its change, and for as long as one of the key has failed
UPDATE outbox_route SET on_failed = 'skip' WHERE name = 'extblock';
SELECT put('a/1 b/1 c/1', 'extblock');
SELECT token FROM claim('extblock', 1) \gset
SELECT outbox_nack(:token, named('a'), 'never');
SELECT token FROM claim('extblock', 1) \gset
SELECT outbox_nack(:token, named('b'), 'never');
UPDATE outbox_route SET on_failed = 'block' WHERE name = 'extblock';
SELECT put('d/2', 'extblock');
SELECT token, names FROM claim('extblock') \gset
\echo :names
SELECT outbox_discard(named('a'));
SELECT names FROM claim('extblock');
SELECT outbox_discard(named('b'));
SELECT names FROM claim('extblock');
DELETE FROM outbox;
DELETE FROM outbox_internal.outbox_lease;

-- Where nothing is held by what has failed, it is not read
INSERT INTO outbox (event_type, payload, route, aggregate_type, aggregate_id, status)
	SELECT 'f', '{}', 'ext', 'thing', '1', 'failed' FROM generate_series(1, 500);
SELECT put('p/1', 'ext');
BEGIN;
SELECT pg_stat_get_xact_tuples_returned('outbox_holder'::regclass) AS before \gset
SELECT names FROM claim('ext');
SELECT pg_stat_get_xact_tuples_returned('outbox_holder'::regclass) - :before AS read;
ROLLBACK;
DELETE FROM outbox;

-- An error is cut and cleaned as the broker's texts are, and so is what is shown of keys
SELECT outbox_enqueue('dirty', '{}', 'thing', E'a\x1b[2Jb\nc', route => 'extblock') IS NOT NULL AS put;
SELECT outbox_enqueue('long', '{}', 'thing', 'long', route => 'extblock') IS NOT NULL AS put;
SELECT * FROM claim('extblock') \gset
SELECT outbox_nack(:token, named('dirty'), E'no\x1b[31m \n\t\x7f' || U&'\0085\20AC');
SELECT outbox_nack(:token, named('long'), repeat('x', 509) || U&'\20AC' || repeat('y', 100000));
SELECT aggregate_id, octet_length(last_error), replace(last_error, repeat('x', 100), 'X') AS last_error FROM outbox ORDER BY seq;
-- One that is there already hurts no view
UPDATE outbox SET last_error = repeat(E'\n', 10000000) WHERE event_type = 'long';
SELECT subject, octet_length(detail) < 1000 AS short, detail ~ '[[:cntrl:]]' AS dirty FROM outbox_problems
WHERE problem IN ('key held', 'failed messages') ORDER BY subject;
SELECT aggregate_type, octet_length(last_error), last_error ~ '[[:cntrl:]]' AS dirty FROM outbox_held_keys ORDER BY seq;
SELECT count(*) FROM outbox_top() t WHERE t ~ '[[:cntrl:]]';

-- So is the name of a relay
DELETE FROM outbox_internal.outbox_lease;
SELECT put('w', 'ext');
SELECT count(*) FROM outbox_claim('ext', 1, '1 hour', E'hook\x1b[2J' || repeat('w', 100000));
SELECT octet_length(worker), left(worker, 10) AS worker, worker ~ '[[:cntrl:]]' AS dirty FROM outbox_leases;

-- What a claim reads where nothing is locked grows with max_messages; sql/prepared has those that are
DELETE FROM outbox;
DELETE FROM outbox_internal.outbox_lease;
INSERT INTO outbox (event_type, payload, route, aggregate_type, aggregate_id, available_at)
	SELECT 'free', '{}', 'ext', 'thing', CASE WHEN i % 3 > 0 THEN i::text END, CASE WHEN i % 3 > 1 THEN timestamptz '2000-01-01' END
	FROM generate_series(1, 2990) i;
BEGIN;
SELECT pg_stat_get_xact_tuples_returned('outbox_external'::regclass) AS before \gset
SELECT count(*) FROM outbox_claim('ext', 10);
SELECT pg_stat_get_xact_tuples_returned('outbox_external'::regclass) - :before < 100 AS few;
ROLLBACK;
-- Of two that are due, the earlier one of the key is due later
DELETE FROM outbox;
INSERT INTO outbox (event_type, payload, route, aggregate_type, aggregate_id, available_at) VALUES
	('first', '{}', 'ext', 'thing', '1', '2000-01-02'), ('second', '{}', 'ext', 'thing', '1', '2000-01-01');
SELECT names FROM claim('ext', 1);

-- Scheduled messages of a key are not read for each of its other messages, before they are due and after
DELETE FROM outbox;
DELETE FROM outbox_internal.outbox_lease;
CREATE FUNCTION pg_temp.entries_read() RETURNS bigint
RETURN (SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid)) FROM pg_index WHERE indrelid = 'outbox'::regclass);
INSERT INTO outbox (event_type, payload, route, aggregate_type, aggregate_id, available_at)
	SELECT 'later', '{}', 'ext', 'thing', '1', '2100-01-01' FROM generate_series(1, 1000) i;
INSERT INTO outbox (event_type, payload, route, aggregate_type, aggregate_id)
	SELECT 'now', '{}', 'ext', 'thing', '1' FROM generate_series(1, 200) i;
BEGIN;
SELECT pg_temp.entries_read() AS before \gset
SELECT event_type, count(*) FROM outbox_claim('ext', 100) GROUP BY 1;
SELECT pg_temp.entries_read() - :before < 2000 AS few;
ROLLBACK;
-- Due in another order than that of seq; the first 100 of the key go, and the one that is not scheduled between them
UPDATE outbox SET available_at = timestamptz '2000-01-01' + i * interval '1 min'
	FROM (SELECT id, (row_number() OVER (ORDER BY seq) * 7919 % 1009)::integer AS i FROM outbox WHERE event_type = 'later') d WHERE outbox.id = d.id;
UPDATE outbox SET event_type = 'first', available_at = NULL WHERE seq = (SELECT min(seq) + 49 FROM outbox);
BEGIN;
SELECT pg_temp.entries_read() AS before \gset
SELECT count(*), count(*) FILTER (WHERE c.event_type = 'first') AS first,
	max(o.seq) - (SELECT min(seq) FROM outbox) < 100 AS in_order
FROM outbox_claim('ext', 100) c JOIN outbox o USING (id);
SELECT pg_temp.entries_read() - :before < 5000 AS few;
ROLLBACK;

-- An outlet that the library does not have, past the CHECK
BEGIN;
ALTER TABLE outbox_route DROP CONSTRAINT outbox_route_allowed;
DELETE FROM outbox_internal.outbox_lease;
INSERT INTO outbox_route (name, relay) VALUES ('extelse', 'else');
SAVEPOINT a;
SELECT put('a/1', 'extelse');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO a;
UPDATE outbox SET route = 'extelse';
ROLLBACK TO a;
-- A route that gets it leaves its messages to the workers, which exclude the route
DELETE FROM outbox_internal.outbox_lease;
UPDATE outbox_route SET relay = 'else' WHERE name = 'ext';
SELECT DISTINCT outlet FROM outbox;
ROLLBACK;
-- On a subscriber the trigger of the row does not fire
BEGIN;
DELETE FROM outbox_internal.outbox_lease;
SET LOCAL session_replication_role = replica;
UPDATE outbox_route SET relay = 'internal' WHERE name = 'ext';
SELECT count(*) FROM outbox WHERE route = 'ext' AND outlet IS NOT NULL;
UPDATE outbox_route SET relay = 'external' WHERE name = 'ext';
SELECT count(*) FROM outbox WHERE route = 'ext' AND outlet IS DISTINCT FROM 'external';
ROLLBACK;
-- A restored row keeps its outlet, known or not
BEGIN;
DELETE FROM outbox;
SET LOCAL check_function_bodies = off;
SELECT pg_catalog.set_config('search_path', '', true) = '' AS restores;
INSERT INTO public.outbox (event_type, payload, outlet) VALUES ('internal', '1', 'internal'), ('external', '1', 'external'), ('else', '1', 'else');
SELECT event_type, outlet FROM public.outbox ORDER BY seq;
ROLLBACK;

DELETE FROM outbox;
TRUNCATE outbox_archive;
DELETE FROM outbox_internal.outbox_lease;
DELETE FROM outbox_route WHERE name LIKE 'ext%';
DROP FUNCTION outbox_regress.claim, outbox_regress.put, outbox_regress.named;
REVOKE ALL ON FUNCTION outbox_claim, outbox_ack, outbox_nack, outbox_extend, outbox_release FROM regress_outbox_relay;
REVOKE USAGE ON SCHEMA outbox_regress FROM regress_outbox_relay;
DROP ROLE regress_outbox_relay, regress_outbox_relays;
