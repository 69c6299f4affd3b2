-- Back to the old relay: the old table forwards no more, and what is not published becomes to
-- be sent there again. Pause first (SELECT outbox_pause()), and start the old relay when it says 0 is left:
-- what workers have in their memory is settled within seconds; run it again then.

\set ON_ERROR_STOP on
\if :{?migration}
\else
	\set migration outbox_from_polling
\endif
SELECT quote_ident(n.nspname) AS outbox_schema
FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'outbox' \gset
SELECT old_table FROM :migration.settings \gset

BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL lock_timeout = '5s';
DROP TRIGGER IF EXISTS outbox_forward ON :old_table;
SELECT :migration.give_back('back to the old relay') AS given_back;
COMMIT;
SELECT count(*) AS left FROM :migration.moved m JOIN :outbox_schema.outbox o ON o.id = m.message_id;
