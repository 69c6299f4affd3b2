--
-- What the workers are doing
--

CREATE FUNCTION @extschema@.outbox_version()
RETURNS text
AS 'MODULE_PATHNAME', 'outbox_version'
LANGUAGE C STABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION @extschema@.outbox_version() IS
'Version of the loaded library; the workers publish only while it is that of the extension.';

CREATE FUNCTION outbox_internal.outbox_library_versions(
	OUT component text, OUT version text, OUT built_with text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'outbox_library_versions'
LANGUAGE C STABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION outbox_internal.outbox_library_versions() IS
'Versions of the loaded library, and of the server and the libraries that it runs with in this session; see the view outbox_versions.';

CREATE VIEW @extschema@.outbox_versions AS
	SELECT 'extension' AS component, e.extversion AS version, NULL::text AS built_with,
		'of this database; ALTER EXTENSION outbox UPDATE makes it that of the library' AS about
	FROM pg_extension e
	WHERE e.extname = 'outbox'
	UNION ALL
	SELECT l.component, l.version, l.built_with,
		CASE l.component
			WHEN 'library' THEN 'outbox.so; a newer one is loaded when the server is restarted'
			WHEN 'PostgreSQL' THEN 'the server, and the headers that outbox.so was built with'
			WHEN 'librabbitmq' THEN 'the client of the broker; a distribution mends it without another number, so look at its package, too'
			WHEN 'OpenSSL' THEN 'TLS of amqps://; a distribution mends it without another number, so look at its package, too'
		END
	FROM outbox_internal.outbox_library_versions() l;

COMMENT ON VIEW @extschema@.outbox_versions IS 'What runs, one row each: the extension, its library, the server and the libraries that talk to the broker. Those of the session that asks; the relay has the same ones where the library is preloaded.';

CREATE FUNCTION outbox_internal.outbox_claims(OUT id_hash bigint, OUT in_flight boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'outbox_claims'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION outbox_internal.outbox_claims() IS
'Messages of this database that a worker has claimed, by outbox_claim_hash(); in_flight: sent to the broker and not settled yet.';

CREATE FUNCTION outbox_internal.outbox_worker_stats(
	OUT worker integer, OUT pid integer, OUT state text, OUT broker text,
	OUT since timestamptz, OUT started_at timestamptz, OUT claimed integer,
	OUT in_flight integer, OUT published bigint, OUT returned bigint,
	OUT nacked bigint, OUT failed bigint, OUT retried bigint,
	OUT reconnects bigint, OUT last_error text, OUT last_error_at timestamptz,
	OUT archive_error text, OUT archive_error_since timestamptz,
	OUT reason text, OUT reason_text text, OUT reason_since timestamptz,
	OUT sqlstate text, OUT tls_not_after timestamptz, OUT clock_jump interval,
	OUT clock_jumped_at timestamptz, OUT twin text, OUT twin_since timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'outbox_worker_stats'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION outbox_internal.outbox_worker_stats() IS
'One row for each worker of this database; see the view outbox_workers.';

CREATE FUNCTION outbox_internal.outbox_relay_state(
	OUT state text, OUT since timestamptz, OUT hint text, OUT broker text,
	OUT last_error text, OUT last_error_at timestamptz, OUT workers integer,
	OUT in_flight bigint)
RETURNS record
AS 'MODULE_PATHNAME', 'outbox_relay_state'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION outbox_internal.outbox_relay_state() IS
'State of the relay of this database as a whole; see the view outbox_status.';

CREATE FUNCTION outbox_internal.outbox_reason_hint(
	reason text, fill boolean, broker text, route text,
	OUT severity text, OUT hint text, OUT command text)
RETURNS record
AS 'MODULE_PATHNAME', 'outbox_reason_hint'
LANGUAGE C STABLE PARALLEL SAFE;

COMMENT ON FUNCTION outbox_internal.outbox_reason_hint(text, boolean, text, text) IS
'See the public function of that name. fill: words in capital letters of the command are replaced by what settings, broker ("host:port") and route say, quoted; what is NULL or not set stays a word in angle brackets.';

CREATE FUNCTION @extschema@.outbox_reason_hint(
	reason text, OUT severity text, OUT hint text, OUT command text)
RETURNS record
LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
	SELECT r.severity, r.hint, r.command
	FROM outbox_internal.outbox_reason_hint(reason, false, NULL::text, NULL::text) r;
END;

COMMENT ON FUNCTION @extschema@.outbox_reason_hint(text) IS
'What to do about a reason of outbox_workers, outbox_routes_status or last_error_reason of outbox: severity is critical (messages stand and it does not end by itself) or warning; hint says what to do; command is one of a shell or SQL that shows or does it, with words in angle brackets to be replaced, NULL if there is none. NULLs for NULL; another name is an error (22023).';

CREATE VIEW @extschema@.outbox_workers AS
	SELECT * FROM outbox_internal.outbox_worker_stats();

COMMENT ON VIEW @extschema@.outbox_workers IS 'The workers of this database, one row each.';

--
-- Counts, which are cheap however large the backlog is
--

CREATE FUNCTION outbox_internal.outbox_try_lock_tables()
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_try_lock_tables'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION outbox_internal.outbox_try_lock_tables() IS
'Takes ACCESS SHARE locks on outbox_control, outbox_route, outbox_job, outbox_lease and outbox without waiting; false: somebody has locked one of them against readers.';

CREATE FUNCTION outbox_internal.outbox_backlog_sample(
	max_entries integer, OUT kind text, OUT complete boolean, OUT route text,
	OUT messages bigint, OUT due bigint, OUT retrying bigint, OUT oldest timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'outbox_backlog_sample'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 20;

COMMENT ON FUNCTION outbox_internal.outbox_backlog_sample(integer) IS
'Counts by route what the first max_entries entries of each of three indexes of outbox lead to, and of each external route: kind ready, waiting (for its time) and failed. complete: there are no more. Of each kind a row without a route comes first. No row at all: outbox is locked.';

CREATE FUNCTION outbox_internal.outbox_route_is_full(route text, max_pending integer)
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_route_is_full'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION outbox_internal.outbox_route_is_full(text, integer) IS
'True if the route has max_pending messages that count, so that the next one is refused. Reads at most so many, and only if it may be true. NULL: somebody counts them now, or the index outbox_counted is not there.';

CREATE FUNCTION outbox_internal.outbox_estimated_messages()
RETURNS bigint
LANGUAGE sql STABLE
BEGIN ATOMIC
	/* The statistics are lost in a crash; what VACUUM and ANALYZE have noted is not. */
	SELECT CASE WHEN pg_stat_get_vacuum_count(c.oid) + pg_stat_get_autovacuum_count(c.oid)
				+ pg_stat_get_analyze_count(c.oid) + pg_stat_get_autoanalyze_count(c.oid) > 0
			THEN pg_stat_get_live_tuples(c.oid)
			ELSE greatest(pg_stat_get_live_tuples(c.oid), c.reltuples::bigint, 0) END
	FROM pg_class c
	WHERE c.oid = '@extschema@.outbox'::regclass;
END;

COMMENT ON FUNCTION outbox_internal.outbox_estimated_messages() IS
'How many rows the server''s statistics say that outbox has; about a second old.';

CREATE TYPE outbox_internal.outbox_route_count AS (
	route text,
	known boolean,
	paused boolean,
	backlog bigint,
	oldest timestamptz,
	scheduled bigint,
	retrying bigint,
	failed bigint,
	estimated boolean,
	max_pending integer
);

COMMENT ON TYPE outbox_internal.outbox_route_count IS 'A row of outbox_backlog().';

CREATE FUNCTION outbox_internal.outbox_backlog()
RETURNS SETOF outbox_internal.outbox_route_count
LANGUAGE plpgsql ROWS 10 SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	IF NOT outbox_internal.outbox_try_lock_tables() THEN
		RETURN QUERY SELECT NULL::text, true, NULL::boolean,
			outbox_internal.outbox_estimated_messages(), NULL::timestamptz,
			NULL::bigint, NULL::bigint, NULL::bigint, true, NULL::integer;
		RETURN;
	END IF;

	RETURN QUERY
	WITH sample AS MATERIALIZED (
		SELECT * FROM outbox_internal.outbox_backlog_sample(2000)),
	seen AS (
		SELECT s.kind, bool_and(s.complete) AS complete, sum(s.messages)::bigint AS messages
		FROM sample s GROUP BY s.kind),
	/* Of a partial index this is what ANALYZE has found to belong to it. */
	rest AS (
		SELECT s.kind, CASE WHEN s.complete THEN s.messages
				ELSE greatest(s.messages, (SELECT sum(c.reltuples)::bigint
					FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
					WHERE i.indrelid = outbox_internal.outbox_relation('outbox')
						AND c.relname = ANY (CASE s.kind WHEN 'waiting'
							THEN '{outbox_waiting,outbox_external_waiting}'
							ELSE '{outbox_failed_seq}' END::name[]))) END AS messages
		FROM seen s WHERE s.kind <> 'ready'),
	total AS (
		SELECT s.kind, s.complete, CASE WHEN s.complete THEN s.messages
				ELSE greatest(s.messages, outbox_internal.outbox_estimated_messages()
					- (SELECT sum(r.messages) FROM rest r))::bigint END AS messages
		FROM seen s WHERE s.kind = 'ready'
		UNION ALL
		SELECT s.kind, s.complete, r.messages FROM rest r JOIN seen s ON s.kind = r.kind),
	common AS (
		SELECT u.name, u.share
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			JOIN pg_stats p ON (p.schemaname, p.tablename, p.attname) = (n.nspname, c.relname, 'route'),
			unnest(p.most_common_vals::text::text[], p.most_common_freqs) AS u (name, share)
		WHERE c.oid = outbox_internal.outbox_relation('outbox') AND NOT p.inherited),
	names AS (
		SELECT r.name, true AS known, r.paused, r.max_pending FROM outbox_internal.outbox_route r
		UNION ALL
		SELECT DISTINCT s.route, false, false, NULL::integer FROM sample s
		WHERE s.route IS NOT NULL
			AND NOT EXISTS (SELECT FROM outbox_internal.outbox_route r WHERE r.name = s.route)),
	weighed AS (
		/* A sample has the oldest; the statistics know of all. */
		SELECT n.name, t.kind, t.complete, t.messages AS total,
			coalesce(s.messages, 0) AS messages, coalesce(s.due, 0) AS due,
			coalesce(s.retrying, 0) AS retrying, s.oldest,
			CASE WHEN t.kind = 'ready' AND EXISTS (SELECT FROM common)
				THEN coalesce(c.share, 0)
				ELSE coalesce(s.messages, 0) END AS weight
		FROM names n CROSS JOIN total t
			LEFT JOIN sample s ON s.route = n.name AND s.kind = t.kind
			LEFT JOIN common c ON c.name = n.name),
	counted AS (
		SELECT w.name, w.kind, w.complete, w.due, w.retrying, w.oldest,
			CASE WHEN w.complete THEN w.messages
				ELSE greatest(w.messages, round(w.total * w.weight
					/ nullif(sum(w.weight) OVER (PARTITION BY w.kind), 0))::bigint) END AS messages
		FROM weighed w),
	routes AS (
		SELECT n.name, n.known, n.paused, n.max_pending,
			(sum(c.messages) FILTER (WHERE c.kind = 'ready')
				+ sum(c.due) FILTER (WHERE c.kind = 'waiting'))::bigint AS backlog,
			min(c.oldest) FILTER (WHERE c.kind <> 'failed') AS oldest,
			sum(c.messages - c.due) FILTER (WHERE c.kind = 'waiting')::bigint AS scheduled,
			sum(c.retrying) FILTER (WHERE c.kind <> 'failed')::bigint AS retrying,
			sum(c.messages) FILTER (WHERE c.kind = 'failed')::bigint AS failed,
			NOT bool_and(c.complete) AS estimated
		FROM names n LEFT JOIN counted c ON c.name = n.name
		GROUP BY n.name, n.known, n.paused, n.max_pending),
	due AS (
		SELECT coalesce(sum(s.due), 0)::bigint AS messages FROM sample s WHERE s.kind = 'waiting')
	SELECT r.name, r.known, r.paused, r.backlog, r.oldest, r.scheduled, r.retrying, r.failed, r.estimated, r.max_pending
	FROM routes r
	UNION ALL
	SELECT NULL, true, NULL,
		(sum(t.messages) FILTER (WHERE t.kind = 'ready') + (SELECT d.messages FROM due d))::bigint,
		(SELECT min(s.oldest) FROM sample s WHERE s.kind <> 'failed'),
		(sum(t.messages) FILTER (WHERE t.kind = 'waiting') - (SELECT d.messages FROM due d))::bigint,
		(SELECT coalesce(sum(s.retrying), 0) FROM sample s WHERE s.kind <> 'failed')::bigint,
		(sum(t.messages) FILTER (WHERE t.kind = 'failed'))::bigint,
		NOT bool_and(t.complete), NULL
	FROM total t;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_backlog() IS
'Messages of outbox by route, and in the row without a route all of them; see outbox_routes_status. Counted where an index has at most 2000 entries (of each external route), dead ones included, and else (estimated) from the statistics of the server. Waits for no lock: where outbox is locked against readers, one row with an estimate.';

CREATE FUNCTION outbox_internal.outbox_route_stats(
	OUT route text, OUT published bigint, OUT returned bigint, OUT nacked bigint,
	OUT failed bigint, OUT retried bigint, OUT dead_lettered bigint,
	OUT waits_because text, OUT reason text, OUT waits_since timestamptz,
	OUT retry_at timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'outbox_route_stats'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 10;

COMMENT ON FUNCTION outbox_internal.outbox_route_stats() IS
'What the workers of this database have counted by route since the server was started, and which routes wait; see outbox_routes_status. Routes beyond the 32nd share the counters of the row without a name.';

CREATE FUNCTION @extschema@.outbox_database_stats(
	OUT started_at timestamptz, OUT reconnects bigint, OUT database_errors bigint,
	OUT rate double precision, OUT bounds double precision[],
	OUT commit_to_confirm double precision[], OUT commit_to_confirm_sum double precision,
	OUT publish_to_confirm double precision[], OUT publish_to_confirm_sum double precision)
RETURNS record
AS 'MODULE_PATHNAME', 'outbox_database_stats'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

CREATE VIEW outbox_internal.outbox_database_stats AS
	SELECT s.* FROM @extschema@.outbox_database_stats() s;

COMMENT ON FUNCTION @extschema@.outbox_database_stats() IS
'What the workers of this database have counted since started_at. rate: messages published per second, over the last 10 s. Two cumulative histograms over bounds (seconds; the last count is that of all messages): from the commit (created_at without track_commit_timestamp; when it was due if it was scheduled) to the confirm, and from the sending to the confirm.';

CREATE FUNCTION @extschema@.outbox_quantile(
	quantile double precision, bounds double precision[], counts double precision[])
RETURNS double precision
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
	/* As Prometheus does: evenly spread within the bucket; beyond the last bound, that. */
	SELECT CASE WHEN b.n > cardinality(bounds) THEN bounds[cardinality(bounds)]
			ELSE coalesce(bounds[b.n - 1], 0) + (bounds[b.n] - coalesce(bounds[b.n - 1], 0))
				* (quantile * counts[cardinality(counts)] - coalesce(counts[b.n - 1], 0))
				/ (counts[b.n] - coalesce(counts[b.n - 1], 0)) END
	FROM (SELECT min(i) AS n FROM generate_subscripts(counts, 1) i
		  WHERE counts[i] > 0 AND counts[i] >= quantile * counts[cardinality(counts)]) b
	WHERE b.n IS NOT NULL;
END;

COMMENT ON FUNCTION @extschema@.outbox_quantile(double precision, double precision[], double precision[]) IS
'A quantile (0 to 1) of a cumulative histogram with these upper bounds, one count more than bounds; NULL: it is empty.';

CREATE FUNCTION outbox_internal.outbox_archive_state(
	OUT partitions integer, OUT ahead integer, OUT ahead_wanted integer,
	OUT overdue integer, OUT dropping integer, OUT oldest_day date, OUT size bigint,
	OUT default_partition_used boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
SET lock_timeout = '100ms'
AS $$
DECLARE
	retention constant interval := coalesce(current_setting('outbox.retention', true), '1d');
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	SELECT count(*),
		count(DISTINCT p.day) FILTER (WHERE p.day > (clock_timestamp() AT TIME ZONE 'UTC')::date),
		CASE WHEN retention > interval '0' OR EXISTS (SELECT FROM outbox_internal.outbox_archive_division())
			THEN 2 ELSE 0 END,
		count(*) FILTER (WHERE p.due), min(p.day)
	INTO partitions, ahead, ahead_wanted, overdue, oldest_day
	FROM outbox_internal.outbox_archive_partitions(retention) p;
	SELECT count(*) FILTER (WHERE c.relname ~ '^outbox_archive_dropping_'),
		/* Not of those: they are locked most of the time. */
		coalesce(sum(pg_total_relation_size(c.oid))
			FILTER (WHERE c.relname !~ '^outbox_archive_dropping_'), 0)
	INTO dropping, size
	FROM pg_class c
		JOIN pg_depend x ON x.classid = 'pg_class'::regclass AND x.objid = c.oid AND x.deptype = 'e'
		JOIN pg_extension e ON x.refclassid = 'pg_extension'::regclass AND x.refobjid = e.oid
	WHERE e.extname = 'outbox' AND c.relname ~ '^outbox_archive_(p[0-9]{8}|default|dropping_)';
	default_partition_used := EXISTS (SELECT FROM outbox_internal.outbox_archive_default);
EXCEPTION
	WHEN lock_not_available THEN
		RETURN;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_archive_state() IS
'What is behind the view outbox_archive_status. Hardly waits for a lock: where somebody has locked a table against readers, all or the last columns are NULL.';

CREATE VIEW @extschema@.outbox_archive_status AS
	SELECT s.*, e.archive_error AS error, e.archive_error_since AS error_since
	FROM outbox_internal.outbox_archive_state() s
		LEFT JOIN (SELECT w.archive_error, w.archive_error_since
			FROM @extschema@.outbox_workers w
			WHERE w.archive_error IS NOT NULL
			ORDER BY w.archive_error_since
			LIMIT 1) e ON true;

COMMENT ON VIEW @extschema@.outbox_archive_status IS 'One row: are the partitions of the archive made ahead and dropped on time, and if not, why. Columns are NULL while somebody has locked a table against readers.';

