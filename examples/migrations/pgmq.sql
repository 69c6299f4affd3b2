-- Coming from a queue of pgmq (0.30 or later). Makes the schema outbox_from_pgmq, and a route that
-- publishes straight into the RabbitMQ queue of the same name:
--
--   psql -v queue=orders -f examples/migrations/pgmq.sql
--
-- What a consumer has read and neither archived nor deleted is moved when its vt has passed:
-- until then it may be being worked on.

\if :{?migration}
\else
	\set migration outbox_from_pgmq
\endif
\if :{?route}
\else
	\set route :queue
\endif
-- pgmq knows no types and no keys: expressions of the row
\if :{?type}
\else
	\set type 'o.message ->> ''type'''
\endif
\if :{?aggregate_type}
\else
	\set aggregate_type NULL
\endif
\if :{?aggregate_id}
\else
	\set aggregate_id NULL
\endif

SELECT format('pgmq.%I', lower('q_' || :'queue')) AS old_table \gset
\set id msg_id
\set id_type bigint
\set ready 'o.vt <= clock_timestamp() OR o.read_ct = 0'
\set position o.msg_id

BEGIN;
\ir schema.sql
INSERT INTO :outbox_schema.outbox_route (name, exchange, routing_key)
VALUES (:'route', '', :'queue') ON CONFLICT (name) DO NOTHING;

-- Versions before 1.5 have no headers.
CREATE VIEW :migration.pending AS
	SELECT o.msg_id AS old_id, :migration.message_id('pgmq/' || :'queue', o.msg_id::text) AS id,
		:'route'::text AS route, coalesce(:type, :'queue')::text AS event_type,
		(:aggregate_type)::text AS aggregate_type, (:aggregate_id)::text AS aggregate_id,
		coalesce(o.message, 'null') AS payload, NULL::bytea AS body, to_jsonb(o) -> 'headers' AS headers, NULL::jsonb AS properties,
		NULL::text AS routing_key, o.enqueued_at AS created_at,
		CASE WHEN o.read_ct = 0 AND o.vt > clock_timestamp() THEN o.vt END AS available_at,
		o.msg_id AS position, to_jsonb(o) AS old_row
	FROM :old_table o WHERE :ready;

\set routes SELECT
\ir delete.sql
\ir functions.sql
COMMIT;
