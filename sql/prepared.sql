-- Two-phase commit: a message is there after COMMIT PREPARED only.
-- (A second expected file is for servers that do not allow it.)
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
