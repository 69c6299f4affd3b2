--
-- Metrics, in the terms of Prometheus
--

/* By route; routes that share their counters share their series, whose label is empty. */
CREATE FUNCTION outbox_internal.outbox_route_metrics(
	counts outbox_internal.outbox_route_count[], OUT name text, OUT type text, OUT labels jsonb, OUT value double precision, OUT help text)
RETURNS SETOF record
LANGUAGE plpgsql ROWS 20
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY
	WITH s AS MATERIALIZED (SELECT * FROM outbox_internal.outbox_route_stats()),
	named AS MATERIALIZED (SELECT s.route FROM s WHERE s.route IS NOT NULL AND s.published IS NOT NULL),
	b AS MATERIALIZED (
		/* Before anything was counted each route has a series, as many as will be counted. */
		SELECT CASE WHEN n.route IS NOT NULL OR row_number() OVER (PARTITION BY n.route IS NULL ORDER BY c.route)
				<= 32 - (SELECT count(*) FROM named) THEN c.route ELSE '' END AS label,
			s.waits_because IS NOT NULL AS waits, c.*
		FROM unnest(counts) c LEFT JOIN named n ON n.route = c.route LEFT JOIN s ON s.route = c.route
		WHERE c.route IS NOT NULL),
	r AS (
		SELECT coalesce(b.label, s.route, '') AS label, sum(b.backlog) AS backlog, min(b.oldest) AS oldest,
			sum(b.scheduled) AS scheduled, sum(b.retrying) AS retrying, sum(b.failed) AS failed,
			bool_or(b.paused) AS paused, bool_or(coalesce(b.waits, s.waits_because IS NOT NULL)) AS waits,
			max(s.published) AS published, max(s.returned) AS returned, max(s.nacked) AS nacked,
			max(s.failed) AS gave_up, max(s.retried) AS retried, max(s.dead_lettered) AS dead_lettered,
			count(b.label) > 0 AS seen
		FROM b FULL JOIN (SELECT * FROM s WHERE s.published IS NOT NULL) s ON coalesce(s.route, '') = b.label
		GROUP BY coalesce(b.label, s.route, ''))
	/* Nobody knows what a table has that is locked against readers: NULL, and not 0. */
	SELECT v.name, v.type, jsonb_build_object('route', r.label),
		CASE WHEN r.seen OR v.type = 'counter' OR v.name = 'outbox_route_waiting' THEN coalesce(v.value, 0) END::double precision,
		v.help
	FROM r, LATERAL (VALUES
		('outbox_backlog_messages', 'gauge', r.backlog, 'Messages to be published now, those in flight and those waiting for another attempt included'),
		('outbox_scheduled_messages', 'gauge', r.scheduled, 'Messages whose time, set by the application, has not come'),
		('outbox_retrying_messages', 'gauge', r.retrying, 'Messages to be published with at least one failed attempt'),
		('outbox_failed_messages', 'gauge', r.failed, 'Messages given up that are still there'),
		('outbox_oldest_pending_seconds', 'gauge', extract(epoch FROM clock_timestamp() - r.oldest), 'For how long the oldest message to be published has waited'),
		('outbox_route_paused', 'gauge', r.paused::integer, '1 while the route is paused'),
		('outbox_route_waiting', 'gauge', r.waits::integer, '1 while its exchange is missing or forbidden'),
		('outbox_published_total', 'counter', r.published, 'Messages confirmed and settled'),
		('outbox_returned_total', 'counter', r.returned, 'Attempts that the broker returned as unroutable'),
		('outbox_nacked_total', 'counter', r.nacked, 'Attempts that the broker nacked'),
		('outbox_failed_total', 'counter', r.gave_up, 'Messages that became failed'),
		('outbox_retried_total', 'counter', r.retried, 'Failed attempts after which another one follows'),
		('outbox_dead_lettered_total', 'counter', r.dead_lettered, 'Messages given up that went to the failed_route of their route')
	) AS v (name, type, value, help);
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_route_metrics(outbox_internal.outbox_route_count[]) IS 'Those of outbox_metrics that have the label route.';

CREATE FUNCTION outbox_internal.outbox_timing_metrics(
	OUT name text, OUT type text, OUT labels jsonb, OUT value double precision, OUT help text)
RETURNS SETOF record
LANGUAGE plpgsql ROWS 20
SET search_path = pg_catalog, pg_temp
/* Bounds are compared as texts by whoever collects them. */
SET extra_float_digits = 1
AS $$
BEGIN
	RETURN QUERY
	SELECT t.name || v.suffix, 'histogram', v.labels, v.value, t.help
	FROM outbox_internal.outbox_database_stats d,
		LATERAL (VALUES
			('outbox_commit_to_confirm_seconds', d.commit_to_confirm, d.commit_to_confirm_sum,
				'From the commit of a message (without track_commit_timestamp, its created_at; if it was scheduled, when it was due) to its confirm'),
			('outbox_publish_to_confirm_seconds', d.publish_to_confirm, d.publish_to_confirm_sum,
				'From the sending of a message to its confirm')
		) AS t (name, counts, sum, help),
		LATERAL (
			SELECT '_bucket', jsonb_build_object('le', coalesce(d.bounds[c.n]::text, '+Inf')), c.count
			FROM unnest(t.counts) WITH ORDINALITY AS c (count, n)
			UNION ALL SELECT '_sum', '{}', t.sum
			UNION ALL SELECT '_count', '{}', t.counts[cardinality(t.counts)]
		) AS v (suffix, labels, value);
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_timing_metrics() IS 'The histograms of outbox_metrics.';

CREATE FUNCTION outbox_internal.outbox_metric_list(
	OUT name text, OUT type text, OUT labels jsonb, OUT value double precision, OUT help text)
RETURNS SETOF record
LANGUAGE plpgsql ROWS 100 SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	relay record;
	stats record;
	launcher record;
	counts outbox_internal.outbox_route_count[];
	is_paused boolean;
	states constant text[] := ARRAY['publishing', 'idle', 'starting', 'connecting', 'broker down', 'blocked', 'paused',
		'not adopted', 'disabled', 'config error', 'database error', 'waiting for standby', 'version mismatch',
		'stopping', 'stopped', 'standby', 'not preloaded'];
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	counts := ARRAY(SELECT b FROM outbox_internal.outbox_backlog() b);
	SELECT * INTO relay FROM outbox_internal.outbox_relay_state();
	SELECT * INTO stats FROM outbox_internal.outbox_database_stats;
	SELECT * INTO launcher FROM outbox_internal.outbox_launcher_state();
	IF outbox_internal.outbox_try_lock_tables() THEN
		SELECT c.paused INTO is_paused FROM outbox_internal.outbox_control c;
	END IF;

	RETURN QUERY
	SELECT v.name, v.type, '{}'::jsonb,
		CASE WHEN v.name = 'outbox_paused' THEN v.value ELSE coalesce(v.value, 0) END::double precision, v.help
	FROM (VALUES
		('outbox_up', 'gauge', (relay.workers > 0)::integer::numeric, '1 while a worker of this database runs'),
		('outbox_workers', 'gauge', relay.workers, 'Workers of this database that run'),
		('outbox_workers_wanted', 'gauge', launcher.workers_wanted, 'Workers that this database wants now'),
		('outbox_launcher_up', 'gauge', launcher.runs::integer, '1 while the launcher runs'),
		('outbox_in_flight_messages', 'gauge', relay.in_flight, 'Messages sent and not yet settled'),
		('outbox_counts_estimated', 'gauge', (SELECT b.estimated::integer FROM unnest(counts) b WHERE b.route IS NULL), '1 where numbers of messages are estimates by the statistics of the server'),
		('outbox_paused', 'gauge', is_paused::integer, '1 while this database is paused'),
		('outbox_start_time_seconds', 'gauge', extract(epoch FROM stats.started_at), 'Unix time at which the counters began at 0'),
		('outbox_reconnects_total', 'counter', stats.reconnects, 'Connections to the broker after the first of a worker'),
		('outbox_database_errors_total', 'counter', stats.database_errors, 'Transactions of the relay that ended with an error')
	) AS v (name, type, value, help);

	RETURN QUERY
	SELECT 'outbox_state', 'gauge', jsonb_build_object('state', s.state), (s.state = relay.state)::integer::double precision,
		'1 for the state of outbox_status'
	FROM unnest(states) s (state);

	RETURN QUERY
	WITH p AS MATERIALIZED (SELECT * FROM outbox_internal.outbox_problem_list(counts))
	SELECT 'outbox_problems', 'gauge', jsonb_build_object('severity', s.severity),
		(SELECT count(*) FROM p WHERE p.severity = s.severity)::double precision, 'Rows of outbox_problems'
	FROM unnest(ARRAY['critical', 'warning', 'info']) s (severity)
	UNION ALL
	SELECT 'outbox_problem', 'gauge', jsonb_build_object('severity', p.severity, 'problem', p.problem),
		count(*)::double precision, 'Rows of outbox_problems of one kind; there is a series only while there is one'
	FROM p GROUP BY p.severity, p.problem;

	RETURN QUERY
	WITH w AS MATERIALIZED (SELECT * FROM outbox_internal.outbox_worker_stats())
	SELECT v.name, 'gauge', jsonb_build_object('worker', n.number::text), v.value::integer::double precision, v.help
	FROM (SELECT generate_series(0, greatest(l.workers_wanted, 1) - 1) AS number
		  FROM outbox_internal.outbox_launcher_state() l) n
		LEFT JOIN w ON w.worker = n.number,
		LATERAL (VALUES
			('outbox_worker_up', w.pid IS NOT NULL, '1 while the worker runs'),
			('outbox_broker_connected', coalesce(w.state IN ('idle', 'publishing', 'blocked'), false), '1 while the worker is connected to the broker and works'),
			('outbox_broker_blocked', coalesce(w.state = 'blocked', false), '1 while an alarm of the broker blocks the worker')
		) AS v (name, value, help)
	UNION ALL
	SELECT v.name, 'gauge', '{}', coalesce(v.value, 0)::double precision, v.help
	FROM (SELECT min(w.tls_not_after) AS tls_not_after, max(w.archive_error) AS archive_error,
			count(w.twin) AS twins FROM w) a,
		LATERAL (VALUES
			('outbox_tls_certificate_expiry_timestamp_seconds', extract(epoch FROM a.tls_not_after), 'Unix time at which the broker''s certificate expires; 0: no TLS'),
			('outbox_archive_fault', (a.archive_error IS NOT NULL)::integer, '1 while partitions of the archive cannot be made or dropped'),
			('outbox_twin', (a.twins > 0)::integer, '1 while another relay of this database is connected to the broker')
		) AS v (name, value, help);
	RETURN QUERY
	SELECT 'outbox_archive_partitions_ahead', 'gauge', '{}'::jsonb, count(*)::double precision,
		'Partitions of the archive for days that have not begun'
	FROM outbox_internal.outbox_archive_day d WHERE d.day > d.today;
	RETURN QUERY SELECT * FROM outbox_internal.outbox_route_metrics(counts);
	RETURN QUERY SELECT * FROM outbox_internal.outbox_timing_metrics();
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_metric_list() IS
'Metrics of this database; see the view outbox_metrics.';

CREATE VIEW @extschema@.outbox_metrics AS
	SELECT m.name, m.type, m.labels, m.value, m.help FROM outbox_internal.outbox_metric_list() m;

COMMENT ON VIEW @extschema@.outbox_metrics IS 'Metrics of this database in the terms of Prometheus, one row a series. Cheap however large the backlog is. Counters begin at 0 when the server starts, whichever worker counts.';

