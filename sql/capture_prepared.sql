-- A capture that is deferred to the commit, in a transaction that is prepared.
SELECT current_setting('max_prepared_transactions')::integer = 0 AS skipped \gset
\if :skipped
\echo skipped: max_prepared_transactions is 0
\quit
\endif
SET client_min_messages = error;
CREATE TABLE heads (id integer PRIMARY KEY, items integer);
CREATE CONSTRAINT TRIGGER e AFTER INSERT OR UPDATE ON heads DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION outbox_capture();
BEGIN;
INSERT INTO heads VALUES (1, 9);
PREPARE TRANSACTION 'regress_capture';
SELECT count(*) FROM outbox;
COMMIT PREPARED 'regress_capture';
SELECT event_type, payload FROM outbox;
DROP TABLE heads;
TRUNCATE outbox;
