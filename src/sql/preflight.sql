--
-- Would messages get through?
--

CREATE FUNCTION outbox_internal.outbox_preflight_server(
	OUT "check" text, OUT ok boolean, OUT detail text, OUT hint text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'outbox_preflight_server'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

COMMENT ON FUNCTION outbox_internal.outbox_preflight_server() IS
'Rows of outbox_preflight() about the library and its processes.';

CREATE FUNCTION outbox_internal.outbox_preflight_broker(
	exchanges text[], types text[], routes text[], routing_key text, publish boolean,
	OUT "check" text, OUT ok boolean, OUT detail text, OUT hint text, OUT reason text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'outbox_preflight_broker'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION outbox_internal.outbox_preflight_broker(text[], text[], text[], text, boolean) IS
'Rows of outbox_preflight() about settings and broker. exchanges, types (NULL: it has to exist) and routes (names, for people) belong together; exchanges NULL: they are not known. reason: an argument of outbox_reason_hint(), where that knows the hint.';

CREATE FUNCTION outbox_internal.outbox_preflight_database(
	OUT "check" text, OUT ok boolean, OUT detail text, OUT hint text)
RETURNS SETOF record
LANGUAGE sql STABLE
BEGIN ATOMIC
	WITH rights AS (
		SELECT a.grantee FROM pg_proc p, aclexplode(p.proacl) a
		WHERE p.pronamespace = '@extschema@'::regnamespace
			AND p.proname IN ('outbox_enqueue', 'outbox_enqueue_bytes', 'outbox_enqueue_text',
@list ways in@
				'outbox_enqueue_batch', 'outbox_enqueue_once')
			AND a.grantee <> p.proowner
		UNION
		SELECT a.grantee FROM pg_class c, aclexplode(c.relacl) a
		WHERE c.oid IN ('@extschema@.outbox'::regclass, '@extschema@.outbox_new'::regclass)
			AND a.privilege_type = 'INSERT' AND a.grantee <> c.relowner
		UNION
		SELECT a.grantee FROM pg_attribute t, aclexplode(t.attacl) a
		WHERE t.attrelid IN ('@extschema@.outbox'::regclass, '@extschema@.outbox_new'::regclass)
			AND a.privilege_type = 'INSERT'
	), granted AS (
		SELECT string_agg(CASE g.grantee WHEN 0 THEN 'PUBLIC'
			ELSE quote_ident(pg_get_userbyid(g.grantee)) END, ', ' ORDER BY g.grantee) AS roles
		FROM rights g
	)
	SELECT 'grants', true,
		coalesce('May enqueue beside the owner: ' || g.roles || '.',
			'Nobody but the owner and superusers may enqueue.'),
		CASE WHEN g.roles IS NULL THEN
			'GRANT EXECUTE ON FUNCTION outbox_enqueue, outbox_enqueue_bytes, outbox_enqueue_text, outbox_enqueue_batch, outbox_enqueue_once TO the roles of the applications.' END
	FROM granted g
	UNION ALL
	SELECT 'grants', false,
		format('May enqueue, and cannot use schema "%s": %s.', n.nspname, string_agg(g.grantee::regrole::text, ', ' ORDER BY g.grantee)),
		format('GRANT USAGE ON SCHEMA %I TO %s.', n.nspname, string_agg(g.grantee::regrole::text, ', ' ORDER BY g.grantee))
	FROM rights g JOIN pg_namespace n ON n.oid = '@extschema@'::regnamespace
	WHERE g.grantee <> 0 AND NOT has_schema_privilege(g.grantee, n.oid, 'USAGE')
	GROUP BY n.nspname
	UNION ALL
	SELECT 'grants', false,
		format(CASE a.privilege_type WHEN 'TRIGGER' THEN 'May run code as the owner of "%s", with a trigger: %s.'
				ELSE 'May stop what deletes from "%s", with a foreign key: %s.' END, c.relname,
			string_agg(DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END, ', ')),
		format('REVOKE %s ON %s FROM them.', a.privilege_type, c.oid::regclass)
	FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'outbox'
		JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid,
		LATERAL (SELECT c.relacl UNION ALL
			SELECT t.attacl FROM pg_attribute t WHERE t.attrelid = c.oid AND NOT t.attisdropped) l(acl),
		aclexplode(l.acl) a
	WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
		AND (a.privilege_type = 'TRIGGER' OR a.privilege_type = 'REFERENCES' AND c.relkind = 'r')
		AND a.grantee <> c.relowner
	GROUP BY c.oid, c.relname, a.privilege_type
	UNION ALL
	SELECT 'grants', false,
		format('Route "%s" names roles in enqueue_roles that do not exist: %s.', r.name,
			string_agg(quote_ident(e.role::text), ', ' ORDER BY e.role)),
		'Correct enqueue_roles of the route, or create the role.'
	FROM @extschema@.outbox_route r, unnest(r.enqueue_roles) e(role)
	WHERE NOT EXISTS (SELECT FROM pg_roles o WHERE o.rolname = e.role)
	GROUP BY r.name
	UNION ALL
	SELECT 'names', false,
		format('%s is not of the extension, and is found first where %I comes before %I in search_path.',
			c.oid::regclass, n.nspname, o.nspname),
		'What is inserted there is not published. A tool that makes tables out of models may have made it: tell it that outbox_new is a view that is there, enqueue the rows again, and drop it.'
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_namespace o ON o.oid = '@extschema@'::regnamespace
	WHERE c.relname = 'outbox_new' AND n.oid <> o.oid AND c.relpersistence <> 't'
	UNION ALL
	SELECT 'schema', true,
		format('Roles other than the owner of the extension may create objects in schema %I: %s.', n.nspname,
			string_agg(DISTINCT CASE c.role WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(c.role)) END, ', ')),
		'The extension never calls them. A call of your own may find one of them where it fits better: grant CREATE there to nobody, or give the extension a schema of its own.'
	FROM pg_namespace n JOIN pg_extension e ON e.extname = 'outbox',
		LATERAL (SELECT n.nspowner
			UNION ALL
			SELECT a.grantee FROM aclexplode(n.nspacl) a WHERE a.privilege_type = 'CREATE') a(grantee),
		LATERAL (SELECT CASE pg_get_userbyid(a.grantee) WHEN 'pg_database_owner' THEN d.datdba ELSE a.grantee END
			FROM pg_database d WHERE d.datname = current_database()) c(role)
	WHERE n.oid = '@extschema@'::regnamespace AND c.role <> e.extowner
	GROUP BY n.nspname
	UNION ALL
	SELECT 'order', true,
		'A message that fails does not stop later ones of its key (on_failed is skip) on: '
			|| array_to_string((array_agg(quote_ident(r.name) ORDER BY r.name))[1:3], ', ')
			|| CASE WHEN count(*) > 3 THEN format(' and %s more.', count(*) - 3) ELSE '.' END,
		'Where a gap is worse than a delay: UPDATE outbox_route SET on_failed = ''block'' WHERE name = the route.'
	FROM @extschema@.outbox_route r
	WHERE r.ordering <> 'none' AND r.on_failed = 'skip' AND r.relay <> 'cdc'
	HAVING count(*) > 0
	UNION ALL
	SELECT 'archive',
		CASE WHEN NOT k.kept THEN NULL ELSE p.ahead = 3 END,
		CASE WHEN NOT k.kept THEN 'Not used: outbox.retention is 0, and no route has one of its own.'
			ELSE format('%s of the partitions for today and the next two days (UTC) are there.', p.ahead) END,
		CASE WHEN k.kept AND p.ahead < 3 THEN
			'The relay makes them within seconds. If this lasts, the server log says why; rows go into outbox_archive_default meanwhile.' END
	FROM (SELECT coalesce((SELECT s.setting::bigint > 0 FROM pg_settings s
			WHERE s.name = 'outbox.retention'), true)
			OR EXISTS (SELECT FROM @extschema@.outbox_route r
				WHERE r.retention > interval '0')) k(kept),
		(SELECT count(*) FROM outbox_internal.outbox_archive_day d
		 WHERE d.day BETWEEN d.today AND d.today + 2) p(ahead)
	UNION ALL
	SELECT 'archive', NOT d.filled,
		CASE WHEN d.filled THEN 'outbox_archive_default has rows: their days had no partition.'
			ELSE 'outbox_archive_default is empty.' END,
		CASE WHEN d.filled THEN
			'The relay removes them after outbox.retention; no partition can be made for these days before that.' END
	FROM (SELECT EXISTS (SELECT FROM outbox_internal.outbox_archive_default)) d(filled)
	UNION ALL
	SELECT 'replication', true, 'This server is a standby.',
		'The relay runs on the primary, and starts here at a promotion: what was checked is what it will find.'
	WHERE pg_is_in_recovery()
	UNION ALL
	SELECT 'replication', l.missing_standbys = 0,
		CASE WHEN n.setting = '' THEN 'No commit waits for a standby (synchronous_standby_names is empty).'
			ELSE format('synchronous_standby_names = ''%s''; missing: %s.', n.setting, l.missing_standbys) END,
		CASE WHEN l.missing_standbys > 0 THEN
			'Nothing is published that the standbys do not have: bring them back, or change synchronous_standby_names.' END
	FROM outbox_internal.outbox_launcher_state() l, btrim(current_setting('synchronous_standby_names')) n(setting)
	WHERE NOT pg_is_in_recovery()
	UNION ALL
	SELECT 'replication', i.own,
		CASE WHEN i.own THEN 'The messages of this database are its own, or adopted.'
			ELSE 'This database is a copy or may be one, or holds messages of another one: its relay is silent.' END,
		CASE WHEN NOT i.own THEN
			'Where the check environment fails, correct that. Else discard what must not be published twice, then call outbox_adopt().' END
	FROM @extschema@.outbox_control c, outbox_internal.outbox_relay_state() w,
		LATERAL (SELECT outbox_internal.outbox_is_original(c.system_identifier, c.database_oid, c.environment, c.timeline)
			AND w.state <> 'not adopted') i(own)
	UNION ALL
	SELECT 'version', e.extversion = v.library,
		format('Extension %s, library %s, server %s.', e.extversion, v.library,
			current_setting('server_version')),
		CASE WHEN e.extversion <> v.library THEN
			'Half an upgrade: ALTER EXTENSION outbox UPDATE if the extension is the older one, else restart the server with the newer library.'
		WHEN a.default_version <> v.library THEN
			format('Version %s is installed: restart the server, then ALTER EXTENSION outbox UPDATE.', a.default_version) END
	FROM pg_extension e
		CROSS JOIN (SELECT @extschema@.outbox_version()) v(library)
		LEFT JOIN pg_available_extensions a ON a.name = e.extname
	WHERE e.extname = 'outbox';
END;

COMMENT ON FUNCTION outbox_internal.outbox_preflight_database() IS
'Rows of outbox_preflight() about grants, order, archive, replication and versions.';

CREATE FUNCTION @extschema@.outbox_preflight(
	route text DEFAULT NULL, routing_key text DEFAULT NULL, publish boolean DEFAULT false,
	OUT "check" text, OUT ok boolean, OUT detail text, OUT hint text)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SECURITY DEFINER PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
/* A table that somebody has locked is something to tell, and not to wait for. */
SET lock_timeout = '500ms'
AS $$
DECLARE
	locked constant text := 'Whoever has it holds up enqueue or the relay, too: SELECT * FROM outbox_table_lockers().';
	exchanges text[];
	types text[];
	routes text[];
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	IF publish AND (route IS NULL OR routing_key IS NULL) THEN
		RAISE EXCEPTION 'publish needs a route and a routing_key'
			USING ERRCODE = 'invalid_parameter_value',
				DETAIL = 'It publishes a real message, so it must be said where to.';
	ELSIF routing_key IS NOT NULL AND route IS NULL THEN
		RAISE EXCEPTION 'routing_key needs a route'
			USING ERRCODE = 'invalid_parameter_value',
				DETAIL = 'What may be written depends on the exchange and the routing key together.';
	ELSIF octet_length(routing_key) > 255 THEN
		RAISE EXCEPTION 'routing_key is longer than 255 bytes'
			USING ERRCODE = 'invalid_parameter_value';
	END IF;

	BEGIN
		SELECT array_agg(e.exchange ORDER BY e.exchange),
			array_agg(e.exchange_type ORDER BY e.exchange),
			array_agg(e.names ORDER BY e.exchange)
		INTO exchanges, types, routes
		FROM (SELECT r.exchange, max(r.exchange_type) AS exchange_type,
				'route "' || array_to_string((array_agg(r.name ORDER BY r.name))[1:3], '", "') || '"'
					|| CASE WHEN count(*) > 3 THEN format(' and %s more', count(*) - 3) ELSE '' END AS names
			FROM outbox_internal.outbox_route r
			WHERE outbox_preflight.route IS NULL OR r.name = outbox_preflight.route
			GROUP BY r.exchange) e;
		exchanges := coalesce(exchanges, '{}');
	EXCEPTION WHEN lock_not_available THEN
		RETURN QUERY SELECT 'locks', false, 'Somebody has locked the table outbox_route.', locked;
	END;
	IF exchanges = '{}' THEN
		PERFORM outbox_internal.outbox_check_route(route, false);
	END IF;

	RETURN QUERY SELECT * FROM outbox_internal.outbox_preflight_server();
	RETURN QUERY
		SELECT 'workers', w.hint IS NULL AND w.workers >= l.workers_wanted,
			format('%s of %s workers run, state "%s".', w.workers, l.workers_wanted, w.state),
			coalesce(w.hint, CASE WHEN w.workers < l.workers_wanted THEN
				coalesce(l.out_of_processes, 'The launcher starts workers within seconds, after a crash within a minute, and after ALTER DATABASE ... SET outbox.workers when the configuration is reloaded; if this lasts, look into the server log.') END)
		FROM outbox_internal.outbox_relay_state() w, outbox_internal.outbox_launcher_state() l
		WHERE w.state NOT IN ('standby', 'not preloaded');
	RETURN QUERY
		SELECT b."check", b.ok, b.detail,
			coalesce(b.hint, replace(h.hint, 'see reason_text', 'see detail')
				|| coalesce(' Command: ' || h.command, ''))
		FROM outbox_internal.outbox_preflight_broker(exchanges, coalesce(types, '{}'),
				coalesce(routes, '{}'), routing_key, publish)
			WITH ORDINALITY b("check", ok, detail, hint, reason, n)
			LEFT JOIN LATERAL outbox_internal.outbox_reason_hint(b.reason, true, NULL::text, NULL::text) h ON b.reason IS NOT NULL
		ORDER BY b.n;
	BEGIN
		RETURN QUERY SELECT * FROM outbox_internal.outbox_preflight_database();
	EXCEPTION WHEN lock_not_available THEN
		RETURN QUERY SELECT 'locks', false, 'Somebody has locked a table of outbox, or of the system.', locked;
	END;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_preflight(text, text, boolean) IS
'Would messages get through? Checks the server, the settings, the way to each host of outbox.broker_uri with the relay''s login, each route''s exchange and the right to publish to it (tried in a transaction of the broker''s that is rolled back: nobody gets a message), grants, order, archive, replication and versions, in this order and within 10 seconds. ok is NULL where something was not tried; detail says what was found, hint what to do. route: only this one. routing_key: tried with it. publish: true also publishes one real message with that routing_key, to see whether a queue is bound: consumers may get it (type outbox_preflight, expires after a minute). Errors: 42704 unknown route, 22023 arguments that do not fit.';

