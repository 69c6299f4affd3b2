-- Coming from CAP's outbox (DotNetCore.CAP.PostgreSql). Makes the schema outbox_from_cap, and the route
-- "cap/moved", which publishes as CAP does: to its exchange, with the name of the message as routing key.
--
--   psql -f examples/migrations/cap.sql

\if :{?migration}
\else
	\set migration outbox_from_cap
\endif
\if :{?old_table}
\else
	\set old_table '"cap"."published"'
\endif
\if :{?exchange}
\else
	\set exchange cap.default.router
\endif
-- CAP gives a message up after so many attempts (FailedRetryCount)
\if :{?retries}
\else
	\set retries 50
\endif

\set id Id
\set id_type bigint
\set ready 'o."StatusName" <> ''Succeeded'' AND o."Retries" < ' :retries
\set position 'o."Id"'

BEGIN;
\ir schema.sql
INSERT INTO :outbox_schema.outbox_route (name, exchange, exchange_type)
VALUES ('cap/moved', :'exchange', 'topic');

-- Consumers of CAP know a message by its header cap-msg-id, which stays; without a value the body is empty.
CREATE VIEW :migration.pending AS
	SELECT o."Id" AS old_id, :migration.message_id('cap', o."Id"::text) AS id,
		'cap/moved'::text AS route, o."Name"::text AS event_type,
		NULL::text AS aggregate_type, NULL::text AS aggregate_id,
		nullif(c.value, 'null') AS payload, CASE WHEN nullif(c.value, 'null') IS NULL THEN ''::bytea END AS body,
		c.headers - 'cap-exception' AS headers, NULL::jsonb AS properties,
		NULL::text AS routing_key, o."Added"::timestamptz AS created_at,
		CASE WHEN o."StatusName" IN ('Delayed', 'Queued') THEN o."ExpiresAt"::timestamptz END AS available_at,
		o."Id" AS position, jsonb_build_object('StatusName', o."StatusName", 'ExpiresAt', o."ExpiresAt") AS old_row
	FROM :old_table o CROSS JOIN LATERAL (
		SELECT coalesce(j -> 'Headers', j -> 'headers') AS headers, coalesce(j -> 'Value', j -> 'value') AS value
		FROM (VALUES (o."Content"::jsonb)) v(j)) c
	WHERE :ready;

\set routes SELECT
\set mark 'UPDATE ' :old_table ' o SET "StatusName" = ''Succeeded'', "ExpiresAt" = localtimestamp + interval ''1 day'' WHERE o."Id" = ANY (ids) AND ' :ready
\set unmark 'UPDATE ' :old_table ' o SET "StatusName" = r."StatusName", "ExpiresAt" = r."ExpiresAt" FROM ' :migration '.moved m, jsonb_populate_record(NULL::' :old_table ', m.old_row) r WHERE m.message_id = ANY (messages) AND m.old_id = o."Id"'
\ir functions.sql
COMMIT;
