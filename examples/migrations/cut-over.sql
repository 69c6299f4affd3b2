-- Moves the rest, and has the old table forward what is written there from now on. Writers
-- wait meanwhile; nobody writes between the two, so there is neither gap nor double. If somebody has
-- had the table open for 5 s it gives up: run it again.

\set ON_ERROR_STOP on
\if :{?migration}
\else
	\set migration outbox_from_polling
\endif
SELECT old_table, id_column FROM :migration.settings \gset

BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL lock_timeout = '5s';
LOCK TABLE :old_table IN SHARE ROW EXCLUSIVE MODE;
SELECT :migration.move(NULL) AS moved;
CREATE OR REPLACE TRIGGER outbox_forward AFTER INSERT ON :old_table
	FOR EACH ROW EXECUTE FUNCTION :migration.forward(:'id_column');
COMMIT;
