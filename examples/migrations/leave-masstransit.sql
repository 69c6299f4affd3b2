-- Out of outbox, into MassTransit's outbox of Entity Framework: one OutboxState for each chunk, whose
-- delivery service sends its messages in order. What is no envelope yet (a payload) is put into
-- one: its type is :urn and the event_type, and it goes to the exchange of its route.
--
--   psql -v route=masstransit/Shop:OrderPlaced -f examples/migrations/leave-masstransit.sql

\set ON_ERROR_STOP on

\if :{?urn}
\else
	\set urn 'urn:message:'
\endif
SELECT quote_ident(n.nspname) AS outbox_schema
FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'outbox' \gset
\set insert 'WITH state AS (INSERT INTO "OutboxState" ("OutboxId", "LockId", "Created") SELECT gen_random_uuid(), ''00000000-0000-0000-0000-000000000000'', now() WHERE cardinality(messages) > 0 RETURNING "OutboxId") INSERT INTO "OutboxMessage" ("MessageId", "SentTime", "EnqueueTime", "ContentType", "MessageType", "Body", "Headers", "Properties", "DestinationAddress", "OutboxId") SELECT m.id, m.created_at, m.available_at, ''application/vnd.masstransit+json'', ' :'urn' ' || m.event_type, CASE WHEN m.body IS NOT NULL THEN convert_from(m.body, ''UTF8'') ELSE jsonb_build_object(''messageId'', m.id, ''messageType'', jsonb_build_array(' :'urn' ' || m.event_type), ''message'', m.payload, ''sentTime'', m.created_at, ''headers'', coalesce(m.headers, ''{}''))::text END, m.headers::text, CASE WHEN m.routing_key <> '''' THEN jsonb_build_object(''RMQ-RoutingKey'', m.routing_key)::text END, ''exchange:'' || r.exchange, s."OutboxId" FROM state s, unnest(messages) m JOIN ' :outbox_schema '.outbox_route r ON r.name = m.route ORDER BY m.seq'
\set bytes moved
\ir leave.sql
