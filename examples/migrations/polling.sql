-- Coming from a table of one's own that a program polls. Makes the schema
-- outbox_from_polling, and changes nothing else. Say what your table is like:
--
--   psql -v old_table=shop.outbox_events -v type=event_name -f examples/migrations/polling.sql
--
-- Then look at outbox_from_polling.pending: these are the messages.

\if :{?migration}
\else
	\set migration outbox_from_polling
\endif
\if :{?old_table}
\else
	\set old_table outbox_events
\endif
-- the primary key, and its type
\if :{?id}
\else
	\set id id
\endif
\if :{?id_type}
\else
	\set id_type bigint
\endif
-- which rows are to be sent
\if :{?ready}
\else
	\set ready 'processed_at IS NULL'
\endif
-- whether a row is deleted when it was sent (1); if not (0), what sets it apart then, and what undoes that
\if :{?deletes}
\else
	\set deletes 0
\endif
\if :{?sent}
\else
	\set sent 'processed_at = now()'
\endif
\if :{?unsent}
\else
	\set unsent 'processed_at = NULL'
\endif
-- the order in which they are sent
\if :{?position}
\else
	\set position 'o.' :"id"
\endif
-- expressions: what of a row is what of a message
\if :{?type}
\else
	\set type type
\endif
\if :{?aggregate_type}
\else
	\set aggregate_type aggregate_type
\endif
\if :{?aggregate_id}
\else
	\set aggregate_id aggregate_id
\endif
\if :{?payload}
\else
	\set payload payload
\endif
\if :{?headers}
\else
	\set headers NULL
\endif
\if :{?routing_key}
\else
	\set routing_key NULL
\endif
\if :{?created_at}
\else
	\set created_at created_at
\endif
\if :{?route}
\else
	\set route '''default'''
\endif

BEGIN;
\ir schema.sql

CREATE VIEW :migration.pending AS
	SELECT o.:"id" AS old_id, :migration.message_id(:'old_table', o.:"id"::text) AS id,
		(:route)::text AS route, (:type)::text AS event_type,
		(:aggregate_type)::text AS aggregate_type, (:aggregate_id)::text AS aggregate_id,
		(:payload)::jsonb AS payload, NULL::bytea AS body, (:headers)::jsonb AS headers, NULL::jsonb AS properties,
		(:routing_key)::text AS routing_key, (:created_at)::timestamptz AS created_at, NULL::timestamptz AS available_at,
		:position AS position, CASE WHEN :deletes = 1 THEN to_jsonb(o) END AS old_row
	FROM :old_table o WHERE :ready;

-- the routes are there
\set routes SELECT
\if :deletes
	\ir delete.sql
\else
	\set mark 'UPDATE ' :old_table ' o SET ' :sent ' WHERE o.' :"id" ' = ANY (ids) AND (' :ready ')'
	\set unmark 'UPDATE ' :old_table ' o SET ' :unsent ' FROM ' :migration '.moved m WHERE m.message_id = ANY (messages) AND m.old_id = o.' :"id"
\endif
\ir functions.sql
COMMIT;
