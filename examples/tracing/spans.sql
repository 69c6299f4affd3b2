-- What the relay has sent, as spans of OpenTelemetry, for an exporter: one for each message
-- with a sampled traceparent that was published, within outbox.retention, or given up.
-- Messages without trace context, and those that are not sampled, are left out, as
-- outbox.trace_spans leaves them alone.  The id of a span is what that puts into the header.
--
-- Run it in the schema of the extension, or with that in search_path; doc/formats.md has its
-- columns.

CREATE VIEW outbox_spans WITH (security_barrier = true) AS
	SELECT substr(m.parent, 4, 32) AS trace_id,
		CASE substr(m.hex, 17) WHEN repeat('0', 16) THEN '0000000000000001' ELSE substr(m.hex, 17) END AS span_id,
		substr(m.parent, 37, 16) AS parent_span_id,
		m.headers ->> 'tracestate' AS trace_state,
		concat_ws(' ', 'send', coalesce(nullif(r.exchange, ''), d.nameless)) AS name,
		'producer'::text AS kind,
		m.created_at AS start_time,
		m.settled_at AS end_time,
		jsonb_strip_nulls(jsonb_build_object(
			'messaging.system', 'rabbitmq',
			'messaging.operation.name', 'send',
			'messaging.operation.type', 'send',
			'messaging.destination.name',
				coalesce(nullif(concat_ws(':', nullif(r.exchange, ''), nullif(k.key, '')), ''), d.nameless),
			'messaging.rabbitmq.destination.routing_key', nullif(k.key, ''),
			'messaging.message.id', m.id,
			'messaging.message.conversation_id', m.properties ->> 'correlation_id',
			'outbox.route', m.route,
			'outbox.attempts', m.attempts,
			'error.type', m.error)) AS attributes
	FROM (SELECT a.id, a.route, a.event_type, a.aggregate_type, a.aggregate_id, a.headers, a.properties,
				a.routing_key, a.created_at, a.attempts, a.published_at AS settled_at, NULL::text AS error,
				a.headers ->> 'traceparent' AS parent, replace(a.id::text, '-', '') AS hex
			FROM outbox_archive a
			UNION ALL
			SELECT o.id, o.route, o.event_type, o.aggregate_type, o.aggregate_id, o.headers, o.properties,
				o.routing_key, o.created_at, o.attempts, o.failed_at,
				coalesce(o.last_error_reason, 'message refused'),
				o.headers ->> 'traceparent', replace(o.id::text, '-', '')
			FROM outbox o WHERE o.status = 'failed' AND o.failed_at IS NOT NULL) m
		LEFT JOIN outbox_route r ON r.name = m.route
		CROSS JOIN LATERAL (SELECT coalesce(m.routing_key,
			(SELECT string_agg(CASE t.part[1] WHEN '{event_type}' THEN m.event_type
					WHEN '{aggregate_type}' THEN m.aggregate_type WHEN '{aggregate_id}' THEN m.aggregate_id
					ELSE t.part[1] END, '' ORDER BY t.n)
				FROM regexp_matches(r.routing_key, '({[a-z_]+}|[^{]+)', 'g') WITH ORDINALITY t (part, n))) AS key) k
		CROSS JOIN LATERAL (SELECT CASE WHEN r.name IS NOT NULL THEN 'amq.default' END AS nameless) d
	WHERE m.parent ~ '^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf]$|(?!00|ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf](-.*)?$)'
		AND substr(m.parent, 4, 32) <> repeat('0', 32) AND substr(m.parent, 37, 16) <> repeat('0', 16)
		AND coalesce(r.relay, 'internal') = 'internal';

COMMENT ON VIEW outbox_spans IS 'One span of OpenTelemetry for each message with a sampled traceparent that was published, within outbox.retention, or given up; for an exporter.';

