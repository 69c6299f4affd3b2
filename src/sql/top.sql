--
-- All of it at a glance, for psql's \watch
--

CREATE FUNCTION outbox_internal.outbox_published_seconds()
RETURNS bigint[]
AS 'MODULE_PATHNAME', 'outbox_published_seconds'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION outbox_internal.outbox_published_seconds() IS
'Messages published in each of the last 15 seconds that are over, the oldest first.';

CREATE FUNCTION outbox_internal.outbox_show_count(value bigint)
RETURNS text
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
	SELECT CASE WHEN value < 10000000 THEN to_char(value, 'FM9,999,990')
		WHEN value < 10000000000 THEN to_char(value / 1e6, 'FM9,990.0') || ' M'
		ELSE to_char(value / 1e9, 'FM999,990.0') || ' G' END;
END;

COMMENT ON FUNCTION outbox_internal.outbox_show_count(bigint) IS
'A count as outbox_top() shows it, in at most 9 characters; NULL of NULL.';

CREATE FUNCTION outbox_internal.outbox_show_span(seconds double precision)
RETURNS text
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
	SELECT CASE WHEN seconds < 0.00995 THEN to_char(seconds * 1000, 'FM0.00') || ' ms'
		WHEN seconds < 0.995 THEN to_char(seconds * 1000, 'FM990') || ' ms'
		WHEN seconds < 99.5 THEN to_char(seconds, 'FM90.0') || ' s'
		WHEN seconds < 99.5 * 60 THEN to_char(seconds / 60, 'FM90') || ' min'
		WHEN seconds < 99.5 * 3600 THEN to_char(seconds / 3600, 'FM90.0') || ' h'
		ELSE to_char(seconds / 86400, 'FM999,990') || ' d' END;
END;

COMMENT ON FUNCTION outbox_internal.outbox_show_span(double precision) IS
'A time in seconds as outbox_top() shows it, in at most 9 characters; NULL of NULL.';

/*
 * Blocks and eighths of them where the database and the client have such characters.  By
 * number: this script is read in any encoding.  By a number that is known at execution: the
 * planner evaluates constants in any encoding.
 */
CREATE FUNCTION outbox_internal.outbox_show_bar(value double precision, highest double precision, width integer)
RETURNS text
LANGUAGE sql STABLE
BEGIN ATOMIC
	SELECT CASE WHEN base > 0
		THEN repeat(chr(base + 8), n / 8) || CASE WHEN n % 8 > 0 THEN chr(base + 16 - n % 8) ELSE '' END
		ELSE repeat('#', (n + 7) / 8) END
	FROM (SELECT CASE WHEN value > 0
			THEN greatest(1, round(8 * width * least(1, value / highest)))::integer ELSE 0 END AS n,
		CASE WHEN getdatabaseencoding() = 'UTF8' AND pg_client_encoding() = 'UTF8' THEN 9600 ELSE 0 END AS base) t;
END;

COMMENT ON FUNCTION outbox_internal.outbox_show_bar(double precision, double precision, integer) IS
'A bar of at most width characters, which is the length of the highest value; of any value above 0 something is seen.';

/* What outbox_top() shows of the views, and of the latency. */
CREATE VIEW outbox_internal.outbox_status AS SELECT s.* FROM @extschema@.outbox_status s;
CREATE VIEW outbox_internal.outbox_routes_status AS SELECT s.* FROM @extschema@.outbox_routes_status s;
CREATE VIEW outbox_internal.outbox_latency AS
	SELECT @extschema@.outbox_quantile(0.5::double precision, d.bounds, d.commit_to_confirm) AS commit_p50,
		@extschema@.outbox_quantile(0.99::double precision, d.bounds, d.commit_to_confirm) AS commit_p99,
		@extschema@.outbox_quantile(0.5::double precision, d.bounds, d.publish_to_confirm) AS publish_p50,
		@extschema@.outbox_quantile(0.99::double precision, d.bounds, d.publish_to_confirm) AS publish_p99
	FROM @extschema@.outbox_database_stats() d;

/*
 * Bounded, whatever the backlog: what the views of the status count, and of the
 * messages that have failed or wait for another attempt the first thousand.  Waits
 * for no lock.
 */
CREATE FUNCTION @extschema@.outbox_top()
RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	seen constant bigint := 1000;
	lines constant integer := 8;
	status record;
	latency record;
	route record;
	trouble record;
	per_second bigint[];
	highest bigint;
	shown integer := 0;
	readable boolean;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	SELECT * INTO status FROM outbox_internal.outbox_status;
	SELECT * INTO latency FROM outbox_internal.outbox_latency;
	per_second := outbox_internal.outbox_published_seconds();
	readable := outbox_internal.outbox_try_lock_tables();

	RETURN NEXT rpad(left('outbox of ' || status.database, 60), 60)
		|| lpad(to_char(clock_timestamp(), 'YYYY-MM-DD HH24:MI:SS'), 40);
	RETURN NEXT rpad('state', 10) || left(concat_ws('   ',
		status.state || ' for ' || outbox_internal.outbox_show_span(
			greatest(0, extract(epoch FROM clock_timestamp() - status.since))::double precision),
		CASE WHEN status.since IS NULL THEN status.state END,
		'broker ' || status.broker,
		'workers ' || status.workers || coalesce(' of ' || current_setting('outbox.workers', true), ''),
		'in flight ' || outbox_internal.outbox_show_count(status.in_flight::bigint)), 90);
	IF status.hint IS NOT NULL THEN
		RETURN QUERY SELECT rpad('', 10) || m[1]
			FROM regexp_matches(regexp_replace(status.hint, '[[:cntrl:]]+', ' ', 'g'), '(.{1,89})(?:[[:space:]]+|$)', 'g') m
			LIMIT 3;
	END IF;
	IF status.last_error_at > clock_timestamp() - interval '1 minute'
		OR status.last_error_at >= status.since THEN
		RETURN NEXT rpad('', 10) || left(to_char(status.last_error_at, 'HH24:MI:SS ')
			|| regexp_replace(status.last_error, '[[:cntrl:]]+', ' ', 'g'), 90);
	END IF;
	RETURN NEXT rpad('rate', 10) || concat_ws('   ',
		outbox_internal.outbox_show_count(round(status.rate)::bigint) || '/s',
		/* as columns of one character each, the highest one full */
		(SELECT string_agg(CASE WHEN u.v = 0 THEN '_'
				WHEN getdatabaseencoding() = 'UTF8' AND pg_client_encoding() = 'UTF8'
					THEN chr(9600 + greatest(1, round(8.0 * u.v / m.h))::integer)
				ELSE substr('.:-=+*%#', greatest(1, round(8.0 * u.v / m.h))::integer, 1) END, '' ORDER BY u.i)
			FROM unnest(per_second) WITH ORDINALITY u (v, i), (SELECT max(x) AS h FROM unnest(per_second) x) m),
		'highest of ' || cardinality(per_second) || ' s: '
			|| outbox_internal.outbox_show_count((SELECT max(n) FROM unnest(per_second) n)::bigint));
	RETURN NEXT rpad('latency', 10) || concat_ws('   ',
		'p50 ' || coalesce(outbox_internal.outbox_show_span(latency.commit_p50::double precision), '-'),
		'p99 ' || coalesce(outbox_internal.outbox_show_span(latency.commit_p99::double precision), '-'),
		'commit to confirm;',
		'p50 ' || coalesce(outbox_internal.outbox_show_span(latency.publish_p50::double precision), '-'),
		'p99 ' || coalesce(outbox_internal.outbox_show_span(latency.publish_p99::double precision), '-'),
		'publish to confirm');
	RETURN NEXT rpad('backlog', 10) || left(concat_ws('   ',
		CASE WHEN status.estimated THEN 'about ' ELSE '' END
			|| coalesce(outbox_internal.outbox_show_count(status.backlog), '?'),
		'oldest ' || outbox_internal.outbox_show_span(extract(epoch FROM status.oldest_pending_age)::double precision),
		'drained in ' || outbox_internal.outbox_show_span(extract(epoch FROM status.time_to_drain)::double precision),
		'scheduled ' || outbox_internal.outbox_show_count(status.scheduled),
		'retrying ' || outbox_internal.outbox_show_count(status.retrying),
		'failed ' || outbox_internal.outbox_show_count(status.failed)), 90);

	IF NOT readable THEN
		RETURN NEXT '';
		RETURN NEXT 'outbox is locked against readers: no more is known';
		RETURN;
	END IF;

	RETURN NEXT '';
	RETURN NEXT rpad('route', 22) || lpad('backlog', 12) || rpad('', 21) || lpad('oldest', 9)
		|| lpad('published', 11) || lpad('returned', 9) || lpad('nacked', 8) || lpad('failed', 8);
	FOR route IN
		SELECT s.*, max(s.backlog) OVER () AS most, count(*) OVER () AS routes
		FROM outbox_internal.outbox_routes_status s
		ORDER BY s.backlog DESC, s.failed DESC, s.published DESC, s.route
		LIMIT lines
	LOOP
		RETURN NEXT rpad(left(regexp_replace(route.route, '[[:cntrl:]]', ' ', 'g'), 21), 22)
			|| lpad(outbox_internal.outbox_show_count(route.backlog), 12) || ' '
			|| rpad(outbox_internal.outbox_show_bar(route.backlog::double precision, route.most::double precision, 20), 20)
			|| lpad(coalesce(outbox_internal.outbox_show_span(extract(epoch FROM route.oldest_pending_age)::double precision), '-'), 9)
			|| lpad(outbox_internal.outbox_show_count(route.published), 11)
			|| lpad(outbox_internal.outbox_show_count(route.returned), 9)
			|| lpad(outbox_internal.outbox_show_count(route.nacked), 8)
			|| lpad(outbox_internal.outbox_show_count(route.failed), 8);
		IF route.paused OR route.waits_because IS NOT NULL THEN
			RETURN NEXT left('  ' || CASE WHEN route.paused THEN 'paused' ELSE 'waits' END
				|| coalesce(': ' || regexp_replace(route.waits_because, '[[:cntrl:]]+', ' ', 'g'), ''), 100);
		END IF;
		shown := shown + 1;
		highest := route.routes;
	END LOOP;
	IF highest > shown THEN
		RETURN NEXT format('  and %s more', highest - shown);
	END IF;

	shown := 0;
	FOR trouble IN
		SELECT CASE m.status WHEN 'failed' THEN 'failed' ELSE 'retrying' END AS kind,
			count(*) AS messages, coalesce(m.last_error, '-') AS error
		FROM outbox_internal.outbox_stuck_messages(seen, seen) m
		GROUP BY 1, 3 ORDER BY 2 DESC, 1, 3 LIMIT lines
	LOOP
		IF shown = 0 THEN
			RETURN NEXT '';
			RETURN NEXT rpad('errors', 10) || lpad('messages', 9) || '   of the first '
				|| outbox_internal.outbox_show_count(seen) || ' that failed and that wait for another attempt';
		END IF;
		RETURN NEXT rpad('  ' || trouble.kind, 10) || lpad(outbox_internal.outbox_show_count(trouble.messages::bigint), 9)
			|| '   ' || left(trouble.error, 78);
		shown := shown + 1;
	END LOOP;

	shown := 0;
	FOR trouble IN
		SELECT * FROM outbox_internal.outbox_holding_messages(seen, seen, 100::bigint, seen) LIMIT lines
	LOOP
		IF shown = 0 THEN
			RETURN NEXT '';
			RETURN NEXT rpad('held keys', 59) || lpad('because', 12) || lpad('behind', 11) || lpad('for', 9);
		END IF;
		RETURN NEXT rpad(left('  ' || regexp_replace(concat_ws(' ', trouble.aggregate_type, trouble.aggregate_id),
				'[[:cntrl:]]', ' ', 'g'), 58), 59)
			|| lpad(CASE trouble.status WHEN 'failed' THEN 'failed' ELSE 'retry' END, 12)
			|| lpad(CASE WHEN trouble.behind < seen THEN trouble.behind::text ELSE 'many' END, 11)
			|| lpad(outbox_internal.outbox_show_span(
				greatest(0, extract(epoch FROM clock_timestamp() - trouble.created_at))::double precision), 9);
		shown := shown + 1;
	END LOOP;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_top() IS
'The relay of this database on one screen of 100 columns, for psql: SELECT outbox_top() \watch 2. State, messages per second (a column for each of the last 15 s), latency since the server was started, backlog by route, errors, keys that are held. Bounded whatever the backlog, and waits for no lock.';

