CREATE VIEW @extschema@.outbox_messages AS
	SELECT @columns archived o.@,
		o.last_error, o.last_error_reason,
		CASE WHEN c.id_hash IS NOT NULL OR l.id IS NOT NULL THEN 'processing' ELSE o.status END AS status,
		NULL::timestamptz AS published_at, o.failed_at
	FROM @extschema@.outbox o
		LEFT JOIN (SELECT id_hash FROM outbox_internal.outbox_claims() WHERE in_flight) c
			ON c.id_hash = outbox_internal.outbox_claim_hash(o.id)
		LEFT JOIN (SELECT i.id FROM outbox_internal.outbox_lease h, pg_catalog.unnest(h.ids) i(id)
				   WHERE h.expires_at >= pg_catalog.clock_timestamp()) l ON l.id = o.id
	UNION ALL
	SELECT @columns archived a.@,
		NULL, NULL,
		'published', a.published_at, NULL
	FROM @extschema@.outbox_archive a;

COMMENT ON VIEW @extschema@.outbox_messages IS 'Every message that the database still has: live ones, and published ones within outbox.retention.';

/* With a security barrier: else functions of a reader see rows that are left out. */
CREATE VIEW @extschema@.outbox_failed WITH (security_barrier = true) AS
	SELECT @columns archived -available_at@,
		last_error, last_error_reason, failed_at
	FROM @extschema@.outbox
	WHERE status = 'failed'
	/* in the order of an index, which a query's own ORDER BY then finds done */
	ORDER BY seq;

COMMENT ON VIEW @extschema@.outbox_failed IS 'Messages given up after max_attempts of their route, with the last error in words and its reason as a name; outbox_requeue() tries again, outbox_discard() removes.';

CREATE VIEW @extschema@.outbox_held_keys WITH (security_barrier = true) AS
	WITH holder AS (
		SELECT DISTINCT ON (o.route, o.aggregate_type, o.aggregate_id)
			o.aggregate_type, o.aggregate_id, o.seq, o.id, o.route, o.status,
			o.attempts, o.available_at, o.last_error, o.outlet
		FROM @extschema@.outbox o JOIN @extschema@.outbox_route r ON r.name = o.route
		WHERE o.aggregate_id IS NOT NULL AND r.ordering <> 'none'
			AND (o.status = 'failed' AND r.on_failed = 'block'
				 OR o.status = 'pending' AND o.available_at IS NOT NULL
					AND o.attempts > 0)
		ORDER BY o.route, o.aggregate_type, o.aggregate_id, o.seq)
	SELECT h.aggregate_type, h.aggregate_id, h.status AS reason, h.id, h.seq,
		h.route, h.attempts,
		CASE WHEN h.status = 'pending' THEN h.available_at END AS retry_at,
		outbox_internal.outbox_printable(h.last_error) AS last_error,
		(SELECT pg_catalog.count(*) FROM @extschema@.outbox b
		 WHERE b.status = 'pending' AND b.available_at IS NULL AND b.outlet IS NULL
			AND b.aggregate_id IS NOT NULL
			AND outbox_internal.outbox_key_hash(b.route, b.aggregate_type, b.aggregate_id)
				= outbox_internal.outbox_key_hash(h.route, h.aggregate_type, h.aggregate_id)
			AND b.route = h.route AND b.seq > h.seq AND h.outlet IS NULL) +
		(SELECT pg_catalog.count(*) FROM @extschema@.outbox b
		 WHERE b.outlet = 'external' AND b.status = 'pending' AND b.failed_at IS NULL AND b.available_at IS NULL
			AND b.route = h.route AND b.seq > h.seq AND h.outlet = 'external'
			AND b.aggregate_id = h.aggregate_id
			AND b.aggregate_type IS NOT DISTINCT FROM h.aggregate_type) AS behind
	FROM holder h;

COMMENT ON VIEW @extschema@.outbox_held_keys IS 'Keys whose later messages wait because of one message: it failed on a route with on_failed = ''block'' (requeue or discard it), or waits for its next attempt.';

