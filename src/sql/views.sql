CREATE VIEW @extschema@.outbox_messages AS
	SELECT o.seq, o.id, o.route, o.event_type, o.aggregate_type,
		o.aggregate_id, o.payload, o.body, o.headers, o.properties,
		o.routing_key, o.created_at, o.available_at, o.attempts, o.last_error,
		CASE WHEN c.id_hash IS NOT NULL OR l.id IS NOT NULL THEN 'processing' ELSE o.status END AS status,
		NULL::timestamptz AS published_at, o.failed_at
	FROM @extschema@.outbox o
		LEFT JOIN (SELECT id_hash FROM outbox_internal.outbox_claims() WHERE in_flight) c
			ON c.id_hash = pg_catalog.uuid_hash_extended(o.id, 0) & 4611686018427387903
		LEFT JOIN (SELECT i.id FROM outbox_internal.outbox_lease h, pg_catalog.unnest(h.ids) i(id)
				   WHERE h.expires_at >= pg_catalog.clock_timestamp()) l ON l.id = o.id
	UNION ALL
	SELECT a.seq, a.id, a.route, a.event_type, a.aggregate_type,
		a.aggregate_id, a.payload, a.body, a.headers, a.properties,
		a.routing_key, a.created_at, a.available_at, a.attempts, NULL,
		'published', a.published_at, NULL
	FROM @extschema@.outbox_archive a;

COMMENT ON VIEW @extschema@.outbox_messages IS 'Every message that the database still has: live ones, and published ones within outbox.retention.';

CREATE VIEW @extschema@.outbox_failed AS
	SELECT seq, id, route, event_type, aggregate_type, aggregate_id, payload,
		body, headers, properties, routing_key, created_at, attempts, last_error,
		failed_at
	FROM @extschema@.outbox
	WHERE status = 'failed';

COMMENT ON VIEW @extschema@.outbox_failed IS 'Messages given up after max_attempts of their route; outbox_requeue() tries again, outbox_discard() removes.';

/*
 * What was sent as spans of OpenTelemetry.  Those without trace context, and
 * those that are not sampled, are left out, by the rules of traceparent.c; the id of
 * the span is what outbox_trace_span_id() puts into the header.
 */
CREATE VIEW @extschema@.outbox_spans WITH (security_barrier = true) AS
	SELECT pg_catalog.substr(m.parent, 4, 32) AS trace_id,
		CASE pg_catalog.substr(m.hex, 17) WHEN pg_catalog.repeat('0', 16) THEN '0000000000000001' ELSE pg_catalog.substr(m.hex, 17) END AS span_id,
		pg_catalog.substr(m.parent, 37, 16) AS parent_span_id,
		m.headers ->> 'tracestate' AS trace_state,
		pg_catalog.concat_ws(' ', 'send', coalesce(nullif(r.exchange, ''), d.nameless)) AS name,
		'producer'::text AS kind,
		m.created_at AS start_time,
		m.settled_at AS end_time,
		pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
			'messaging.system', 'rabbitmq',
			'messaging.operation.name', 'send',
			'messaging.operation.type', 'send',
			'messaging.destination.name',
				coalesce(nullif(pg_catalog.concat_ws(':', nullif(r.exchange, ''), nullif(k.key, '')), ''), d.nameless),
			'messaging.rabbitmq.destination.routing_key', nullif(k.key, ''),
			'messaging.message.id', m.id,
			'messaging.message.conversation_id', m.properties ->> 'correlation_id',
			'outbox.route', m.route,
			'outbox.attempts', m.attempts,
			'error.type', m.error)) AS attributes
	FROM (SELECT a.id, a.route, a.event_type, a.aggregate_type, a.aggregate_id, a.headers, a.properties,
				a.routing_key, a.created_at, a.attempts, a.published_at AS settled_at, NULL::text AS error,
				a.headers ->> 'traceparent' AS parent, pg_catalog.replace(a.id::text, '-', '') AS hex
			FROM @extschema@.outbox_archive a
			UNION ALL
			SELECT o.id, o.route, o.event_type, o.aggregate_type, o.aggregate_id, o.headers, o.properties,
				o.routing_key, o.created_at, o.attempts, o.failed_at,
				CASE WHEN outbox_internal.outbox_printable(o.last_error) LIKE 'returned by the broker%' THEN 'unroutable'
					WHEN outbox_internal.outbox_printable(o.last_error) LIKE '%basic.nack%' THEN 'queue refuses' ELSE 'message refused' END,
				o.headers ->> 'traceparent', pg_catalog.replace(o.id::text, '-', '')
			FROM @extschema@.outbox o WHERE o.status = 'failed' AND o.failed_at IS NOT NULL) m
		LEFT JOIN @extschema@.outbox_route r ON r.name = m.route
		CROSS JOIN LATERAL (SELECT coalesce(m.routing_key,
			(SELECT pg_catalog.string_agg(CASE t.part[1] WHEN '{event_type}' THEN m.event_type
					WHEN '{aggregate_type}' THEN m.aggregate_type WHEN '{aggregate_id}' THEN m.aggregate_id
					ELSE t.part[1] END, '' ORDER BY t.n)
				FROM pg_catalog.regexp_matches(r.routing_key, '({[a-z_]+}|[^{]+)', 'g') WITH ORDINALITY t (part, n))) AS key) k
		CROSS JOIN LATERAL (SELECT CASE WHEN r.name IS NOT NULL THEN 'amq.default' END AS nameless) d
	WHERE m.parent ~ '^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf]$|(?!00|ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf](-.*)?$)'
		AND pg_catalog.substr(m.parent, 4, 32) <> pg_catalog.repeat('0', 32) AND pg_catalog.substr(m.parent, 37, 16) <> pg_catalog.repeat('0', 16)
		AND coalesce(r.relay, 'internal') = 'internal';

COMMENT ON VIEW @extschema@.outbox_spans IS 'One span of OpenTelemetry for each message with a sampled traceparent that was published, within outbox.retention, or given up; for an exporter.';

CREATE VIEW @extschema@.outbox_held_keys AS
	WITH holder AS (
		SELECT DISTINCT ON (o.route, o.aggregate_type, o.aggregate_id)
			o.aggregate_type, o.aggregate_id, o.seq, o.id, o.route, o.status,
			o.attempts, o.available_at, o.last_error, o.external
		FROM @extschema@.outbox o JOIN @extschema@.outbox_route r ON r.name = o.route
		WHERE o.aggregate_id IS NOT NULL AND r.ordering = 'key'
			AND (o.status = 'failed' AND r.on_failed = 'block'
				 OR o.status = 'pending' AND o.available_at IS NOT NULL
					AND o.attempts > 0)
		ORDER BY o.route, o.aggregate_type, o.aggregate_id, o.seq)
	SELECT h.aggregate_type, h.aggregate_id, h.status AS reason, h.id, h.seq,
		h.route, h.attempts,
		CASE WHEN h.status = 'pending' THEN h.available_at END AS retry_at,
		outbox_internal.outbox_printable(h.last_error) AS last_error,
		(SELECT pg_catalog.count(*) FROM @extschema@.outbox b
		 WHERE b.status = 'pending' AND b.available_at IS NULL AND b.external IS NULL
			AND b.aggregate_id IS NOT NULL
			AND outbox_internal.outbox_key_hash(b.route, b.aggregate_type, b.aggregate_id)
				= outbox_internal.outbox_key_hash(h.route, h.aggregate_type, h.aggregate_id)
			AND b.seq > h.seq AND h.external IS NULL) +
		(SELECT pg_catalog.count(*) FROM @extschema@.outbox b
		 WHERE b.external AND b.status = 'pending' AND b.available_at IS NULL
			AND b.route = h.route AND b.seq > h.seq AND h.external
			AND b.aggregate_id = h.aggregate_id
			AND b.aggregate_type IS NOT DISTINCT FROM h.aggregate_type) AS behind
	FROM holder h;

COMMENT ON VIEW @extschema@.outbox_held_keys IS 'Keys whose later messages wait because of one message: it failed on a route with on_failed = ''block'' (requeue or discard it), or waits for its next attempt.';

