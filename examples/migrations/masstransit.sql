-- Coming from MassTransit's outbox of Entity Framework (tables OutboxMessage and OutboxState). Makes
-- the schema outbox_from_masstransit; routes are made as messages need them, one for each
-- exchange, called masstransit/EXCHANGE.
--
--   psql -f examples/migrations/masstransit.sql

\if :{?migration}
\else
	\set migration outbox_from_masstransit
\endif
\if :{?old_table}
\else
	\set old_table '"OutboxMessage"'
\endif

\set id SequenceNumber
\set id_type bigint
\set ready true
\set position 'o."SequenceNumber"'

BEGIN;
\ir schema.sql

-- rabbitmq://host/virtual-host/NAME?options, queue:NAME, exchange:NAME
CREATE FUNCTION :migration.exchange(address text) RETURNS text LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
	SELECT CASE WHEN address ~ '^[a-z]+://' THEN substring(address from '/([^/?]*)(?:\?.*)?$')
		ELSE substring(address from '^[a-z]+:([^?]*)') END;
END;

-- The body is the envelope already. A MessageId that several rows have (the same message to several
-- places) stays with the first of them. Order is kept where MassTransit keeps it, in one outbox.
CREATE VIEW :migration.pending AS
	SELECT o."SequenceNumber" AS old_id,
		CASE WHEN EXISTS (SELECT FROM :old_table e WHERE e."MessageId" = o."MessageId" AND e."SequenceNumber" < o."SequenceNumber")
			OR EXISTS (SELECT FROM :migration.moved v WHERE v.message_id = o."MessageId" AND v.old_id <> o."SequenceNumber")
			OR EXISTS (SELECT FROM :outbox_schema.outbox l WHERE l.id = o."MessageId")
			THEN :migration.message_id('masstransit', o."SequenceNumber"::text)
			ELSE o."MessageId" END AS id,
		'masstransit/' || :migration.exchange(o."DestinationAddress") AS route,
		regexp_replace(split_part(o."MessageType", ';', 1), '^urn:message:', '') AS event_type,
		'masstransit'::text AS aggregate_type,
		coalesce(o."OutboxId"::text, o."InboxMessageId" || '/' || o."InboxConsumerId") AS aggregate_id,
		NULL::jsonb AS payload, convert_to(o."Body", 'UTF8') AS body,
		o."Headers"::jsonb AS headers,
		jsonb_strip_nulls(jsonb_build_object('content_type', o."ContentType", 'correlation_id', o."CorrelationId",
			'expiration', CASE WHEN o."ExpirationTime" IS NOT NULL
				THEN greatest(1, extract(epoch FROM o."ExpirationTime" - now()) * 1000)::bigint::text END,
			'app_id', p ->> 'RMQ-AppId', 'priority', p -> 'RMQ-Priority', 'reply_to', p ->> 'RMQ-ReplyTo', 'type', p ->> 'RMQ-Type')) AS properties,
		coalesce(p ->> 'RMQ-RoutingKey', '') AS routing_key, o."SentTime" AS created_at, o."EnqueueTime" AS available_at,
		o."SequenceNumber" AS position, to_jsonb(o) AS old_row
	FROM :old_table o CROSS JOIN LATERAL (VALUES (coalesce(nullif(o."Properties", '')::jsonb, '{}'))) v(p);

\set routes 'INSERT INTO ' :outbox_schema '.outbox_route (name, exchange, exchange_type) SELECT DISTINCT p.route, substr(p.route, 13), ''fanout'' FROM ' :migration '.pending p WHERE p.old_id = ANY (ids) ON CONFLICT (name) DO NOTHING'
\ir delete.sql
\ir functions.sql
COMMIT;
