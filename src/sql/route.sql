/*
 * A trigger's condition sees the search_path of the statement, which a function
 * that sets its own does not.  For the same reason the functions that this
 * condition leads to set none: the path is empty then, and has to stay so for
 * the triggers of the rows that they change.  They run as who restores, the owner of
 * the extension or a superuser: nobody else may use outbox_internal.
 */
CREATE FUNCTION outbox_internal.outbox_restoring()
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_restoring'
LANGUAGE C STABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION outbox_internal.outbox_restoring() IS
'True in a session that restores a dump: check_function_bodies is off and search_path is empty, as pg_dump and pg_restore set them.';

/*
 * A restored dump brings the control row of the database that was dumped, which
 * replaces the one that CREATE EXTENSION has made: so the relay sees that this
 * is a copy.  That of this database is marked as one, too: the messages may have been
 * published since the dump.  One that somebody has adopted with is not replaced (the
 * INSERT meets the primary key), and a pause before the restore stays one.
 */
CREATE FUNCTION outbox_internal.outbox_control_restore_trigger()
RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
	UPDATE outbox_internal.outbox_control c SET
		paused = c.paused OR NEW.paused,
		paused_by = CASE WHEN c.paused THEN c.paused_by ELSE NEW.paused_by END,
		paused_at = CASE WHEN c.paused THEN c.paused_at ELSE NEW.paused_at END,
		pause_reason = CASE WHEN c.paused THEN c.pause_reason ELSE NEW.pause_reason END,
		system_identifier = NEW.system_identifier,
		database_oid = CASE WHEN (NEW.system_identifier, NEW.database_oid) = (c.system_identifier, c.database_oid)
			THEN 0::pg_catalog.oid ELSE NEW.database_oid END,
		adopted_at = NEW.adopted_at,
		adopted_origins = NEW.adopted_origins,
		environment = NEW.environment, timeline = NEW.timeline
	FROM pg_catalog.pg_control_system() s, pg_catalog.pg_database d
	WHERE d.datname = pg_catalog.current_database()
		AND (c.system_identifier, c.database_oid, c.adopted_origins)
			= (s.system_identifier, d.oid, '{}');
	IF FOUND THEN
		RETURN NULL;
	END IF;
	RETURN NEW;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_control_restore_trigger() IS
'Makes a restore replace the row of outbox_control that CREATE EXTENSION has made.';

CREATE TRIGGER outbox_control_restore
	BEFORE INSERT ON @extschema@.outbox_control
	FOR EACH ROW WHEN (outbox_internal.outbox_restoring())
	EXECUTE FUNCTION outbox_internal.outbox_control_restore_trigger();

/*
 * A dump contains the route 'default' as it was, and a restore meets the one
 * that CREATE EXTENSION has just made.  Everywhere else 'default' is a name like
 * any other: what a migration adds ON CONFLICT DO NOTHING must not undo what
 * an administrator has set.
 */
CREATE FUNCTION outbox_internal.outbox_route_default_trigger()
RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
	UPDATE outbox_internal.outbox_route r SET
		exchange = NEW.exchange, exchange_type = NEW.exchange_type,
		routing_key = NEW.routing_key, max_attempts = NEW.max_attempts,
		ordering = NEW.ordering, on_failed = NEW.on_failed,
		paused = NEW.paused, enqueue_roles = NEW.enqueue_roles,
		paused_by = NEW.paused_by, paused_at = NEW.paused_at,
		pause_reason = NEW.pause_reason,
		failed_route = NEW.failed_route, retention = NEW.retention,
		archive = NEW.archive,
		sequence = NEW.sequence, relay = NEW.relay, relay_roles = NEW.relay_roles,
		max_pending = NEW.max_pending,
		format = NEW.format, format_options = NEW.format_options, slot = NEW.slot
	WHERE r.name = NEW.name
		AND (r.exchange, r.exchange_type, r.routing_key, r.max_attempts,
			 r.ordering, r.on_failed, r.paused)
			= ('outbox', 'topic', '{event_type}', 10, 'key', 'skip', false)
		AND r.enqueue_roles IS NULL AND r.failed_route IS NULL
		AND r.retention IS NULL AND r.archive = 'message' AND r.sequence IS NULL
		AND r.relay = 'internal' AND r.relay_roles IS NULL AND r.max_pending IS NULL
		AND r.format = 'plain' AND r.slot IS NULL;
	IF FOUND THEN
		RETURN NULL;
	END IF;
	RETURN NEW;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_route_default_trigger() IS
'Makes a restore replace the route ''default'' that CREATE EXTENSION has made.';

CREATE FUNCTION outbox_internal.outbox_route_trigger()
RETURNS trigger
AS 'MODULE_PATHNAME', 'outbox_route_trigger'
LANGUAGE C;

COMMENT ON FUNCTION outbox_internal.outbox_route_trigger() IS
'Checks the roles of a route, and records their OIDs; the errors are 22004 and 42704.';

CREATE FUNCTION outbox_internal.outbox_take_route_lock(route text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_take_route_lock'
LANGUAGE C VOLATILE;

COMMENT ON FUNCTION outbox_internal.outbox_take_route_lock(text) IS
'Waits for the transactions that have enqueued to the route, and keeps others away from it until this one ends. NULL: for the transaction that changes routes. False: this transaction has locked a route already, and this one is locked.';

CREATE FUNCTION outbox_internal.outbox_poll_route_lock()
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_poll_route_lock'
LANGUAGE C VOLATILE;

COMMENT ON FUNCTION outbox_internal.outbox_poll_route_lock() IS
'Waits for 10 ms; false if the statement has waited for as long as lock_timeout.';

CREATE FUNCTION outbox_internal.outbox_route_lock_key(route text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'outbox_route_lock_key'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION outbox_internal.outbox_route_lock_key(text) IS
'classid and objid of the route''s lock in pg_locks as one number; objsubid is 5.';

/* Longer than any usual transaction takes that enqueues; who enqueues to the route waits meanwhile. */
CREATE FUNCTION outbox_internal.outbox_lock_route(route text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '3s'
AS $$
BEGIN
	/* While no route is locked, so that nobody who enqueues waits for this. */
	IF route IS NOT NULL THEN
		PERFORM outbox_internal.outbox_lock_route(NULL::text);
	END IF;
	BEGIN
		WHILE NOT outbox_internal.outbox_take_route_lock(route) LOOP
			IF NOT outbox_internal.outbox_poll_route_lock() THEN
				RAISE lock_not_available;
			END IF;
		END LOOP;
	EXCEPTION WHEN lock_not_available THEN
		RAISE EXCEPTION '%', CASE WHEN route IS NULL THEN 'another transaction changes routes'
				ELSE format('route "%s" is in use', route) END
			USING ERRCODE = 'lock_not_available',
				DETAIL = 'Not ended after 3 s: ' || coalesce((
					SELECT string_agg(coalesce('process ' || l.pid, 'prepared transaction "' || outbox_internal.outbox_printable(p.gid::text) || '"'), ', ' ORDER BY l.pid, p.gid)
					FROM pg_locks l
						LEFT JOIN (pg_locks x JOIN pg_prepared_xacts p ON p.transaction = x.transactionid)
							ON l.pid IS NULL AND x.pid IS NULL AND x.virtualtransaction = l.virtualtransaction
					WHERE l.locktype = 'advisory' AND l.granted
						AND l.objsubid = CASE WHEN route IS NULL THEN 6 ELSE 5 END
						AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
						AND (l.classid::bigint << 32 | l.objid::bigint) = coalesce(outbox_internal.outbox_route_lock_key(route), 0)
						AND l.pid IS DISTINCT FROM pg_backend_pid()),
					'transactions that have just ended') || '.',
				HINT = CASE WHEN route IS NULL THEN 'Routes are removed, renamed, and given another relay or failed_route, by one transaction at a time. '
					ELSE 'Transactions that have enqueued to the route keep it until they end. ' END
					|| 'Commit them or roll them back, then try again.';
	END;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_lock_route(text) IS
'Locks a route for a change that no enqueue may overlap, and before that all changes of routes (NULL: only those), for at most 3 s of wait each; then 55P03, naming the transactions that hold it.';

/*
 * Once a route is locked, who enqueues to it waits for all that the transaction waits
 * for, be it a row that the statement changes next, or what a foreign key leads to.
 */
CREATE FUNCTION outbox_internal.outbox_route_wait_trigger()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF current_setting('lock_timeout')::interval NOT BETWEEN interval '1 ms' AND interval '3 s' THEN
		PERFORM set_config('lock_timeout', '3s', true);
	END IF;
	RETURN NULL;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_route_wait_trigger() IS
'From DELETE and renaming of a route, and a change of its relay or failed_route, on, a transaction waits for no lock longer than 3 s.';

CREATE FUNCTION outbox_internal.outbox_route_removal_trigger()
RETURNS trigger
AS 'MODULE_PATHNAME', 'outbox_route_removal_trigger'
LANGUAGE C;

COMMENT ON FUNCTION outbox_internal.outbox_route_removal_trigger() IS
'Keeps a route that has messages: DELETE and renaming are errors (23503) when there are messages.';

CREATE FUNCTION outbox_internal.outbox_failed_route_trigger()
RETURNS trigger
AS 'MODULE_PATHNAME', 'outbox_failed_route_trigger'
LANGUAGE C;

COMMENT ON FUNCTION outbox_internal.outbox_failed_route_trigger() IS
'Sees to it that outbox_route.failed_route names a route (23503 if not), and that a chain of failed routes has an end (22023 if not).';

CREATE TRIGGER outbox_route_truncation
	BEFORE TRUNCATE ON @extschema@.outbox_route
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_internal.outbox_route_removal_trigger();
CREATE TRIGGER outbox_route_wait
	BEFORE DELETE OR UPDATE OF name, relay, failed_route ON @extschema@.outbox_route
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_internal.outbox_route_wait_trigger();
CREATE TRIGGER outbox_route_removed
	AFTER DELETE OR UPDATE OF name ON @extschema@.outbox_route
	FOR EACH ROW EXECUTE FUNCTION outbox_internal.outbox_route_removal_trigger();
/* PostgreSQL has no transition tables of two events, or of UPDATE OF. */
CREATE TRIGGER outbox_route_deleted
	AFTER DELETE ON @extschema@.outbox_route
	REFERENCING OLD TABLE AS old_routes
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_internal.outbox_route_removal_trigger();
CREATE TRIGGER outbox_route_renamed
	AFTER UPDATE ON @extschema@.outbox_route
	REFERENCING OLD TABLE AS old_routes NEW TABLE AS new_routes
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_internal.outbox_route_removal_trigger();
CREATE TRIGGER outbox_route_check
	BEFORE INSERT OR UPDATE ON @extschema@.outbox_route
	FOR EACH ROW EXECUTE FUNCTION outbox_internal.outbox_route_trigger();
CREATE TRIGGER outbox_route_failed_route
	AFTER INSERT OR DELETE OR UPDATE OF name, failed_route ON @extschema@.outbox_route
	FOR EACH ROW EXECUTE FUNCTION outbox_internal.outbox_failed_route_trigger();
CREATE TRIGGER outbox_route_default
	BEFORE INSERT ON @extschema@.outbox_route
	FOR EACH ROW WHEN (NEW.name = 'default' AND outbox_internal.outbox_restoring())
	EXECUTE FUNCTION outbox_internal.outbox_route_default_trigger();
/*
 * Who, when and why belong to a pause: whoever sets paused without telling gets
 * himself and now recorded, and what is not paused has none of them.
 */
CREATE FUNCTION outbox_internal.outbox_pause_trigger()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NEW.paused THEN
		/* As outbox_acting_role(), whose schema the role that changes the row may not use. */
		NEW.paused_by := coalesce(NEW.paused_by, nullif(current_setting('role'), 'none')::name, session_user);
		NEW.paused_at := coalesce(NEW.paused_at, clock_timestamp());
	ELSE
		NEW.paused_by := NULL;
		NEW.paused_at := NULL;
		NEW.pause_reason := NULL;
	END IF;
	RETURN NEW;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_pause_trigger() IS
'Keeps paused_by, paused_at and pause_reason in step with paused, however that is changed.';

CREATE TRIGGER outbox_route_paused
	BEFORE INSERT OR UPDATE ON @extschema@.outbox_route
	FOR EACH ROW WHEN (NOT outbox_internal.outbox_restoring())
	EXECUTE FUNCTION outbox_internal.outbox_pause_trigger();
CREATE TRIGGER outbox_control_paused
	BEFORE INSERT OR UPDATE ON @extschema@.outbox_control
	FOR EACH ROW WHEN (NOT outbox_internal.outbox_restoring())
	EXECUTE FUNCTION outbox_internal.outbox_pause_trigger();
/*
 * For each row and always, so that sessions hear of what logical replication
 * applies and of what is done with session_replication_role = replica, too.
 */
CREATE TRIGGER outbox_route_changed
	AFTER INSERT OR UPDATE OR DELETE ON @extschema@.outbox_route
	FOR EACH ROW EXECUTE FUNCTION outbox_internal.outbox_change_trigger();
CREATE TRIGGER outbox_route_emptied
	AFTER TRUNCATE ON @extschema@.outbox_route
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_internal.outbox_change_trigger();
CREATE TRIGGER outbox_control_changed
	AFTER INSERT OR UPDATE OR DELETE ON @extschema@.outbox_control
	FOR EACH ROW EXECUTE FUNCTION outbox_internal.outbox_change_trigger();
CREATE TRIGGER outbox_control_emptied
	AFTER TRUNCATE ON @extschema@.outbox_control
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_internal.outbox_change_trigger();
ALTER TABLE @extschema@.outbox_route ENABLE ALWAYS TRIGGER outbox_route_changed;
ALTER TABLE @extschema@.outbox_route ENABLE ALWAYS TRIGGER outbox_route_emptied;
ALTER TABLE @extschema@.outbox_control ENABLE ALWAYS TRIGGER outbox_control_changed;
ALTER TABLE @extschema@.outbox_control ENABLE ALWAYS TRIGGER outbox_control_emptied;

INSERT INTO @extschema@.outbox_route (name, exchange, exchange_type)
	VALUES ('default', 'outbox', 'topic');

SELECT pg_catalog.pg_extension_config_dump('@extschema@.outbox_control', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.outbox_route', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.outbox_key_number', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.outbox', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.outbox_seq_seq', '');

