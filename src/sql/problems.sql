--
-- What is wrong now
--

CREATE TYPE outbox_internal.outbox_problem AS (
	severity text,
	problem text,
	subject text,
	since timestamptz,
	detail text,
	hint text,
	command text
);

COMMENT ON TYPE outbox_internal.outbox_problem IS 'A row of outbox_problems.';

CREATE FUNCTION outbox_internal.outbox_launcher_state(
	OUT runs boolean, OUT out_of_processes text,
	OUT workers_wanted integer, OUT workers_running integer,
	OUT crashes bigint, OUT crashed_at timestamptz,
	OUT server_crashes bigint, OUT server_crashed_at timestamptz,
	OUT missing_standbys integer)
RETURNS record
AS 'MODULE_PATHNAME', 'outbox_launcher_state'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION outbox_internal.outbox_launcher_state() IS
'Whether the launcher runs, what to do if it could not start a worker for want of processes (else NULL), and how many workers this database wants and has; how often one of them ended with an error, and the server crashed with all of its processes, and when that was last; and how many standbys a synchronous commit would wait for that are not connected.';

CREATE FUNCTION outbox_internal.outbox_silent_processes(
	OUT subject text, OUT pid integer, OUT since timestamptz, OUT waits_for text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'outbox_silent_processes'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 1;

COMMENT ON FUNCTION outbox_internal.outbox_silent_processes() IS
'Launcher and workers of this database that are alive and have not looked around for longer than they said.';

CREATE FUNCTION outbox_internal.outbox_schema()
RETURNS text
AS 'MODULE_PATHNAME', 'outbox_schema'
LANGUAGE C STABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION outbox_internal.outbox_schema() IS
'The schema that was chosen at CREATE EXTENSION, as a statement names it. Commands are pasted into sessions with any search_path.';

/* The server, before it is asked what its workers say. */
CREATE FUNCTION outbox_internal.outbox_server_problems(state text)
RETURNS SETOF outbox_internal.outbox_problem
LANGUAGE plpgsql ROWS 5
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	schema constant text := outbox_internal.outbox_schema();
	/* NULL where the owner of the extension may not see it. */
	libraries constant text := (SELECT s.setting FROM pg_settings s WHERE s.name = 'shared_preload_libraries');
	launcher record;
BEGIN
	IF state = 'not preloaded' THEN
		RETURN QUERY SELECT 'critical', 'not preloaded', 'server', NULL::timestamptz,
			coalesce('shared_preload_libraries = ''' || libraries || '''', 'outbox is not among shared_preload_libraries'),
			'Messages are stored and nothing publishes them: add outbox to shared_preload_libraries and restart the server.',
			CASE WHEN libraries IS NULL THEN 'SHOW shared_preload_libraries'
				ELSE 'ALTER SYSTEM SET shared_preload_libraries = ' || (SELECT string_agg(quote_literal(btrim(l, ' "')), ', ')
					FROM unnest(string_to_array(nullif(libraries, ''), ',') || 'outbox'::text) l) END;
		RETURN;
	END IF;

	SELECT * INTO launcher FROM outbox_internal.outbox_launcher_state();
	IF NOT launcher.runs THEN
		RETURN QUERY SELECT 'critical', 'launcher missing', 'server', NULL::timestamptz,
			format('%s of %s workers run', launcher.workers_running, launcher.workers_wanted),
			'No workers are started. The server starts the launcher again within 5 seconds; if this lasts, the server log says why: with too few max_worker_processes it was not even registered.',
			'SHOW max_worker_processes';
	ELSIF launcher.workers_running < launcher.workers_wanted THEN
		RETURN QUERY SELECT CASE WHEN launcher.workers_running = 0 THEN 'critical' ELSE 'warning' END,
			CASE WHEN launcher.out_of_processes IS NOT NULL THEN 'no process free' ELSE 'worker missing' END,
			'server', NULL::timestamptz,
			format('%s of %s workers run', launcher.workers_running, launcher.workers_wanted),
			coalesce(launcher.out_of_processes,
				'The launcher starts workers within seconds, after a crash within a minute, and after ALTER DATABASE ... SET outbox.workers when the configuration is reloaded; if this lasts, look into the server log.'),
			CASE WHEN launcher.out_of_processes IS NOT NULL
				THEN 'SELECT backend_type, count(*) FROM pg_stat_activity GROUP BY 1'
				ELSE format('SELECT worker, pid, state, since, last_error FROM %s.outbox_workers', schema) END;
	END IF;

	/* What is left to see of a bad night. */
	RETURN QUERY SELECT CASE WHEN c.at > now() - interval '20 minutes' THEN 'warning' ELSE 'info' END,
		'crashed', c.subject, c.at,
		format('%s %s since the server was started, the last time at %s', c.what,
			CASE c.times WHEN 1 THEN 'once' ELSE c.times || ' times' END, c.at::timestamptz(0)),
		c.hint, format('grep -E %L <LOGFILE>', c.search)
	FROM (VALUES
		('workers of database ' || quote_ident(current_database()), launcher.crashes, launcher.crashed_at, 'a worker ended with an error',
			'The launcher has started it again; the server log has the error. Shown for a day, as a warning for 20 minutes.',
			'outbox relay.*(FATAL|ERROR|exited with exit code)'),
		('server', launcher.server_crashes, launcher.server_crashed_at, 'a process crashed, and the server restarted all of them',
			'Messages that were in flight can go out twice. The server log names the process that crashed, and its signal. Shown for a day, as a warning for 20 minutes.',
			'was terminated by signal|exited with exit code'))
		AS c (subject, times, at, what, hint, search)
	WHERE c.at > now() - interval '1 day';

	RETURN QUERY SELECT 'critical', 'process silent', s.subject, s.since,
		concat_ws(', ', format('process %s has done nothing for %s s', s.pid, extract(epoch FROM clock_timestamp() - s.since)::bigint), 'waits for ' || s.waits_for),
		'It is stopped, loops or hangs: its state in ps says which (T: stopped, kill -CONT lets it go on). End it: another one takes its place.',
		format('SELECT pg_terminate_backend(%s)', s.pid)
	FROM outbox_internal.outbox_silent_processes() s;

	/* Missing before a commit has to wait for it, or there and behind while one waits. */
	RETURN QUERY SELECT 'critical', 'standby missing', 'server', w.since,
		format('synchronous_standby_names = ''%s''; missing: %s', current_setting('synchronous_standby_names'),
			coalesce(nullif(launcher.missing_standbys, 0)::text, 'none, all are connected and behind')),
		'Every commit of this server waits for it, and nothing is published that it does not have: bring it back, let one that is behind catch up, or change synchronous_standby_names.',
		'SELECT application_name, state, sync_state, flush_lsn, replay_lsn, replay_lag FROM pg_stat_replication'
	FROM (SELECT min(w.since) AS since FROM outbox_internal.outbox_worker_stats() w WHERE w.state = 'waiting for standby') w
	WHERE launcher.missing_standbys > 0 OR w.since IS NOT NULL;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_server_problems(text) IS 'Those of outbox_problems that concern preloading, launcher and processes.';

CREATE FUNCTION outbox_internal.outbox_unreadable_rows(
	OUT worker integer, OUT seq bigint, OUT id uuid, OUT since timestamptz,
	OUT error text, OUT sqlstate text, OUT of_worker integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'outbox_unreadable_rows'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 1;

COMMENT ON FUNCTION outbox_internal.outbox_unreadable_rows() IS
'Up to 8 rows of each worker of this database that it has set aside, as they cannot be read, and how many it has set aside.';

/* What the workers say; the same of several is one. */
CREATE FUNCTION outbox_internal.outbox_worker_problems()
RETURNS SETOF outbox_internal.outbox_problem
LANGUAGE plpgsql ROWS 5
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	schema constant text := outbox_internal.outbox_schema();
	states constant text[] := ARRAY(SELECT w.state FROM outbox_internal.outbox_worker_stats() w);
	origins text;
	library_version text;
	extension_version text;
	has_path boolean := false;
	enable text;
BEGIN
	IF 'version mismatch' = ANY (states) THEN
		SELECT l.version, e.extversion INTO library_version, extension_version
		FROM pg_extension e, outbox_internal.outbox_library_versions() l
		WHERE e.extname = 'outbox' AND l.component = 'library';
		/* It reads the extension's files, which are gone while a package is replaced. */
		BEGIN
			has_path := EXISTS (SELECT FROM pg_extension_update_paths('outbox') u
				WHERE u.source = extension_version AND u.target = library_version AND u.path IS NOT NULL);
		EXCEPTION WHEN OTHERS THEN
			has_path := false;
		END;
	END IF;

	IF 'disabled' = ANY (states) THEN
		/* Where the worker has it from: it runs as the role of initdb, and what is set for that or the database comes first. */
		SELECT format('ALTER %s SET outbox.enabled = on; SELECT %s.outbox_worker_restart()',
				coalesce(nullif(concat_ws(' IN ', 'ROLE ' || quote_ident(r.rolname), 'DATABASE ' || quote_ident(d.datname)), ''), 'ROLE ALL'), schema)
		INTO enable
		FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid = s.setrole LEFT JOIN pg_database d ON d.oid = s.setdatabase
		WHERE s.setrole IN (0, 10) AND (s.setdatabase = 0 OR d.datname = current_database())
			AND EXISTS (SELECT FROM unnest(s.setconfig) c WHERE c LIKE 'outbox.enabled=%')
		ORDER BY s.setrole DESC, s.setdatabase DESC LIMIT 1;
		enable := coalesce(enable,
			(SELECT 'SELECT source, sourcefile, sourceline FROM pg_settings WHERE name = ' || quote_literal(p.name)
			 FROM pg_settings p WHERE p.name = 'outbox.enabled' AND p.source = 'command line'),
			'ALTER SYSTEM SET outbox.enabled = on');
	END IF;

	RETURN QUERY
	WITH workers AS MATERIALIZED (SELECT * FROM outbox_internal.outbox_worker_stats()),
	found AS (
		SELECT w.worker, CASE WHEN g.goes_on THEN 'warning' ELSE a.severity END AS severity, w.reason AS problem, w.reason_since AS since,
			w.reason_text AS detail,
			CASE WHEN g.goes_on THEN 'Publishing goes on over the connection that is there; when it ends, the relay cannot connect again. ' ELSE '' END || a.hint AS hint,
			a.command
		/* Settings that cannot be used since a reload; other reasons stay for a while after the relay has connected again. */
		FROM workers w, LATERAL (SELECT w.state IN ('idle', 'publishing') AND w.reason IN ('URI unusable', 'mechanism unusable',
				'password file missing', 'password file not private', 'password file unreadable', 'no password')) g(goes_on),
			LATERAL outbox_internal.outbox_reason_hint(w.reason, true, w.broker, NULL::text) a
		WHERE w.reason IS NOT NULL
		UNION ALL
		SELECT w.worker, s.severity, s.problem, w.since, s.detail, s.hint, s.command
		FROM workers w JOIN (VALUES
			('disabled', 'warning', 'disabled', 'outbox.enabled is off',
				'Set outbox.enabled to on where it is off: for this database, for the role of the server''s workers, in a file (then reload the configuration), or on the server''s command line.',
				enable),
			('version mismatch', 'critical', 'version mismatch',
				format('the library has version %s, the extension %s', library_version, extension_version),
				CASE WHEN has_path THEN 'The extension is the older one: update it.'
					ELSE 'There is no update from the extension''s version to the library''s: install the package of the extension''s version, if the command does not list it, and restart the server.' END,
				CASE WHEN has_path THEN format('ALTER EXTENSION outbox UPDATE TO %L', library_version)
					ELSE 'SELECT version, installed FROM pg_available_extension_versions WHERE name = ''outbox''' END))
			AS s (state, severity, problem, detail, hint, command) ON s.state = w.state AND s.state = ANY (states)
		UNION ALL
		SELECT w.worker, 'warning', 'worker stopped', w.since,
			concat_ws(': ', w.state, CASE WHEN w.last_error_at >= w.since THEN w.last_error END),
			'A worker is leaving for longer than it should: see what it waits for, and the server log.',
			format('SELECT pid, state, wait_event_type, wait_event FROM pg_stat_activity WHERE pid = %s', w.pid)
		FROM workers w
		WHERE w.state IN ('stopping', 'stopped') AND w.since < now() - interval '15 seconds'
		UNION ALL
		SELECT w.worker, CASE WHEN w.tls_not_after < now() + interval '3 days' THEN 'critical' ELSE 'warning' END,
			'certificate expires', w.tls_not_after - interval '30 days',
			format('the certificate of %s is valid until %s', w.broker, w.tls_not_after),
			'Renew it on the broker; from that day on nothing is published.', a.command
		FROM workers w, LATERAL outbox_internal.outbox_reason_hint('certificate expired', true, w.broker, NULL::text) a
		WHERE w.tls_not_after < now() + interval '30 days' AND w.reason IS DISTINCT FROM 'certificate expired'
		UNION ALL
		SELECT w.worker, 'warning', 'clock jumped', w.clock_jumped_at,
			format('the clock of this server has jumped by %s', w.clock_jump),
			'Scheduled messages and the archive go by it: see what sets the clock. Shown for ten minutes.', 'timedatectl'
		FROM workers w
		WHERE w.clock_jumped_at > now() - interval '10 minutes'
		UNION ALL
		SELECT w.worker, a.severity, 'twin', w.twin_since, w.twin, a.hint, a.command
		FROM workers w, LATERAL outbox_internal.outbox_reason_hint('twin', true, w.broker, NULL::text) a
		WHERE w.twin IS NOT NULL)
	SELECT f.severity, f.problem,
		CASE WHEN count(*) = 1 THEN 'worker ' ELSE 'workers ' END || string_agg(f.worker::text, ', ' ORDER BY f.worker),
		min(f.since), f.detail, f.hint, f.command
	FROM found f
	GROUP BY f.severity, f.problem, f.detail, f.hint, f.command;

	RETURN QUERY
	SELECT a.severity, 'message unreadable', 'message ' || u.id, u.since,
		format('seq %s: %s (%s)', u.seq, u.error, u.sqlstate)
			|| CASE WHEN u.of_worker > 8 THEN format('; one of %s that worker %s has set aside', u.of_worker, u.worker) ELSE '' END,
		a.hint, format('SELECT %s.outbox_discard(%L::uuid)', schema, u.id)
	FROM outbox_internal.outbox_unreadable_rows() u, LATERAL outbox_internal.outbox_reason_hint('message unreadable', false, NULL::text, NULL::text) a;

	/* Silent for the sake of the original: whose messages are these? */
	IF EXISTS (SELECT FROM outbox_internal.outbox_worker_stats() w WHERE w.state = 'not adopted') THEN
		IF outbox_internal.outbox_try_lock_tables() THEN
			SELECT string_agg(format('%s of origin %s', o.messages, o.origin), ', ') INTO origins
			FROM (SELECT m.origin, count(*) AS messages
				  FROM (SELECT b.origin FROM outbox_internal.outbox b LIMIT 5000) m
				  WHERE m.origin <> outbox_internal.outbox_origin()
				  GROUP BY m.origin ORDER BY count(*) DESC LIMIT 5) o;
		END IF;
		RETURN QUERY
		SELECT 'critical', 'not adopted', 'database ' || quote_ident(current_database()), min(w.since),
			concat_ws('; ', max(w.last_error), 'of the first 5000 messages ' || origins),
			(SELECT r.hint FROM outbox_internal.outbox_relay_state() r), format('SELECT %s.outbox_adopt()', schema)
		FROM outbox_internal.outbox_worker_stats() w WHERE w.state = 'not adopted';
	END IF;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_worker_problems() IS 'Those of outbox_problems that workers tell: link, settings, database, copies, versions, clock.';

/* Routes, and what is the matter with their messages; outbox is locked for reading. */
CREATE FUNCTION outbox_internal.outbox_route_problems(counts outbox_internal.outbox_route_count[])
RETURNS SETOF outbox_internal.outbox_problem
LANGUAGE plpgsql ROWS 5
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	schema constant text := outbox_internal.outbox_schema();
	late constant interval := current_setting('outbox.backlog_warning_age')::interval;
BEGIN
	RETURN QUERY
	SELECT 'warning', 'paused', 'database ' || quote_ident(current_database()), c.paused_at,
		concat_ws(': ', 'by ' || quote_ident(c.paused_by), c.pause_reason),
		'Nothing is published in this database until it is resumed.', format('SELECT %s.outbox_resume(NULL::text, NULL::text)', schema)
	FROM outbox_internal.outbox_control c WHERE c.paused;

	RETURN QUERY
	WITH routes AS MATERIALIZED (
		SELECT b.*, s.waits_because, s.reason, s.waits_since, s.retry_at,
			p.paused_by, p.paused_at, p.pause_reason, p.relay,
			CASE b.backlog WHEN 1 THEN '1 message waits' ELSE b.backlog || ' messages wait' END AS waiting,
			b.route = outbox_internal.outbox_printable(b.route) AS printable
		FROM unnest(counts) b
			LEFT JOIN outbox_internal.outbox_route_stats() s ON s.route = b.route
			LEFT JOIN outbox_internal.outbox_route p ON p.name = b.route
		WHERE b.route IS NOT NULL)
	SELECT 'warning', 'route paused', format('route "%s"', r.route), r.paused_at,
		concat_ws(': ', 'by ' || quote_ident(r.paused_by), r.pause_reason) || '; ' || r.waiting,
		'Its messages wait until it is resumed.',
		CASE WHEN r.printable THEN format('SELECT %s.outbox_resume(%L::text, NULL::text)', schema, r.route) ELSE format('SELECT name, paused FROM %s.outbox_route', schema) END
	FROM routes r WHERE r.paused
	UNION ALL
	SELECT 'warning', 'role changed', format('route "%s"', p.name), NULL::timestamptz,
		format('%s names %s, which did not exist when that was written, or was another role', n.kind,
			string_agg(quote_ident(n.role::text), ', ' ORDER BY n.role)),
		'A role was renamed, dropped or created again, and that name gives no role access any more. If the role of this name is meant, write the column again.',
		CASE WHEN p.name = outbox_internal.outbox_printable(p.name) THEN format('UPDATE %1$s.outbox_route SET %2$I = %2$I WHERE name = %3$L', schema, n.kind, p.name)
			ELSE format('SELECT name, enqueue_roles, relay_roles FROM %s.outbox_route', schema) END
	FROM outbox_internal.outbox_route p,
		LATERAL (SELECT 'enqueue_roles' AS kind, e.role, e.oid FROM unnest(p.enqueue_roles, p.enqueue_role_oids) e(role, oid)
			UNION ALL
			SELECT 'relay_roles', e.role, e.oid FROM unnest(p.relay_roles, p.relay_role_oids) e(role, oid)) n
	WHERE NOT EXISTS (SELECT FROM pg_roles o WHERE o.rolname = n.role AND o.oid = n.oid)
	GROUP BY p.name, n.kind
	UNION ALL
	SELECT 'critical', 'route missing', format('route "%s"', r.route), r.oldest,
		CASE r.backlog + r.scheduled + r.failed WHEN 1 THEN '1 message has'
			ELSE format('%s messages have', r.backlog + r.scheduled + r.failed) END || ' a route that is not in outbox_route',
		'They wait until there is one: add it with its exchange, or discard them.',
		CASE WHEN r.printable THEN format('SELECT id, status, event_type, routing_key, created_at FROM %s.outbox WHERE route = %L LIMIT 20', schema, r.route)
			ELSE format('SELECT route, backlog FROM %s.outbox_routes_status WHERE NOT known', schema) END
	FROM routes r WHERE NOT r.known
	UNION ALL
	SELECT a.severity, coalesce(r.reason, 'exchange error'), format('route "%s"', r.route), r.waits_since,
		format('%s; %s', r.waits_because, r.waiting) || coalesce(', next attempt at ' || r.retry_at::timestamptz(0)::text, ''),
		a.hint,
		/* For change data capture no mark helps. */
		CASE WHEN r.reason = 'another relay''s route' AND r.relay = 'cdc' AND r.printable
			THEN format('SELECT id, event_type, created_at FROM %s.outbox WHERE outlet IS NULL AND route = %L', schema, r.route) ELSE a.command END
	FROM routes r, LATERAL outbox_internal.outbox_reason_hint(coalesce(r.reason, 'exchange error'), true, NULL::text, r.route) a
	WHERE r.waits_because IS NOT NULL AND NOT r.paused
		/* The worker that has met such a message does not see it marked. */
		AND (r.reason IS DISTINCT FROM 'another relay''s route' OR EXISTS (SELECT FROM outbox_internal.outbox o
			WHERE o.status = 'pending' AND o.outlet IS NULL AND o.route = r.route))
	UNION ALL
	SELECT CASE WHEN clock_timestamp() - r.oldest > 10 * late THEN 'critical' ELSE 'warning' END,
		'backlog old', format('route "%s"', r.route), r.oldest,
		format('%s%s, the oldest for %s', r.waiting, CASE WHEN r.estimated THEN ' (estimated)' ELSE '' END,
			date_trunc('second', clock_timestamp() - r.oldest)),
		'The other rows say why. If there is none, more is enqueued than goes out, or a key with many messages is slow.',
		format('SELECT * FROM %s.outbox_routes_status', schema)
	FROM routes r WHERE late > interval '0' AND r.oldest < clock_timestamp() - late
	UNION ALL
	SELECT 'warning', 'external relay missing', format('route "%s"', r.route), r.oldest,
		r.waiting || ', and no relay has leased any',
		'Its relay does not run, or claims nothing: look at its log.', format('SELECT * FROM %s.outbox_leases', schema)
	FROM routes r
	WHERE r.relay = 'external' AND NOT r.paused AND late > interval '0' AND r.oldest < clock_timestamp() - late
		AND NOT EXISTS (SELECT FROM outbox_internal.outbox_lease l
			WHERE l.route = r.route AND l.expires_at > clock_timestamp())
	UNION ALL
	SELECT 'warning', 'route full', format('route "%s"', r.route), NULL::timestamptz,
		format('the route has reached max_pending (%s message%s); new messages are rejected', r.max_pending, CASE WHEN r.max_pending <> 1 THEN 's' END),
		'Nothing can be enqueued to it until some are gone. The other rows say why they wait; failed ones count, and those of open transactions.',
		format('SELECT * FROM %s.outbox_routes_status', schema) || CASE WHEN r.printable THEN format(' WHERE route = %L', r.route) ELSE '' END
	FROM routes r
	WHERE outbox_internal.outbox_route_is_full(r.route, r.max_pending);
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_route_problems(outbox_internal.outbox_route_count[]) IS 'Those of outbox_problems that concern pauses, routes and the age of the backlog.';

CREATE FUNCTION outbox_internal.outbox_stuck_messages(
	failed bigint, waiting bigint, OUT id uuid, OUT seq bigint, OUT route text,
	OUT aggregate_type text, OUT aggregate_id text, OUT status text,
	OUT created_at timestamptz, OUT available_at timestamptz, OUT attempts integer,
	OUT last_error text, OUT last_error_reason text)
RETURNS SETOF record
LANGUAGE sql STABLE
BEGIN ATOMIC
	SELECT m.id, m.seq, m.route, m.aggregate_type, m.aggregate_id, m.status, m.created_at,
		m.available_at, m.attempts, outbox_internal.outbox_printable(m.last_error), m.last_error_reason
	FROM ((SELECT o.* FROM @extschema@.outbox o
		   WHERE o.status = 'failed' ORDER BY o.seq LIMIT $1)
		  UNION ALL
		  (SELECT o.* FROM @extschema@.outbox o
		   WHERE o.status = 'pending' AND o.available_at IS NOT NULL AND o.outlet IS NULL
		   ORDER BY o.available_at, o.seq LIMIT $2)) m
	WHERE m.status = 'failed' OR m.attempts > 0;
END;

COMMENT ON FUNCTION outbox_internal.outbox_stuck_messages(bigint, bigint) IS
'Of the first so many failed messages all, and of the first so many that wait for a time those that have failed before.';

CREATE FUNCTION outbox_internal.outbox_holding_messages(
	failed bigint, waiting bigint, keys bigint, most bigint,
	OUT id uuid, OUT seq bigint, OUT route text, OUT aggregate_type text,
	OUT aggregate_id text, OUT status text, OUT created_at timestamptz,
	OUT available_at timestamptz, OUT last_error text, OUT behind bigint)
RETURNS SETOF record
LANGUAGE sql STABLE
BEGIN ATOMIC
	SELECT h.id, h.seq, h.route, h.aggregate_type, h.aggregate_id, h.status, h.created_at,
		h.available_at, h.last_error,
		(SELECT count(*) FROM (SELECT FROM @extschema@.outbox b
			WHERE b.status = 'pending' AND b.available_at IS NULL AND b.outlet IS NULL AND b.aggregate_id IS NOT NULL
				/* As the index outbox_key has it, so that no other one is chosen. */
				AND (outbox_internal.outbox_key_hash(b.route, b.aggregate_type, b.aggregate_id), b.seq)
					> (outbox_internal.outbox_key_hash(h.route, h.aggregate_type, h.aggregate_id), h.seq)
				AND (outbox_internal.outbox_key_hash(b.route, b.aggregate_type, b.aggregate_id), b.seq)
					<= (outbox_internal.outbox_key_hash(h.route, h.aggregate_type, h.aggregate_id), 9223372036854775807)
				AND b.route = h.route
			ORDER BY outbox_internal.outbox_key_hash(b.route, b.aggregate_type, b.aggregate_id), b.seq
			LIMIT $4) b) AS behind
	FROM (SELECT n.* FROM (
			SELECT DISTINCT ON (m.route, m.aggregate_type, m.aggregate_id) m.*
			FROM outbox_internal.outbox_stuck_messages($1, $2) m
				JOIN @extschema@.outbox_route r ON r.name = m.route
			WHERE m.aggregate_id IS NOT NULL AND r.ordering <> 'none'
				AND (m.status = 'pending' OR r.on_failed = 'block')
			ORDER BY m.route, m.aggregate_type, m.aggregate_id, m.seq) n
		  ORDER BY n.status, n.seq LIMIT $3) h
	ORDER BY behind DESC, h.seq;
END;

COMMENT ON FUNCTION outbox_internal.outbox_holding_messages(bigint, bigint, bigint, bigint) IS
'Those of outbox_stuck_messages(failed, waiting) that hold their keys, of so many keys at most, with how many messages wait behind each, up to most; the most first.';

/*
 * Messages that are refused, or were given up, and keys that they hold.  Not more is
 * read than outbox_backlog_sample() has counted, so that dead rows cost nothing.
 */
CREATE FUNCTION outbox_internal.outbox_message_problems(counts outbox_internal.outbox_route_count[])
RETURNS SETOF outbox_internal.outbox_problem
LANGUAGE plpgsql ROWS 5
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	schema constant text := outbox_internal.outbox_schema();
	waiting bigint;
	failed bigint;
	all_failed boolean;
BEGIN
	IF EXISTS (SELECT FROM outbox_internal.outbox_locked_claims()) THEN
		RETURN QUERY
		WITH claims AS MATERIALIZED (SELECT * FROM outbox_internal.outbox_locked_claims()),
		workers AS (
			SELECT sum(w.unsettled) AS unsettled, sum(w.shown) AS shown
			FROM (SELECT c.unsettled, sum(c.in_flight) AS shown FROM claims c GROUP BY c.worker, c.unsettled) w),
		lockers AS (
			SELECT l.pids, l.prepared, min(l.since) AS since, count(*) AS n,
				sum(c.in_flight) AS in_flight,
				string_agg(DISTINCT format('worker %s', c.worker), ' and ') FILTER (WHERE c.waits AND c.in_flight > 0) AS waits,
				concat_ws(' and ', 'process ' || nullif(array_to_string(l.pids, ', '), ''),
					'prepared transaction "' || nullif(outbox_internal.outbox_printable(array_to_string(l.prepared, '", "')::text), '') || '"') AS who,
				(array_agg(l.id ORDER BY l.seq))[1] AS id,
				(array_agg(CASE WHEN l.aggregate_id IS NOT NULL
					THEN format(' of key "%s" "%s"', outbox_internal.outbox_printable(l.aggregate_type),
						outbox_internal.outbox_printable(l.aggregate_id)) END ORDER BY l.seq))[1] AS key
			FROM outbox_internal.outbox_locked_rows l
				JOIN claims c ON c.worker = l.worker AND c.id = l.id AND c.since = l.since
			GROUP BY l.pids, l.prepared)
		SELECT 'warning', 'row locked', k.who, k.since,
			CASE WHEN k.in_flight = 0 THEN
				format('message %s%s%s for the row locks of %s', k.id, k.key,
					CASE k.n WHEN 1 THEN ' waits' WHEN 2 THEN ' and at least 1 other wait' ELSE format(' and at least %s others wait', k.n - 1) END, k.who)
			ELSE format(CASE WHEN w.unsettled > k.in_flight
					THEN '%1$s messages in flight wait for row locks, %5$s%2$s of them for those of %3$s%4$s'
					WHEN k.in_flight = 1 THEN '1 message in flight waits for the row locks of %3$s%4$s'
					ELSE '%2$s messages in flight wait for the row locks of %3$s%4$s' END,
				w.unsettled, k.in_flight, k.who,
				'; nothing is published meanwhile by ' || k.waits || ', with three times outbox.window of them',
				CASE WHEN w.unsettled > w.shown THEN 'at least ' END)
			END,
			'An open transaction has locked the rows; later messages of their keys wait until it ends. Of a prepared one, COMMIT PREPARED keeps what it has written; ROLLBACK PREPARED loses its messages.',
			CASE WHEN k.pids[1] IS NOT NULL THEN format('SELECT pg_terminate_backend(%s)', k.pids[1])
				WHEN k.prepared[1] = outbox_internal.outbox_printable(k.prepared[1]::text) THEN format('SELECT * FROM pg_prepared_xacts WHERE gid = %L', k.prepared[1])
				WHEN k.prepared[1] IS NOT NULL THEN 'SELECT * FROM pg_prepared_xacts' END
		FROM lockers k, workers w;
	END IF;
	PERFORM FROM unnest(counts) c WHERE c.retrying > 0 OR c.failed > 0;
	IF NOT FOUND THEN
		RETURN;
	END IF;
	SELECT sum(s.messages) FILTER (WHERE s.kind = 'waiting'), sum(s.messages) FILTER (WHERE s.kind = 'failed'),
		bool_and(s.complete) FILTER (WHERE s.kind = 'failed')
	INTO waiting, failed, all_failed FROM outbox_internal.outbox_backlog_sample(500) s;
	/* Those that wait for their time only are no problem. */
	IF (SELECT sum(c.retrying) FROM unnest(counts) c) = 0 THEN
		waiting := 0;
	END IF;

	RETURN QUERY
	SELECT a.severity, e.reason, format('route "%s"', e.route), e.since,
		format('%s: %s message%s, after %s', e.last_error, e.messages, CASE WHEN e.messages <> 1 THEN 's' END,
			CASE e.attempts WHEN 1 THEN '1 attempt' ELSE format('%s attempts at most', e.attempts) END),
		a.hint,
		/* Permissions of the broker's are shown; else the messages decide. */
		CASE WHEN e.reason IN ('unroutable', 'queue refuses') OR e.last_error LIKE '%access to topic ''%' THEN a.command
			WHEN e.route <> outbox_internal.outbox_printable(e.route)
				THEN format('SELECT id, route, event_type, routing_key, attempts, last_error FROM %s.outbox_messages WHERE status = ''pending'' AND attempts > 0 LIMIT 20', schema)
			ELSE format('SELECT id, event_type, routing_key, attempts, last_error FROM %s.outbox_messages WHERE route = %L AND status = ''pending'' AND attempts > 0 LIMIT 20',
				schema, e.route) END
	FROM (SELECT m.route, m.reason, m.last_error, count(*) AS messages, min(m.created_at) AS since, max(m.attempts) AS attempts
		  FROM (SELECT o.*,
					/* A role that may insert may write any text there. */
					CASE WHEN o.last_error_reason IN ('unroutable', 'queue refuses', 'external nack') THEN o.last_error_reason
						ELSE 'message refused' END AS reason
				FROM (SELECT s.route, s.created_at, s.attempts, s.last_error, s.last_error_reason
					  FROM outbox_internal.outbox_stuck_messages(0::bigint, waiting) s
					  UNION ALL
					  /* By the index outbox_external_waiting. */
					  SELECT e.* FROM unnest(counts) c,
						LATERAL (SELECT x.route, x.created_at, x.attempts, outbox_internal.outbox_printable(x.last_error), x.last_error_reason
							FROM outbox_internal.outbox x
							WHERE x.outlet IS NOT NULL AND x.failed_at IS NULL AND x.available_at IS NOT NULL
								AND x.route = c.route AND x.attempts > 0
							ORDER BY x.available_at LIMIT c.retrying) e) o) m
		  GROUP BY m.route, m.reason, m.last_error
		  ORDER BY count(*) DESC LIMIT 20) e,
		LATERAL outbox_internal.outbox_reason_hint(e.reason, true, NULL::text, e.route) a;

	RETURN QUERY
	SELECT 'warning', 'failed messages', format('route "%s"', e.route), e.since,
		format('%s message%s%s, %s', e.messages, CASE WHEN e.messages <> 1 THEN 's' END,
			CASE WHEN NOT all_failed THEN ' or more' END, e.last_error),
		'They failed after max_attempts, and stay until they are requeued or discarded.',
		CASE WHEN e.route = outbox_internal.outbox_printable(e.route) THEN format('SELECT %s.outbox_requeue_failed(%L::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::timestamptz, NULL::integer)', schema, e.route)
			ELSE format('SELECT route, count(*) FROM %s.outbox_failed GROUP BY 1', schema) END
	FROM (SELECT m.route, count(*) AS messages, min(m.created_at) AS since,
			mode() WITHIN GROUP (ORDER BY m.last_error) AS last_error
		  FROM outbox_internal.outbox_stuck_messages(failed, 0::bigint) m
		  GROUP BY m.route) e;

	RETURN QUERY
	SELECT CASE k.status WHEN 'failed' THEN 'warning' ELSE 'info' END, 'key held',
		format('key "%s" "%s" of route "%s"', outbox_internal.outbox_printable(k.aggregate_type),
			outbox_internal.outbox_printable(k.aggregate_id), k.route), k.created_at,
		format('message %s %s: %s; %s behind it', k.id,
			CASE k.status WHEN 'failed' THEN 'has failed' ELSE format('is tried again at %s', k.available_at::timestamptz(0)) END,
			k.last_error, CASE WHEN k.behind = 1 THEN '1 message waits' WHEN k.behind > 100 THEN 'more than 100 messages wait'
				ELSE format('%s messages wait', k.behind) END),
		CASE k.status WHEN 'failed' THEN 'The route has on_failed = ''block'': requeue or discard the message that has failed.'
			ELSE 'It ends with the next attempt that succeeds.' END,
		CASE k.status WHEN 'failed' THEN format('SELECT %s.outbox_requeue(%L::uuid)', schema, k.id)
			ELSE format('SELECT * FROM %s.outbox_held_keys', schema) END
	FROM outbox_internal.outbox_holding_messages(failed, waiting, 20::bigint, 101::bigint) k
	WHERE k.behind > 0 OR k.status = 'failed';
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_message_problems(outbox_internal.outbox_route_count[]) IS 'Those of outbox_problems that concern messages and keys.';

CREATE VIEW outbox_internal.outbox_tables AS
	SELECT c.relname::pg_catalog.text AS name, c.oid AS relation
	FROM pg_catalog.pg_extension e
		JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.refobjid = e.oid
			AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.deptype = 'e'
		JOIN pg_catalog.pg_class c ON c.oid = d.objid AND c.relkind IN ('r', 'p')
	WHERE e.extname = 'outbox';

COMMENT ON VIEW outbox_internal.outbox_tables IS 'Tables of the extension, with the partitions of the archive that the relay has made.';

/* What keeps the space of published rows from being used again, and the age of transactions. */
CREATE FUNCTION outbox_internal.outbox_vacuum_problems()
RETURNS SETOF outbox_internal.outbox_problem
LANGUAGE plpgsql ROWS 5
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	outbox_oid constant oid := outbox_internal.outbox_relation('outbox');
	dead constant bigint := pg_stat_get_dead_tuples(outbox_oid);
BEGIN
	IF dead > 100000 THEN
		RETURN QUERY
		WITH holder AS (
			SELECT h.* FROM (
				SELECT format('process %s', a.pid) AS subject, a.xact_start AS since,
					concat_ws(', ', coalesce(nullif(a.application_name, ''), a.backend_type, 'of ' || a.usename), a.state) AS detail,
					format('SELECT pg_terminate_backend(%s)', a.pid) AS command,
					greatest(age(a.backend_xmin), age(a.backend_xid)) AS age
				FROM pg_stat_activity a
				WHERE a.pid <> pg_backend_pid() AND a.datname = current_database()
				UNION ALL
				SELECT format('prepared transaction "%s"', outbox_internal.outbox_printable(p.gid::text)), p.prepared, format('of %s', p.owner),
					CASE WHEN p.gid = outbox_internal.outbox_printable(p.gid::text) THEN format('SELECT * FROM pg_prepared_xacts WHERE gid = %L', p.gid)
						ELSE 'SELECT * FROM pg_prepared_xacts' END, age(p.transaction)
				FROM pg_prepared_xacts p
				WHERE p.database = current_database()
				UNION ALL
				SELECT format('replication slot "%s"', s.slot_name), NULL, CASE WHEN s.active THEN 'active' ELSE 'not active' END,
					format('SELECT * FROM pg_replication_slots WHERE slot_name = %L', s.slot_name), age(s.xmin)
				FROM pg_replication_slots s WHERE s.xmin IS NOT NULL
				UNION ALL
				SELECT format('standby "%s"', r.application_name), r.backend_start, 'hot_standby_feedback',
					'SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start', age(r.backend_xmin)
				FROM pg_stat_replication r) h
			WHERE h.age > 10000 AND (h.since IS NULL OR h.since < now() - interval '30 seconds')
			ORDER BY h.age DESC LIMIT 1)
		SELECT 'warning', 'vacuum held back', h.subject, h.since,
			format('%s; table outbox has %s dead rows, and a snapshot %s transactions old keeps them', h.detail, dead, h.age),
			'Published rows cannot be removed and the table grows, until that ends.',
			h.command
		FROM holder h
		UNION ALL
		SELECT 'warning', 'vacuum behind', 'table outbox', pg_stat_get_last_autovacuum_time(outbox_oid),
			format('%s dead rows', dead), 'Autovacuum does not come to it: see autovacuum and autovacuum_max_workers.',
			format('VACUUM %s.outbox', outbox_internal.outbox_schema())
		WHERE dead > 5000000 AND NOT EXISTS (SELECT FROM holder);
	END IF;

	RETURN QUERY
	SELECT CASE WHEN a.age > 1500000000 THEN 'critical' ELSE 'warning' END, 'wraparound', 'table ' || a.relname, NULL::timestamptz,
		format('its oldest %s is %s old', a.kind, a.age),
		'VACUUM must freeze it before the server stops taking transactions: end what keeps it from that, and vacuum.',
		format('VACUUM (FREEZE) %s', outbox_internal.outbox_printable(a.oid::regclass::text))
	FROM (SELECT c.oid, c.relname, k.kind, k.age, k.most
		  FROM outbox_internal.outbox_tables o JOIN pg_class c ON c.oid = o.relation AND c.relkind = 'r',
			LATERAL (VALUES
				('transaction', age(c.relfrozenxid), current_setting('autovacuum_freeze_max_age')::bigint),
				('multixact', mxid_age(c.relminmxid), current_setting('autovacuum_multixact_freeze_max_age')::bigint))
				AS k (kind, age, most)) a
	WHERE a.age > least(a.most * 1.5, 1500000000);
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_vacuum_problems() IS 'Those of outbox_problems that concern dead rows and the age of transactions.';

CREATE FUNCTION outbox_internal.outbox_archive_problems()
RETURNS SETOF outbox_internal.outbox_problem
LANGUAGE plpgsql ROWS 5
SET search_path = pg_catalog, pg_temp SET lock_timeout = '10ms'
AS $$
DECLARE
	schema constant text := outbox_internal.outbox_schema();
	today constant date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
	retention constant interval := current_setting('outbox.retention')::interval;
	longest interval := retention;
	last_day date;
BEGIN
	RETURN QUERY
	SELECT 'warning', 'archive maintenance', 'archive', w.archive_error_since, w.archive_error,
		'Partitions of outbox_archive cannot be made or dropped now. Publishing goes on; see what reads the archive for so long.',
		'SELECT DISTINCT a.pid, a.xact_start, a.state, a.application_name, a.query FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid WHERE l.relation::regclass::text LIKE ''%outbox_archive%'' AND l.granted AND a.datname = current_database() ORDER BY a.xact_start'
	FROM outbox_internal.outbox_worker_stats() w WHERE w.archive_error IS NOT NULL;

	last_day := (SELECT max(d.day) FROM outbox_internal.outbox_archive_day d);
	IF outbox_internal.outbox_try_lock_tables() THEN
		SELECT greatest(longest, max(r.retention)) INTO longest FROM outbox_internal.outbox_route r;
	END IF;

	/* A day of grace: it may be a night's work.  Of a divided day the size is read, for which a lock is not waited. */
	BEGIN
		RETURN QUERY
		SELECT 'warning', 'archive behind', 'archive', ((p.day + 1)::timestamp AT TIME ZONE 'UTC') + coalesce(p.own_retention, retention),
			format('the partition of %s is still there', p.day),
			'It has been out of retention for a day: the relay drops it when no session reads the archive.',
			format('SELECT * FROM %s.outbox_archive_status', schema)
		FROM outbox_internal.outbox_archive_partitions(retention) p
		WHERE p.due AND ((p.day + 2)::timestamp AT TIME ZONE 'UTC') < clock_timestamp() - coalesce(p.own_retention, retention)
		ORDER BY p.day LIMIT 1;
	EXCEPTION WHEN lock_not_available THEN
		NULL;
	END;

	RETURN QUERY
	SELECT 'warning', 'archive partition missing', 'archive', NULL::timestamptz,
		coalesce('the last partition is that of ' || last_day, 'there is none'),
		'Messages of the days after it go to outbox_archive_default. The relay creates partitions two days ahead when no session has the archive locked.',
		format('SELECT * FROM %s.outbox_archive_status', schema)
	WHERE longest > interval '0'
		/* The relay makes tomorrow's at once where nothing is in its way. */
		AND coalesce(last_day < today OR last_day = today
			AND EXISTS (SELECT FROM outbox_internal.outbox_worker_stats() w WHERE w.archive_error IS NOT NULL),
			pg_stat_get_live_tuples(to_regclass('outbox_internal.outbox_archive_default')) > 0);
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_archive_problems() IS 'Those of outbox_problems that concern the archive.';

/* Read from the catalogs, without a lock on the tables. */
CREATE FUNCTION outbox_internal.outbox_object_problems(forgotten interval)
RETURNS SETOF outbox_internal.outbox_problem
LANGUAGE plpgsql ROWS 5
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	outbox_oid constant oid := outbox_internal.outbox_relation('outbox');
BEGIN
	RETURN QUERY
	SELECT 'critical', 'trigger off', x.kind || x.name, NULL::timestamptz,
		format('trigger %s %s', x.trigger, CASE WHEN t.oid IS NULL THEN 'is missing'
			WHEN t.tgenabled = 'O' THEN 'does not fire on replicas' ELSE 'is disabled' END),
		CASE WHEN t.oid IS NULL THEN 'Rows are not checked, and the relay may not hear of them: create the extension again, beside which the messages have to be saved.'
			ELSE 'Rows are not checked, and the relay may not hear of them: enable it.' END,
		CASE WHEN t.oid IS NOT NULL THEN format('ALTER TABLE %s ENABLE %sTRIGGER %I', outbox_internal.outbox_printable(x.relation::regclass::text),
			CASE WHEN x.always THEN 'ALWAYS ' END, x.trigger)
			ELSE format('SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = %L::regclass AND NOT tgisinternal', outbox_internal.outbox_printable(x.relation::regclass::text)) END
	FROM (SELECT n.kind, n.name, outbox_internal.outbox_relation(n.name::text) AS relation, u.trigger,
			u.trigger = ANY ('{outbox_route_changed,outbox_route_emptied,outbox_route_relay,outbox_control_changed,outbox_control_emptied}'::text[]) AS always
		  FROM (VALUES ('table ', 'outbox', '{outbox_row,outbox_removed}'::text[]),
				('table ', 'outbox_route', '{outbox_route_truncation,outbox_route_wait,outbox_route_removed,outbox_route_deleted,outbox_route_renamed,outbox_route_check,outbox_route_failed_route,outbox_route_default,outbox_route_paused,outbox_route_changed,outbox_route_emptied,outbox_route_relay}'),
				('table ', 'outbox_control', '{outbox_control_restore,outbox_control_paused,outbox_control_changed,outbox_control_emptied}'),
				('table ', 'outbox_job', '{outbox_job_changed}'),
@list triggers@
				('view ', 'outbox_new', '{outbox_new_row,outbox_new_statement}'))
				AS n (kind, name, triggers), unnest(n.triggers) u(trigger)) x
		LEFT JOIN pg_trigger t ON t.tgrelid = x.relation AND t.tgname = x.trigger
	WHERE t.oid IS NULL OR t.tgenabled IN ('D', 'R') OR (x.always AND t.tgenabled <> 'A');

	RETURN QUERY
	SELECT 'warning', 'trigger order', 'table outbox', NULL::timestamptz,
		outbox_internal.outbox_printable(format('trigger %s fires after outbox_row', t.tgname)),
		'What it changes in a row is not checked, and the relay may send the row late or out of order: give it a name that sorts before outbox_row, or make it an AFTER trigger.',
		outbox_internal.outbox_printable(format('ALTER TRIGGER %I ON %s RENAME TO %I', t.tgname, outbox_oid::regclass, 'a_' || t.tgname))
	FROM pg_trigger t
	WHERE t.tgrelid = outbox_oid AND t.tgname > 'outbox_row' AND NOT t.tgisinternal AND t.tgenabled <> 'D'
		/* BEFORE, FOR EACH ROW; INSERT or UPDATE */
		AND t.tgtype & 3 = 3 AND t.tgtype & 20 <> 0;

	RETURN QUERY
	SELECT 'critical', 'table unlogged', 'table ' || o.name, NULL::timestamptz,
		'it is not in the WAL',
		'A crash of the server empties it, and standbys have nothing of it. Messages in it are lost then, and they go out before synchronous standbys have their transactions: make it logged.',
		format('ALTER TABLE %s SET LOGGED', outbox_internal.outbox_printable(o.relation::regclass::text))
	FROM outbox_internal.outbox_tables o JOIN pg_class c ON c.oid = o.relation
	WHERE c.relpersistence = 'u';

	RETURN QUERY
	SELECT 'warning', 'index missing', 'table ' || x.name, NULL::timestamptz,
		format('index %s %s', x.index, CASE WHEN i.indexrelid IS NULL THEN 'is missing' ELSE 'is not valid' END),
		'The whole table is read instead, which becomes slow as it grows, and a primary key keeps rows apart: build the index again.',
		CASE WHEN i.indexrelid IS NOT NULL THEN format('REINDEX INDEX CONCURRENTLY %s', outbox_internal.outbox_printable(i.indexrelid::regclass::text))
			ELSE format('SELECT indexrelid::regclass, indisvalid FROM pg_index WHERE indrelid = %L::regclass', outbox_internal.outbox_printable(x.relation::regclass::text)) END
	FROM (SELECT n.name, o.relation, u.index
		  FROM (VALUES ('outbox', '{outbox_pkey,outbox_ready,outbox_waiting,outbox_failed_seq,outbox_key,outbox_holder,outbox_counted,outbox_external,outbox_external_waiting}'::text[]),
				('outbox_archive', '{outbox_archive_id}'), ('outbox_archive_default', '{outbox_archive_default_published_at}'),
				('outbox_control', '{outbox_control_pkey}'), ('outbox_history', '{outbox_history_pkey,outbox_history_at}'),
				('outbox_job', '{outbox_job_pkey}'), ('outbox_job_list', '{outbox_job_list_pkey}'),
				('outbox_key_number', '{outbox_key_number_pkey}'), ('outbox_lease', '{outbox_lease_pkey}'),
				('outbox_once', '{outbox_once_pkey,outbox_once_at}'), ('outbox_route', '{outbox_route_pkey}'))
				AS n (name, indexes) JOIN outbox_internal.outbox_tables o ON o.name = n.name, unnest(n.indexes) u(index)) x
		LEFT JOIN pg_index i ON i.indrelid = x.relation
			AND (SELECT c.relname FROM pg_class c WHERE c.oid = i.indexrelid) = x.index
	WHERE i.indexrelid IS NULL OR NOT i.indisvalid;

	RETURN QUERY
	SELECT 'critical', 'sequence changed', 'sequence outbox_seq_seq', NULL::timestamptz,
		concat_ws(', ', CASE WHEN s.seqcache <> 1 THEN 'CACHE ' || s.seqcache END,
			CASE WHEN s.seqincrement <> 1 THEN 'INCREMENT ' || s.seqincrement END, CASE WHEN s.seqcycle THEN 'CYCLE' END),
		'Messages of a key go out in another order than they were enqueued in: give the sequence its parameters back.',
		format('ALTER SEQUENCE %s CACHE 1 INCREMENT 1 NO CYCLE', outbox_internal.outbox_printable(s.seqrelid::regclass::text))
	FROM pg_sequence s
	WHERE s.seqrelid = outbox_internal.outbox_relation('outbox_seq_seq')
		AND (s.seqcache <> 1 OR s.seqincrement <> 1 OR s.seqcycle);

	RETURN QUERY
	SELECT DISTINCT 'warning', 'prepared transaction', format('prepared transaction "%s"', outbox_internal.outbox_printable(p.gid::text)), p.prepared,
		format('of %s, it has written to outbox', p.owner),
		'Its messages wait until it ends, and so do later ones of keys that it holds: ask its transaction manager, then commit it, or roll it back.',
		CASE WHEN p.gid = outbox_internal.outbox_printable(p.gid::text) THEN format('SELECT * FROM pg_prepared_xacts WHERE gid = %L', p.gid)
			ELSE 'SELECT * FROM pg_prepared_xacts' END
	FROM pg_locks l
		JOIN pg_locks x ON x.locktype = 'transactionid' AND x.pid IS NULL AND x.virtualtransaction = l.virtualtransaction
		JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
	WHERE l.locktype = 'relation' AND l.relation = outbox_oid AND l.pid IS NULL AND l.mode = 'RowExclusiveLock'
		AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
		AND p.prepared < clock_timestamp() - forgotten;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_object_problems(interval) IS
'Those of outbox_problems that concern our tables, their triggers, indexes and sequence, and prepared transactions that are older than that and have written to outbox.';

CREATE FUNCTION outbox_internal.outbox_problem_list(
	counts outbox_internal.outbox_route_count[] DEFAULT NULL)
RETURNS SETOF outbox_internal.outbox_problem
LANGUAGE plpgsql ROWS 5 SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	state text;
	readable boolean;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	state := (SELECT r.state FROM outbox_internal.outbox_relay_state() r);
	/* Its primary tells. */
	IF pg_is_in_recovery() THEN
		RETURN;
	END IF;
	RETURN QUERY SELECT * FROM outbox_internal.outbox_server_problems(state);
	RETURN QUERY SELECT * FROM outbox_internal.outbox_worker_problems();
	readable := outbox_internal.outbox_try_lock_tables();
	RETURN QUERY
	SELECT 'critical', 'table locked', 'table ' || c.relname, l.since,
		format('%s %s by %s%s', l.mode, CASE WHEN l.granted THEN 'held' ELSE 'waited for' END,
			coalesce('process ' || l.pid, format('prepared transaction "%s"', outbox_internal.outbox_printable(l.prepared::text))),
			' (' || nullif(l.application_name, '') || ')'),
		'Enqueue or the relay waits until it ends. See whether that command may be ended. Of a prepared transaction, COMMIT PREPARED keeps what it has written; ROLLBACK PREPARED loses its messages.',
		CASE WHEN l.pid IS NOT NULL THEN format('SELECT pg_terminate_backend(%s)', l.pid)
			WHEN l.prepared = outbox_internal.outbox_printable(l.prepared::text) THEN format('SELECT * FROM pg_prepared_xacts WHERE gid = %L', l.prepared)
			WHEN l.prepared IS NOT NULL THEN 'SELECT * FROM pg_prepared_xacts' END
	FROM outbox_internal.outbox_table_lockers l
		LEFT JOIN pg_class c ON c.oid = l.relation
	/* One that readers do not notice may be that of a moment. */
	WHERE NOT readable OR coalesce(l.since < clock_timestamp() - interval '1 second', true);
	IF NOT FOUND AND NOT readable AND NOT outbox_internal.outbox_try_lock_tables() THEN
		RETURN QUERY SELECT 'warning', 'table locked', 'tables of outbox', NULL::timestamptz, 'one was renamed or moved, or its lock has just ended',
			'Routes and messages are not shown meanwhile: put the table back.', format('SELECT * FROM %s.outbox_table_lockers()', outbox_internal.outbox_schema());
	END IF;
	IF readable THEN
		counts := coalesce(counts, ARRAY(SELECT b FROM outbox_internal.outbox_backlog() b));
		RETURN QUERY SELECT * FROM outbox_internal.outbox_route_problems(counts);
		RETURN QUERY SELECT * FROM outbox_internal.outbox_message_problems(counts);
		RETURN QUERY
		SELECT 'warning', 'job failed', format('job %s', j.id), j.ended_at,
			format('%s of %s messages done: %s', j.done, j.total, outbox_internal.outbox_printable(j.last_error)),
			'Remove the cause and retry it, which goes on where it stopped; or cancel it.',
			format('SELECT %s.outbox_job_retry(%s::bigint)', outbox_internal.outbox_schema(), j.id)
		FROM outbox_internal.outbox_job j WHERE j.state = 'failed'
		ORDER BY j.id LIMIT 20;
@list problems@
	END IF;
	RETURN QUERY SELECT * FROM outbox_internal.outbox_object_problems('1 minute'::interval);
	RETURN QUERY SELECT * FROM outbox_internal.outbox_archive_problems();
	RETURN QUERY SELECT * FROM outbox_internal.outbox_vacuum_problems();
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_problem_list(outbox_internal.outbox_route_count[]) IS
'What is wrong now, one row for each; see the view outbox_problems. counts: what outbox_backlog() has just returned, NULL: to be asked. Empty on a standby, whose primary tells.';

CREATE VIEW @extschema@.outbox_problems AS
	SELECT p.severity, p.problem, p.subject, p.since, p.detail, p.hint, p.command
	FROM outbox_internal.outbox_problem_list() p
	ORDER BY array_position(ARRAY['critical', 'warning', 'info'], p.severity), p.since NULLS FIRST, p.subject;

COMMENT ON VIEW @extschema@.outbox_problems IS 'One row for each thing that is wrong now; empty: all is well.';

CREATE VIEW @extschema@.outbox_status AS
	SELECT current_database() AS database, s.state, s.since,
		NULLIF(concat_ws(' ', s.hint,
			'Messages wait on a paused route: ' || t.paused || '. Call outbox_resume() with its name.',
			'Messages wait for a route that does not exist: ' || t.missing || '. Add it to outbox_route, or discard them.'),
			'') AS hint,
		t.backlog, clock_timestamp() - t.oldest AS oldest_pending_age,
		t.scheduled, t.retrying, t.failed, s.in_flight, s.workers, s.broker,
		s.last_error, s.last_error_at, t.estimated, d.rate,
		CASE WHEN t.backlog > 0 AND d.rate > 0
			THEN make_interval(secs => ceil(t.backlog / d.rate)) END AS time_to_drain,
		p.problems, p.worst_problem
	FROM outbox_internal.outbox_relay_state() s, @extschema@.outbox_database_stats() d,
		/* Once for both that want it. */
		(SELECT array_agg(b) AS rows FROM outbox_internal.outbox_backlog() b) c,
		LATERAL (SELECT count(*) AS problems,
			(array_agg(concat_ws(': ', l.problem, l.subject) ORDER BY l.severity, l.since NULLS FIRST, l.subject))[1] AS worst_problem
		 FROM outbox_internal.outbox_problem_list(c.rows) l
		 WHERE l.severity <> 'info') p,
		LATERAL (SELECT max(b.backlog) FILTER (WHERE b.route IS NULL) AS backlog,
			max(b.oldest) FILTER (WHERE b.route IS NULL) AS oldest,
			max(b.scheduled) FILTER (WHERE b.route IS NULL) AS scheduled,
			max(b.retrying) FILTER (WHERE b.route IS NULL) AS retrying,
			max(b.failed) FILTER (WHERE b.route IS NULL) AS failed,
			bool_or(b.estimated) FILTER (WHERE b.route IS NULL) AS estimated,
			string_agg(format('"%s" (%s)', b.route, b.backlog), ', ' ORDER BY b.route)
				FILTER (WHERE b.paused AND b.backlog > 0) AS paused,
			string_agg(format('"%s" (%s)', b.route, b.backlog), ', ' ORDER BY b.route)
				FILTER (WHERE NOT b.known AND b.backlog > 0) AS missing
		 FROM unnest(c.rows) b) t;

COMMENT ON VIEW @extschema@.outbox_status IS 'One row: is this database''s relay publishing, and if not, why and what to do; all that is wrong is in outbox_problems.';

CREATE VIEW @extschema@.outbox_routes_status AS
	SELECT b.route, b.paused, b.known,
		CASE WHEN NOT b.known THEN 'there is no such route' ELSE s.waits_because END AS waits_because,
		CASE WHEN NOT b.known THEN 'route missing' ELSE s.reason END AS reason,
		s.waits_since, s.retry_at, b.backlog,
		clock_timestamp() - b.oldest AS oldest_pending_age,
		b.scheduled, b.retrying, b.failed, coalesce(s.published, 0) AS published,
		coalesce(s.returned, 0) AS returned, coalesce(s.nacked, 0) AS nacked,
		coalesce(s.retried, 0) AS retried, coalesce(s.failed, 0) AS gave_up,
		coalesce(s.dead_lettered, 0) AS dead_lettered, b.estimated, b.max_pending
	FROM outbox_internal.outbox_backlog() b
		LEFT JOIN outbox_internal.outbox_route_stats() s ON s.route = b.route
	WHERE b.route IS NOT NULL;

COMMENT ON VIEW @extschema@.outbox_routes_status IS 'One row a route, and one for each name that messages have and outbox_route has not. Empty while outbox is locked against readers.';

