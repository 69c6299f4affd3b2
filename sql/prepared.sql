-- Two-phase commit: a message is there after COMMIT PREPARED only.
SELECT current_setting('max_prepared_transactions')::integer = 0 AS skipped \gset
\if :skipped
\echo skipped: max_prepared_transactions is 0
\quit
\endif
SET client_min_messages = error;

BEGIN;
SELECT outbox_enqueue('one', '{}', available_at => '2100-01-01') IS NOT NULL AS ok;
SELECT outbox_enqueue('two', '{}') IS NOT NULL AS ok;
PREPARE TRANSACTION 'outbox_regress_1';
SELECT count(*) FROM outbox;
COMMIT PREPARED 'outbox_regress_1';
SELECT event_type FROM outbox ORDER BY seq;

BEGIN;
SELECT outbox_enqueue('three', '{}') IS NOT NULL AS ok;
PREPARE TRANSACTION 'outbox_regress_2';
ROLLBACK PREPARED 'outbox_regress_2';
SELECT event_type FROM outbox ORDER BY seq;

-- also under a lock on the key, which goes along
SET outbox.strict_keys = on;
BEGIN;
SELECT outbox_enqueue('four', '{}', aggregate_id => '4') IS NOT NULL AS ok;
PREPARE TRANSACTION 'outbox_regress_3';
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 3
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
COMMIT PREPARED 'outbox_regress_3';
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 3
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
SELECT event_type FROM outbox ORDER BY seq;

TRUNCATE outbox;

-- Damage to our objects is a problem row; so is a transaction that was prepared and forgotten
SELECT problem, subject, detail, command FROM outbox_problems WHERE problem IN ('trigger off', 'index missing', 'prepared transaction');
BEGIN;
ALTER TABLE outbox DISABLE TRIGGER outbox_row;
ALTER TABLE outbox_control DISABLE TRIGGER outbox_control_changed;
DROP INDEX outbox_ready;
DROP TRIGGER outbox_new_row ON outbox_new;
DROP TRIGGER outbox_event_statement ON outboxevent;
SELECT severity, problem, subject, detail, command FROM outbox_problems WHERE problem IN ('trigger off', 'index missing') ORDER BY detail;
ROLLBACK;
-- A table that a crash empties
BEGIN;
ALTER TABLE outbox SET UNLOGGED;
SELECT severity, problem, subject, detail, command FROM outbox_problems WHERE problem = 'table unlogged';
ROLLBACK;
-- A row trigger that fires after ours, and may change what the row was checked by
BEGIN;
CREATE TRIGGER a BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
CREATE TRIGGER "O" BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
CREATE TRIGGER z_after AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
CREATE TRIGGER z_delete BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
CREATE TRIGGER z_statement BEFORE INSERT ON outbox FOR EACH STATEMENT EXECUTE FUNCTION suppress_redundant_updates_trigger();
CREATE TRIGGER "Z late" BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
CREATE TRIGGER "z late" BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
SELECT severity, problem, subject, detail, command FROM outbox_problems WHERE problem = 'trigger order' ORDER BY detail;
ROLLBACK;
BEGIN;
SELECT outbox_enqueue('forgotten', '{}') IS NOT NULL AS put;
PREPARE TRANSACTION E'regress\nforgotten';
SELECT count(*) FROM outbox_problems WHERE problem = 'prepared transaction';
SELECT severity, problem, subject, command FROM outbox_internal.outbox_object_problems('0');
ROLLBACK PREPARED E'regress\nforgotten';
-- A lock that only those who write wait for is one, too, once it is no matter of a moment
BEGIN;
LOCK TABLE outbox IN SHARE MODE;
PREPARE TRANSACTION E'regress\nshare';
SELECT pg_sleep(1.1) IS NOT NULL AS waited;
SELECT severity, subject, detail, command FROM outbox_problems WHERE problem = 'table locked';
ROLLBACK PREPARED E'regress\nshare';

-- A change of a route that no enqueue may overlap names who is in its way, and gives up
INSERT INTO outbox_route (name) VALUES ('forgotten');
BEGIN;
SELECT outbox_enqueue('e', '1', route => 'forgotten') IS NOT NULL AS ok;
PREPARE TRANSACTION E'of\nnobody';
UPDATE outbox_route SET relay = 'external' WHERE name = 'forgotten';
DELETE FROM outbox_route WHERE name = 'forgotten';
SELECT outbox_enqueue('e', '1') IS NOT NULL AS ok;
ROLLBACK PREPARED E'of\nnobody';
SELECT outbox_enqueue('e', '1', route => 'forgotten') IS NOT NULL AS ok;
BEGIN;
SELECT count(*) FROM (SELECT FROM outbox WHERE route = 'forgotten' FOR UPDATE) l;
PREPARE TRANSACTION E'of\nnobody';
UPDATE outbox_route SET relay = 'external' WHERE name = 'forgotten';
ROLLBACK PREPARED E'of\nnobody';
DELETE FROM outbox WHERE route = 'forgotten';
DELETE FROM outbox_route WHERE name = 'forgotten';
TRUNCATE outbox;

-- What a claim reads grows with the messages that are locked, and not with their square, whatever max_messages is
SET outbox.enabled = on;
INSERT INTO outbox_route (name, exchange, relay) VALUES ('ext', 'x', 'external');
CREATE FUNCTION pg_temp.claim(n integer, OUT token bigint, OUT names text) LANGUAGE sql AS $$
	SELECT max(c.token), string_agg(c.event_type || coalesce('/' || c.aggregate_id, ''), ' ' ORDER BY c.seq)
	FROM outbox_claim('ext', n, '1 hour', 'regress') c
$$;
CREATE FUNCTION pg_temp.put(what text) RETURNS void LANGUAGE sql AS $$
	SELECT count(outbox_enqueue(split_part(w, '/', 1), to_jsonb(n), 'thing', split_part(w, '/', 2), route => 'ext'))
	FROM unnest(string_to_array(what, ' ')) WITH ORDINALITY u(w, n)
$$;
INSERT INTO outbox (event_type, payload, route, aggregate_type, aggregate_id, available_at)
	SELECT 'locked', '{}', 'ext', 'thing', CASE WHEN i % 3 > 0 THEN i::text END, CASE WHEN i % 3 > 1 THEN timestamptz '2000-01-01' END
	FROM generate_series(1, 2990) i;
BEGIN;
SELECT count(*) FROM (SELECT FROM outbox FOR UPDATE) l;
PREPARE TRANSACTION 'regress_outbox_locked';
SELECT pg_temp.put('held/1 held/2 free/3 free/6');
BEGIN;
SELECT names FROM pg_temp.claim(1);
-- it has locked no other that is free
SELECT event_type, aggregate_id FROM outbox WHERE xmax = pg_current_xact_id()::xid;
SELECT names FROM pg_temp.claim(100);
SELECT sum(pg_stat_get_xact_tuples_returned(i::regclass)) < 20 * 3000 AS linear
FROM unnest('{outbox_external, outbox_external_waiting}'::text[]) i;
ROLLBACK;
ROLLBACK PREPARED 'regress_outbox_locked';
-- One that was locked in vain, behind a skipped one of its key, is no matter of the one behind it
DELETE FROM outbox;
SELECT pg_temp.put('locked/1 locked/2');
BEGIN;
SELECT count(*) FROM (SELECT FROM outbox FOR UPDATE) l;
PREPARE TRANSACTION 'regress_outbox_locked';
SELECT pg_temp.put('held/2 free/3');
SELECT token, names FROM pg_temp.claim(1) \gset
\echo :names
ROLLBACK PREPARED 'regress_outbox_locked';
SELECT outbox_release(:token);
DELETE FROM outbox;
DELETE FROM outbox_internal.outbox_lease;
DELETE FROM outbox_route WHERE name = 'ext';
