/* outbox--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION outbox" to load this file. \quit

/*
 * Operators and functions of others that lie in the target schema must not be
 * taken for PostgreSQL's, not even where theirs fit better.  So the schema is not
 * in the path, and what is ours is named with it.
 */
SET LOCAL search_path = pg_catalog, pg_temp;

/*
 * What users do not call has a schema of its own, in which nobody but the owner of
 * the extension can create anything.  The chosen schema may belong to anybody: its
 * owner may rename it, and others may have functions of our names in it.  So nothing
 * of ours looks a name up there when it runs.  Views, defaults, triggers, indexes and
 * functions with BEGIN ATOMIC are bound when they are created, that is now; PL/pgSQL
 * and the statements of the library name objects of pg_catalog and of outbox_internal
 * only, and reach the tables through the views of the same names there.
 */
DO $$
BEGIN
	IF '@extschema@' = 'outbox_internal' THEN
		RAISE EXCEPTION 'cannot create extension "outbox" in schema "outbox_internal"'
			USING ERRCODE = 'duplicate_schema',
				DETAIL = 'CREATE EXTENSION creates that schema itself, for what only the extension uses.',
				HINT = 'Drop the schema, and create the extension in another one.';
	ELSIF to_regnamespace('outbox_internal') IS NOT NULL THEN
		RAISE EXCEPTION 'schema "outbox_internal" already exists'
			USING ERRCODE = 'duplicate_schema',
				DETAIL = 'CREATE EXTENSION creates it, for what only the extension uses.',
				HINT = 'Rename it or drop it.';
	END IF;
END
$$;
CREATE SCHEMA outbox_internal;
COMMENT ON SCHEMA outbox_internal IS
'What only the extension outbox uses: nothing here is for users, and any of it may change.';

/*
 * ALTER DEFAULT PRIVILEGES may have granted what is created here to others.  With
 * TRIGGER on a table somebody would have the rights of its owner.
 */
CREATE FUNCTION outbox_internal.outbox_revoke_all(class regclass, object oid)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	granted record;
BEGIN
	FOR granted IN
		SELECT DISTINCT o.kind, o.name, a.grantee
		FROM (SELECT 'ROUTINE' AS kind, p.oid::regprocedure::text AS name, p.proowner AS owner,
				coalesce(p.proacl, acldefault('f'::"char", p.proowner)) AS acl
			FROM pg_proc p WHERE p.oid = $2 AND $1 = 'pg_proc'::regclass
			UNION ALL
			SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
				c.oid::regclass::text, c.relowner, c.relacl
			FROM pg_class c WHERE c.oid = $2 AND $1 = 'pg_class'::regclass
			UNION ALL
			SELECT 'SCHEMA', n.oid::regnamespace::text, n.nspowner, n.nspacl
			FROM pg_namespace n WHERE n.oid = $2 AND $1 = 'pg_namespace'::regclass) o,
			aclexplode(o.acl) a
		WHERE a.grantee <> o.owner
	LOOP
		EXECUTE format('REVOKE ALL ON %s %s FROM %s', granted.kind, granted.name,
			CASE granted.grantee WHEN 0 THEN 'PUBLIC' ELSE granted.grantee::regrole::text END);
	END LOOP;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_revoke_all(regclass, oid) IS
'Revokes all rights on an object of that catalog (pg_class, pg_proc, pg_namespace) from everybody but its owner.';

SELECT outbox_internal.outbox_revoke_all('pg_namespace'::regclass, 'outbox_internal'::regnamespace::oid);

CREATE FUNCTION outbox_internal.outbox_act_as_owner()
RETURNS void
AS 'MODULE_PATHNAME', 'outbox_act_as_owner'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION outbox_internal.outbox_act_as_owner() IS
'First in each function that runs as its owner: loads the library, without which SET outbox.as_owner = on does nothing, and begins a security-restricted operation. Errors: 42501 an object of the extension belongs to another role.';

CREATE FUNCTION outbox_internal.outbox_lock_table(relation oid, mode text, wait boolean)
RETURNS void
AS 'MODULE_PATHNAME', 'outbox_lock_table'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

COMMENT ON FUNCTION outbox_internal.outbox_lock_table(oid, text, boolean) IS
'LOCK TABLE ONLY of a table that is known by its OID; mode as in pg_locks (''ExclusiveLock''). Errors: 42P01 it is gone, 55P03 it is locked and wait is false.';

CREATE FUNCTION outbox_internal.outbox_alter_table(relation oid, command text)
RETURNS void
AS 'MODULE_PATHNAME', 'outbox_alter_table'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

COMMENT ON FUNCTION outbox_internal.outbox_alter_table(oid, text) IS
'ALTER TABLE of a table that is known by its OID; command is what comes after the name.';

--
-- The relay of this database, and whose database this is
--

/*
 * Primary keys are found by their names, here and below: without a name given, the server
 * would choose another one if a relation has that name.
 */
CREATE TABLE @extschema@.outbox_control (
	singleton boolean CONSTRAINT outbox_control_pkey PRIMARY KEY DEFAULT true CHECK (singleton),
	paused boolean NOT NULL DEFAULT false,
	system_identifier bigint NOT NULL,
	database_oid oid NOT NULL,
	adopted_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
	adopted_origins bigint[] NOT NULL DEFAULT '{}',
	environment text NOT NULL DEFAULT '',
	timeline bigint NOT NULL DEFAULT 1,
	paused_by name,
	paused_at timestamptz,
	pause_reason text
);

COMMENT ON TABLE @extschema@.outbox_control IS
'State of the relay of this database; exactly one row, changed by outbox_pause(), outbox_resume() and outbox_adopt().';

CREATE VIEW outbox_internal.outbox_control AS SELECT c.* FROM @extschema@.outbox_control c;

--
-- Routes: where messages go
--

/* One CHECK for all columns of a route, since it says what is allowed where a constraint can only say its name. */
CREATE FUNCTION outbox_internal.outbox_route_allowed(
	name text, exchange text, exchange_type text, routing_key text,
	max_attempts integer, ordering text, on_failed text, paused boolean,
	failed_route text, retention interval, archive text, relay text, sequence text,
	max_pending integer, format text, format_options jsonb, slot name)
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_route_allowed'
LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION outbox_internal.outbox_route_allowed(text, text, text, text, integer, text, text, boolean, text, interval, text, text, text, integer, text, jsonb, name) IS
'True, or an error that names the column of outbox_route and says what is allowed (23514, 22023, 54000, 55000).';

CREATE TABLE @extschema@.outbox_route (
	name text CONSTRAINT outbox_route_pkey PRIMARY KEY,
	exchange text NOT NULL DEFAULT 'outbox',
	exchange_type text,
	routing_key text NOT NULL DEFAULT '{event_type}',
	max_attempts integer NOT NULL DEFAULT 10,
	ordering text NOT NULL DEFAULT 'key',
	on_failed text NOT NULL DEFAULT 'skip',
	paused boolean NOT NULL DEFAULT false,
	enqueue_roles name[],
	paused_by name,
	paused_at timestamptz,
	pause_reason text,
	failed_route text,
	retention interval,
	archive text NOT NULL DEFAULT 'message',
	relay text NOT NULL DEFAULT 'internal',
	relay_roles name[],
	sequence text,
	max_pending integer,
	format text NOT NULL DEFAULT 'plain',
	format_options jsonb,
	slot name,
	enqueue_role_oids oid[],
	relay_role_oids oid[],
	CONSTRAINT outbox_route_allowed CHECK (outbox_internal.outbox_route_allowed(
		name, exchange, exchange_type, routing_key, max_attempts, ordering, on_failed,
		paused, failed_route, retention, archive, relay, sequence, max_pending,
		format, format_options, slot))
);

COMMENT ON TABLE @extschema@.outbox_route IS
'Destinations of messages. A message names a route; the route names the exchange and how to publish to it. Changes reach the workers at commit.';

CREATE VIEW outbox_internal.outbox_route AS SELECT r.* FROM @extschema@.outbox_route r;

/*
 * Numbers of routes with sequence = 'key'.  Keys by their hash, as in the index
 * outbox_key: what a key is called need not be kept.
 */
CREATE TABLE @extschema@.outbox_key_number (
	route text NOT NULL,
	key_hash bigint NOT NULL,
	last bigint NOT NULL,
	CONSTRAINT outbox_key_number_pkey PRIMARY KEY (route, key_hash)
) WITH (fillfactor = 80);

COMMENT ON TABLE @extschema@.outbox_key_number IS
'Of routes with sequence = ''key'', the number of the last message of each key. One row for each key that was ever used; without its row a key begins at 1 again.';

CREATE VIEW outbox_internal.outbox_key_number AS SELECT n.* FROM @extschema@.outbox_key_number n;

--
-- Messages
--

CREATE FUNCTION @extschema@.outbox_uuid7()
RETURNS uuid
AS 'MODULE_PATHNAME', 'outbox_uuid7'
LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION @extschema@.outbox_uuid7() IS
'Returns a new UUID of version 7 (RFC 9562): 48 bits of Unix time in milliseconds, then random bits.';

CREATE FUNCTION outbox_internal.outbox_key_hash(route text, aggregate_type text, aggregate_id text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'outbox_key_hash'
LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION outbox_internal.outbox_key_hash(text, text, text) IS
'Hash of a key (route, aggregate_type, aggregate_id), by which keys are divided among the workers and found in the table; NULL when aggregate_id or route is NULL.';

/* As queue.c makes it, for shared memory. */
CREATE FUNCTION outbox_internal.outbox_claim_hash(id uuid)
RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN pg_catalog.uuid_hash_extended(id, 0::bigint) & 4611686018427387903;

COMMENT ON FUNCTION outbox_internal.outbox_claim_hash(uuid) IS
'What outbox_claims() shows of a message with that id.';

/* In a function that runs as its owner current_user is the owner. */
CREATE FUNCTION outbox_internal.outbox_acting_role()
RETURNS name
LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(nullif(pg_catalog.current_setting('role'), 'none')::name, session_user);

COMMENT ON FUNCTION outbox_internal.outbox_acting_role() IS
'The role of SET ROLE, or that of the session: who has called, whatever runs as another one.';

CREATE FUNCTION outbox_internal.outbox_printable(value text)
RETURNS text
AS 'MODULE_PATHNAME', 'outbox_printable'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION outbox_internal.outbox_printable(text) IS
'The first 511 bytes, with ? in place of every byte that is not printable, as the broker''s texts are stored. Reads no more of a long value.';

/* Not IMMUTABLE, as a dump must not carry its value into another database. */
CREATE FUNCTION outbox_internal.outbox_origin()
RETURNS bigint
AS 'MODULE_PATHNAME', 'outbox_origin'
LANGUAGE C STABLE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION outbox_internal.outbox_origin() IS
'Hash of server (system identifier) and database, by which the relay knows messages that were enqueued here.';

CREATE FUNCTION outbox_internal.outbox_identity(
	OUT system_identifier bigint, OUT database_oid oid,
	OUT environment text, OUT timeline bigint)
LANGUAGE sql STABLE
BEGIN ATOMIC
	SELECT s.system_identifier, d.oid,
		coalesce(current_setting('outbox.environment', true), ''),
		('x' || "left"(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint
	FROM pg_control_system() s, pg_database d
	WHERE d.datname = current_database();
END;

COMMENT ON FUNCTION outbox_internal.outbox_identity() IS
'What tells this database from others and from its copies, as outbox_control records it.';

/* Only here, as the library, which has the setting, has been loaded by now. */
INSERT INTO @extschema@.outbox_control (system_identifier, database_oid, environment, timeline)
	SELECT i.system_identifier, i.database_oid, i.environment, i.timeline
	FROM outbox_internal.outbox_identity() i;

CREATE TABLE @extschema@.outbox (
	seq bigint GENERATED ALWAYS AS IDENTITY,
	id uuid NOT NULL DEFAULT @extschema@.outbox_uuid7(),
	route text NOT NULL DEFAULT 'default',
	event_type text NOT NULL,
	aggregate_type text,
	aggregate_id text,
	payload jsonb,
	body bytea,
	headers jsonb,
	properties jsonb,
	routing_key text,
	created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	available_at timestamptz,
	attempts integer NOT NULL DEFAULT 0,
	last_error text,
	status text NOT NULL DEFAULT 'pending',
	origin bigint NOT NULL DEFAULT outbox_internal.outbox_origin(),
	failed_at timestamptz,
	outlet text,
	counted boolean,
	last_error_reason text,
	CONSTRAINT outbox_pkey PRIMARY KEY (id)
)
/*
 * A queue: rows come and go and the table stays small, so vacuum by number of
 * rows and not by share of the table, and never throttle it.
 */
WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
	  autovacuum_vacuum_insert_scale_factor = 0,
	  autovacuum_vacuum_insert_threshold = 100000,
	  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
	  autovacuum_vacuum_cost_delay = 0);

/* Claims walk this one; rows that cannot go now are not in it. */
CREATE INDEX outbox_ready ON @extschema@.outbox (seq)
	WHERE status = 'pending' AND available_at IS NULL AND outlet IS NULL;
/* Retries and scheduled messages, by when they are due. */
CREATE INDEX outbox_waiting ON @extschema@.outbox (available_at, seq)
	WHERE status = 'pending' AND available_at IS NOT NULL AND outlet IS NULL;
CREATE INDEX outbox_failed_seq ON @extschema@.outbox (seq) WHERE status = 'failed';
/* Rows of one key, whatever lies between them; two keys may share a hash, and a route is compared beside it. */
CREATE INDEX outbox_key ON @extschema@.outbox (outbox_internal.outbox_key_hash(route, aggregate_type, aggregate_id), seq)
	WHERE status = 'pending' AND available_at IS NULL AND aggregate_id IS NOT NULL AND outlet IS NULL;
/* What can hold a key; by status, as what has failed is passed over where it holds nothing. */
CREATE INDEX outbox_holder ON @extschema@.outbox (outbox_internal.outbox_key_hash(route, aggregate_type, aggregate_id), status, seq)
	WHERE aggregate_id IS NOT NULL AND (status = 'failed' OR available_at IS NOT NULL AND attempts > 0);
/* Those of routes with max_pending; "C", as it is read without the planner. */
CREATE INDEX outbox_counted ON @extschema@.outbox (route COLLATE "C") WHERE counted;

COMMENT ON TABLE @extschema@.outbox IS
'Messages that are not published yet, or have failed. A row is a message from the commit of the transaction that inserted it until RabbitMQ has confirmed it.';

/* With the places of the rows, under their own names. */
CREATE VIEW outbox_internal.outbox AS
	SELECT o.ctid, o.xmin, o.tableoid, o.* FROM @extschema@.outbox o;

CREATE FUNCTION outbox_internal.outbox_row_trigger()
RETURNS trigger
AS 'MODULE_PATHNAME', 'outbox_row_trigger'
LANGUAGE C;

COMMENT ON FUNCTION outbox_internal.outbox_row_trigger() IS
'Checks a message that is inserted or changed, and arranges for the relay to be woken at commit.';

CREATE FUNCTION outbox_internal.outbox_change_trigger()
RETURNS trigger
AS 'MODULE_PATHNAME', 'outbox_change_trigger'
LANGUAGE C;

COMMENT ON FUNCTION outbox_internal.outbox_change_trigger() IS
'Tells the relay at commit that messages were removed, or that a route or the control row has changed.';

CREATE TRIGGER outbox_row
	BEFORE INSERT OR UPDATE ON @extschema@.outbox
	FOR EACH ROW EXECUTE FUNCTION outbox_internal.outbox_row_trigger();
CREATE TRIGGER outbox_removed
	AFTER DELETE OR TRUNCATE ON @extschema@.outbox
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_internal.outbox_change_trigger();

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

--
-- Archive of published messages
--

CREATE TABLE @extschema@.outbox_archive (
	seq bigint NOT NULL,
	id uuid NOT NULL,
	route text NOT NULL,
	event_type text NOT NULL,
	aggregate_type text,
	aggregate_id text,
	payload jsonb,
	body bytea,
	headers jsonb,
	properties jsonb,
	routing_key text,
	created_at timestamptz NOT NULL,
	available_at timestamptz,
	attempts integer NOT NULL,
	published_at timestamptz NOT NULL
) PARTITION BY RANGE (published_at);

/*
 * What comes from the table outbox is compressed already if it can be, and stays
 * so; to try it again with a body that cannot costs six times what all else of
 * settling it does (measured: 13 ms per MB).
 */
ALTER TABLE @extschema@.outbox_archive
	ALTER payload SET STORAGE EXTERNAL,
	ALTER body SET STORAGE EXTERNAL,
	ALTER headers SET STORAGE EXTERNAL,
	ALTER properties SET STORAGE EXTERNAL;

/* Versions 7 grow with time, so a block range index finds an id for nothing. */
CREATE INDEX outbox_archive_id ON @extschema@.outbox_archive
	USING brin (id) WITH (pages_per_range = 16);

/* Only for days whose partition could not be made; normally empty. */
CREATE TABLE outbox_internal.outbox_archive_default PARTITION OF @extschema@.outbox_archive DEFAULT;
/* Rows are deleted from it, which a publication of all tables refuses otherwise. */
ALTER TABLE outbox_internal.outbox_archive_default REPLICA IDENTITY FULL;
/* A whole day may be in it, and is looked for each minute. */
CREATE INDEX outbox_archive_default_published_at ON outbox_internal.outbox_archive_default (published_at);

CREATE VIEW outbox_internal.outbox_archive AS
	SELECT a.ctid, a.tableoid, a.* FROM @extschema@.outbox_archive a;

/* By the names of the tables, without a lock on them. */
CREATE VIEW outbox_internal.outbox_archive_day AS
	SELECT pg_catalog.to_date(pg_catalog."right"(c.relname, 8), 'YYYYMMDD') AS day,
		(pg_catalog.clock_timestamp() AT TIME ZONE 'UTC')::date AS today
	FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
	WHERE i.inhparent = '@extschema@.outbox_archive'::pg_catalog.regclass
		AND c.relname ~ '^outbox_archive_p[0-9]{8}$';

COMMENT ON TABLE @extschema@.outbox_archive IS
'Published messages, append-only, one partition a day (UTC) of published_at; the relay makes partitions ahead and drops them after outbox.retention.';
COMMENT ON TABLE outbox_internal.outbox_archive_default IS
'Published messages of days that had no partition of their own.';

/*
 * Partitions with rows in them, as outbox_archive_maintain() has made them; an
 * administrator's own are his.  A day is one table, or, when routes have a retention
 * of their own, divided by route: a partition for each retention there is, named
 * with its seconds, and one for the rest.
 */
CREATE FUNCTION outbox_internal.outbox_archive_partitions(
	retention interval, OUT partition oid, OUT name text, OUT of_day oid,
	OUT day date, OUT own_retention interval, OUT alone boolean, OUT due boolean)
RETURNS SETOF record
LANGUAGE sql STABLE
BEGIN ATOMIC
	SELECT p.partition, p.name, p.of_day, p.day, p.own_retention, p.alone,
		(p.day + 1)::timestamp AT TIME ZONE 'UTC'
			<= clock_timestamp() - coalesce(p.own_retention, retention)
		/* The rest of a day stays, empty, for as long as another part of it. */
		AND (p.alone OR p.own_retention IS NOT NULL OR pg_relation_size(p.partition) > 0)
	FROM (SELECT coalesce(s.oid, d.oid) AS partition, coalesce(s.relname, d.relname)::text AS name,
			CASE WHEN s.oid IS NOT NULL THEN d.oid END AS of_day,
			to_date("right"(d.relname, 8), 'YYYYMMDD') AS day,
			substring(s.relname FROM '_([0-9]+)_[0-9a-f]{8}$')::bigint * interval '1 second' AS own_retention,
			count(*) OVER (PARTITION BY d.oid) = 1 AS alone,
			coalesce(s.relnamespace, d.relnamespace) = 'outbox_internal'::regnamespace AS ours
		FROM pg_extension e
			JOIN pg_depend x ON x.refclassid = 'pg_extension'::regclass AND x.refobjid = e.oid
				AND x.classid = 'pg_class'::regclass AND x.deptype = 'e'
			JOIN pg_inherits i ON i.inhrelid = x.objid
			JOIN pg_class d ON d.oid = i.inhrelid
			LEFT JOIN (pg_inherits j JOIN pg_class s ON s.oid = j.inhrelid)
				ON j.inhparent = d.oid
		WHERE e.extname = 'outbox' AND d.relname ~ '^outbox_archive_p[0-9]{8}$'
			AND d.relnamespace = 'outbox_internal'::regnamespace
			AND i.inhparent = '@extschema@.outbox_archive'::regclass) p
	WHERE p.ours;
END;

COMMENT ON FUNCTION outbox_internal.outbox_archive_partitions(interval) IS
'Partitions of outbox_archive that the relay has made: its oid and name, the table of its day if that is divided by route, the day (UTC), the retention of its routes if it is not the given one (outbox.retention), whether it is the only one of its day, and whether it is due to be dropped.';

/* How a day that is made now is divided; no rows: not at all. */
CREATE FUNCTION outbox_internal.outbox_archive_division(
	OUT suffix text, OUT bound text, OUT routes text)
RETURNS SETOF record
LANGUAGE sql STABLE
BEGIN ATOMIC
	WITH own AS (
		SELECT ceil(extract(epoch FROM r.retention))::bigint AS seconds,
			string_agg(format('%L', r.name), ', ' ORDER BY r.name COLLATE "C") AS names
		FROM @extschema@.outbox_route r
		WHERE r.retention > interval '0'
		GROUP BY 1)
	SELECT format('_%s_%s', o.seconds,
			lpad(to_hex(hashtextextended(o.names, 0) & 4294967295), 8, '0')),
		format('FOR VALUES IN (%s)', o.names),
		format('of routes kept for %s', justify_hours(o.seconds * interval '1 second'))
	FROM own o
	UNION ALL
	SELECT '_rest', 'DEFAULT', 'of all other routes'
	WHERE EXISTS (SELECT FROM own);
END;

COMMENT ON FUNCTION outbox_internal.outbox_archive_division() IS
'How a partition of outbox_archive is divided that is made now: ends of names, bounds and routes of its partitions, one for each retention that routes have, and one for the rest. No rows: it is not divided.';

/*
 * A table like the archive, and a member of the extension, so that pg_dump takes
 * it for a part of the extension.  LIKE the default partition, whose name is ours,
 * but for its index; ATTACH PARTITION makes those of the archive.  Neither knows
 * anything of tablespaces: the caller sets default_tablespace.
 */
CREATE FUNCTION outbox_internal.outbox_archive_create(
	name text, divided boolean, about text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	EXECUTE format('CREATE TABLE outbox_internal.%I (LIKE outbox_internal.outbox_archive_default INCLUDING ALL EXCLUDING INDEXES) %s',
		name, CASE WHEN divided THEN 'PARTITION BY LIST (route)' END);
	/* As the default partition: outbox_erase() deletes. */
	EXECUTE format('ALTER TABLE outbox_internal.%I REPLICA IDENTITY FULL', name);
	PERFORM outbox_internal.outbox_revoke_all('pg_class'::regclass,
		format('outbox_internal.%I', name)::regclass::oid);
	EXECUTE format('COMMENT ON TABLE outbox_internal.%I IS %L', name, about);
	EXECUTE format('ALTER EXTENSION outbox ADD TABLE outbox_internal.%I', name);
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_archive_create(text, boolean, text) IS
'Makes a table like outbox_archive, a member of the extension with that comment, to be attached as partition; divided: partitioned by route itself.';

/*
 * The caller has locked it, and what it is a part of.  The commit of a drop waits
 * until the file system has taken all files back, so a large one only leaves the
 * archive here, and is cut down after that; see outbox_archive_shrink().  What depends on
 * it is an error each time, before anything is lost.
 */
CREATE FUNCTION outbox_internal.outbox_archive_remove(partition oid, parent oid)
RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	large constant boolean := pg_total_relation_size(partition) > 16777216;
BEGIN
	BEGIN
		EXECUTE format('ALTER EXTENSION outbox DROP TABLE %s', partition::regclass);
		EXECUTE format('DROP TABLE %s', partition::regclass);
		IF large THEN
			RAISE SQLSTATE 'OX001';
		END IF;
		RETURN 'dropped';
	EXCEPTION WHEN SQLSTATE 'OX001' THEN
		NULL;
	END;
	IF parent IS NULL THEN
		PERFORM outbox_internal.outbox_archive_shrink(partition::regclass,
			16777216 / current_setting('block_size')::integer);
		RETURN 'shrunk';
	END IF;
	PERFORM outbox_internal.outbox_alter_table(parent,
		format('DETACH PARTITION %s', partition::regclass));
	/* A vacuum would stumble over what is cut off. */
	EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off, toast.autovacuum_enabled = off)',
		partition::regclass);
	EXECUTE format('ALTER TABLE %s RENAME TO %I', partition::regclass, 'outbox_archive_dropping_' || partition);
	RETURN 'detached';
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_archive_remove(oid, oid) IS
'Drops a partition of outbox_archive, or, when it has more than 16 MB, detaches it from its parent and renames it; with parent NULL cuts 16 MB off one that was detached. An error if anything depends on it (2BP01). Returns which.';

CREATE FUNCTION outbox_internal.outbox_archive_shrink(partition regclass, blocks integer)
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_archive_shrink'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

COMMENT ON FUNCTION outbox_internal.outbox_archive_shrink(regclass, integer) IS
'Cuts so many blocks off a detached partition that is about to be dropped (outbox_archive_dropping_...); any other table, and one that this transaction has detached or renamed, is an error (55000), one that somebody has locked is 55P03, and blocks below 1 are 22023. No rollback brings them back. Returns whether nothing is left.';

CREATE FUNCTION outbox_internal.outbox_archive_make_day(day date)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	part text := 'outbox_archive_p' || to_char(day, 'YYYYMMDD');
	about text := 'Messages published on ' || to_char(day, 'YYYY-MM-DD') || ' (UTC)';
	suffixes text[];
	bounds text[];
	routes text[];
	piece record;
BEGIN
	/* Once: somebody may give a route another retention meanwhile. */
	SELECT array_agg(d.suffix), array_agg(d.bound), array_agg(d.routes)
	INTO suffixes, bounds, routes
	FROM outbox_internal.outbox_archive_division() d;
	PERFORM outbox_internal.outbox_archive_create(part, suffixes IS NOT NULL, about || '.');
	FOR piece IN SELECT * FROM unnest(suffixes, bounds, routes) AS p(suffix, bound, routes) LOOP
		PERFORM outbox_internal.outbox_archive_create(part || piece.suffix, false,
			about || ' ' || piece.routes || '.');
		EXECUTE format('ALTER TABLE outbox_internal.%I ATTACH PARTITION outbox_internal.%I %s',
			part, part || piece.suffix, piece.bound);
	END LOOP;
	/* Made apart, because CREATE TABLE ... PARTITION OF locks readers out. */
	PERFORM outbox_internal.outbox_alter_table(outbox_internal.outbox_relation('outbox_archive'),
		format('ATTACH PARTITION outbox_internal.%I FOR VALUES FROM (%L) TO (%L)', part,
			to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00', to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00'));
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_archive_make_day(date) IS
'Makes the partition of outbox_archive for a day (UTC).';

/* Removes a partition that is due, and what becomes empty with it. */
CREATE FUNCTION outbox_internal.outbox_archive_drop_due(
	partition oid, name text, of_day oid, alone boolean, own_retention interval)
RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	archive constant oid := outbox_internal.outbox_relation('outbox_archive');
	done text;
BEGIN
	IF alone THEN
		/* DROP TABLE of a partition locks these three. */
		PERFORM outbox_internal.outbox_lock_table(archive, 'AccessExclusiveLock', false);
		LOCK TABLE ONLY outbox_internal.outbox_archive_default IN ACCESS EXCLUSIVE MODE NOWAIT;
		EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT',
			coalesce(of_day, partition)::regclass);
		IF of_day IS NULL THEN
			RETURN outbox_internal.outbox_archive_remove(partition, archive) || ' ' || name;
		END IF;
		done := outbox_internal.outbox_archive_remove(partition, of_day);
		name := (SELECT c.relname FROM pg_class c WHERE c.oid = of_day);
		EXECUTE format('ALTER EXTENSION outbox DROP TABLE %s', of_day::regclass);
		EXECUTE format('DROP TABLE %s', of_day::regclass);
		RETURN done || ' ' || name;
	END IF;
	EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', of_day::regclass);
	done := outbox_internal.outbox_archive_remove(partition, of_day);
	/*
	 * A clock that is set back must find a place for what it publishes, so as
	 * long as there is the day there is one for the rest.
	 */
	IF own_retention IS NULL THEN
		PERFORM outbox_internal.outbox_archive_create(name, false, 'Messages of other routes; empty.');
		EXECUTE format('ALTER TABLE %s ATTACH PARTITION outbox_internal.%I DEFAULT', of_day::regclass, name);
	END IF;
	RETURN done || ' ' || name;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_archive_drop_due(oid, text, oid, boolean, interval) IS
'Drops, or detaches, a partition that outbox_archive_partitions() says is due. Waits for nobody''s lock: an error (55P03).';

CREATE FUNCTION outbox_internal.outbox_archive_maintain(retention interval)
RETURNS text
LANGUAGE plpgsql STRICT
SET search_path = pg_catalog, pg_temp
/*
 * It runs in the process that publishes, and whoever waits for such locks holds
 * up all who come after: the tables are locked without waiting, and what else
 * these commands lock (the extension, say) is waited for this long at most.
 */
SET lock_timeout = '10ms'
/* The worker's session has it off, for statements of src/store only. */
SET enable_sort = on SET default_tablespace = ''
AS $$
DECLARE
	archive constant oid := outbox_internal.outbox_relation('outbox_archive');
	today constant date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
	yesterday constant timestamptz := clock_timestamp() - interval '1 day';
	longest constant interval := greatest(retention,
		(SELECT max(r.retention) FROM outbox_internal.outbox_route r));
	shortest constant interval := least(retention,
		(SELECT min(r.retention) FROM outbox_internal.outbox_route r WHERE r.retention > interval '0'));
	wanted constant text[] := ARRAY(SELECT v.suffix FROM outbox_internal.outbox_archive_division() v
		ORDER BY v.suffix COLLATE "C");
	pieces text[];
	part text;
	day date;
	old record;
	there boolean;
	used boolean;
	removed integer;
	dependents text;
	kept text;				/* why a table cannot be dropped */
BEGIN
	PERFORM set_config('default_tablespace', t.spcname, true)
	FROM pg_class c
		JOIN pg_tablespace t ON t.oid = c.reltablespace
		JOIN pg_database d ON d.datname = current_database() AND d.dattablespace <> t.oid
	WHERE c.oid = archive;

	/* Today's partition and those of the next two days, unless kept nowhere. */
	FOR i IN 0..2 LOOP
		EXIT WHEN longest <= interval '0';
		day := today + i;
		part := 'outbox_archive_p' || to_char(day, 'YYYYMMDD');
		there := to_regclass('outbox_internal.' || part) IS NOT NULL;
		IF there THEN
			/* A day that has begun stays as it is, and one that is not ours. */
			CONTINUE WHEN i = 0;
			pieces := (SELECT coalesce(array_agg(substr(p.name, length(part) + 1)
					ORDER BY p.name COLLATE "C") FILTER (WHERE p.of_day IS NOT NULL), '{}')
				FROM outbox_internal.outbox_archive_partitions(retention) p
				WHERE p.day = today + i
				HAVING count(*) > 0);
			CONTINUE WHEN pieces IS NULL OR pieces = wanted;
		END IF;
		/* Rows of that day in the default partition would refuse another. */
		CONTINUE WHEN EXISTS (
			SELECT FROM outbox_internal.outbox_archive_default
			WHERE published_at >= day::timestamp AT TIME ZONE 'UTC'
				AND published_at < (day + 1)::timestamp AT TIME ZONE 'UTC');
		/* What ATTACH PARTITION will lock. */
		PERFORM outbox_internal.outbox_lock_table(archive, 'ShareUpdateExclusiveLock', false);
		LOCK TABLE ONLY outbox_internal.outbox_archive_default IN ACCESS EXCLUSIVE MODE NOWAIT;
		/* Somebody else may have made it in between. */
		CONTINUE WHEN NOT there AND to_regclass('outbox_internal.' || part) IS NOT NULL;
		BEGIN
			IF there THEN
				/* Routes have got another retention since it was made. */
				PERFORM outbox_internal.outbox_lock_table(archive, 'AccessExclusiveLock', false);
				EXECUTE format('LOCK TABLE outbox_internal.%I IN ACCESS EXCLUSIVE MODE NOWAIT', part);
				EXECUTE format('SELECT EXISTS (SELECT FROM outbox_internal.%I)', part) INTO used;
				CONTINUE WHEN used;
				FOR old IN
					SELECT p.name FROM outbox_internal.outbox_archive_partitions(retention) p
					WHERE p.day = today + i AND p.of_day IS NOT NULL
					UNION ALL
					SELECT part
					/* it comes after what it consists of */
					ORDER BY 1 DESC
				LOOP
					EXECUTE format('ALTER EXTENSION outbox DROP TABLE outbox_internal.%I', old.name);
					EXECUTE format('DROP TABLE outbox_internal.%I', old.name);
				END LOOP;
			END IF;
			PERFORM outbox_internal.outbox_archive_make_day(day);
			RETURN CASE WHEN there THEN 'remade ' ELSE 'created ' END || part;
		/* The second: an administrator's partition has that day. */
		EXCEPTION WHEN dependent_objects_still_exist OR invalid_object_definition THEN
			GET STACKED DIAGNOSTICS dependents = PG_EXCEPTION_DETAIL;
			kept := SQLERRM || ': ' || dependents;
		END;
	END LOOP;

	/* The oldest partition whose whole day is out of retention, and on which nothing depends. */
	IF EXISTS (SELECT FROM outbox_internal.outbox_archive_partitions(retention) p WHERE p.due) THEN
		/* One drops at a time, and what somebody else has dropped just now is seen. */
		PERFORM outbox_internal.outbox_lock_table(archive, 'ShareUpdateExclusiveLock', false);
		FOR old IN
			SELECT * FROM outbox_internal.outbox_archive_partitions(retention) p
			WHERE p.due
			ORDER BY p.name COLLATE "C"
		LOOP
			BEGIN
				RETURN outbox_internal.outbox_archive_drop_due(old.partition, old.name::text, old.of_day,
					old.alone, old.own_retention);
			EXCEPTION WHEN dependent_objects_still_exist THEN
				GET STACKED DIAGNOSTICS dependents = PG_EXCEPTION_DETAIL;
				kept := coalesce(kept, SQLERRM || ': ' || dependents);
			END;
		END LOOP;
	END IF;

	/* What has left the archive. */
	FOR old IN
		SELECT c.oid AS partition, c.relname AS name
		FROM pg_class c
			JOIN pg_depend x ON x.classid = 'pg_class'::regclass AND x.objid = c.oid AND x.deptype = 'e'
			JOIN pg_extension e ON x.refclassid = 'pg_extension'::regclass AND x.refobjid = e.oid
		WHERE c.relname ~ '^outbox_archive_dropping_[0-9]+$' AND NOT c.relispartition
			AND c.relnamespace = 'outbox_internal'::regnamespace AND e.extname = 'outbox'
	LOOP
		BEGIN
			EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE NOWAIT', old.partition::regclass);
			RETURN outbox_internal.outbox_archive_remove(old.partition, NULL::oid) || ' ' || old.name;
		EXCEPTION WHEN dependent_objects_still_exist THEN
			GET STACKED DIAGNOSTICS dependents = PG_EXCEPTION_DETAIL;
			kept := coalesce(kept, SQLERRM || ': ' || dependents);
		END;
	END LOOP;

	/* Few at a time, as all of a day may be there. */
	DELETE FROM outbox_internal.outbox_archive_default
	WHERE ctid = ANY (ARRAY(
		SELECT d.ctid FROM outbox_internal.outbox_archive_default d
			LEFT JOIN outbox_internal.outbox_route r ON r.name = d.route AND r.retention > interval '0'
		WHERE d.published_at < yesterday - shortest
			AND d.published_at < yesterday - coalesce(r.retention, outbox_archive_maintain.retention)
		ORDER BY d.published_at
		LIMIT 1000));
	GET DIAGNOSTICS removed = ROW_COUNT;
	/* It would undo the rest: once nothing else is left to do. */
	IF kept IS NOT NULL AND removed = 0 THEN
		RAISE EXCEPTION '%', outbox_internal.outbox_printable(split_part(kept, E'\n', 1)::text)
			USING ERRCODE = 'dependent_objects_still_exist';
	END IF;
	RETURN CASE WHEN removed = 1000 OR kept IS NOT NULL THEN 'deleted from outbox_archive_default' END;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_archive_maintain(interval) IS
'Makes, divides again, drops, detaches or shortens one partition of outbox_archive, as the retention (that of routes without one of their own) asks for, and says which; NULL when there is nothing to do. Waits for nobody''s lock: an error (55P03) says that somebody reads the archive. The relay calls it; the owner of the extension may.';

--
-- Enqueue
--

CREATE FUNCTION @extschema@.outbox_enqueue(
	event_type text, payload jsonb,
	aggregate_type text DEFAULT NULL, aggregate_id text DEFAULT NULL,
	headers jsonb DEFAULT NULL, route text DEFAULT 'default',
	routing_key text DEFAULT NULL, properties jsonb DEFAULT NULL,
	available_at timestamptz DEFAULT NULL, message_id uuid DEFAULT NULL)
RETURNS uuid
AS 'MODULE_PATHNAME', 'outbox_enqueue'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.outbox_enqueue(text, jsonb, text, text, jsonb, text, text, jsonb, timestamptz, uuid) IS
'Enqueues a JSON message in the current transaction and returns its message_id. It is published after commit, and never if the transaction rolls back. Anything that the broker would refuse is an error here that names the argument.';

CREATE FUNCTION @extschema@.outbox_enqueue_bytes(
	event_type text, body bytea,
	aggregate_type text DEFAULT NULL, aggregate_id text DEFAULT NULL,
	headers jsonb DEFAULT NULL, route text DEFAULT 'default',
	routing_key text DEFAULT NULL, properties jsonb DEFAULT NULL,
	available_at timestamptz DEFAULT NULL, message_id uuid DEFAULT NULL,
	content_type text DEFAULT 'application/octet-stream')
RETURNS uuid
AS 'MODULE_PATHNAME', 'outbox_enqueue_bytes'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.outbox_enqueue_bytes(text, bytea, text, text, jsonb, text, text, jsonb, timestamptz, uuid, text) IS
'Enqueues a message with a body of bytes, sent as they are, in the current transaction and returns its message_id. See outbox_enqueue().';

CREATE FUNCTION @extschema@.outbox_enqueue_text(
	event_type text, payload text,
	aggregate_type text DEFAULT NULL, aggregate_id text DEFAULT NULL,
	headers text DEFAULT NULL, route text DEFAULT 'default',
	routing_key text DEFAULT NULL, properties text DEFAULT NULL,
	available_at text DEFAULT NULL, message_id text DEFAULT NULL)
RETURNS uuid
AS 'MODULE_PATHNAME', 'outbox_enqueue_text'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.outbox_enqueue_text(text, text, text, text, text, text, text, text, text, text) IS
'outbox_enqueue() for drivers that bind strings as text: payload, headers and properties are JSON, available_at a time as timestamptz reads it, message_id a UUID. Returns the message_id. What is none of these is an error (22P02, 22007, 22008) that names the argument.';

CREATE FUNCTION @extschema@.outbox_enqueue_batch(messages jsonb)
RETURNS SETOF uuid
AS 'MODULE_PATHNAME', 'outbox_enqueue_batch'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;

COMMENT ON FUNCTION @extschema@.outbox_enqueue_batch(jsonb) IS
'Enqueues messages in the current transaction, all or none, and returns their message_ids in the order of the array. Each element is an object whose keys are the arguments of outbox_enqueue(): event_type, payload, aggregate_type, aggregate_id, headers, route, routing_key, properties, available_at, message_id; or body_base64, with content_type, instead of payload. A null is as good as no key, but as payload. Errors name the element, counted from 0: 22023 no array, no object, unknown key or wrong type, 22004 NULL, and those of outbox_enqueue().';

CREATE FUNCTION outbox_internal.outbox_batch_element(element integer)
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_batch_element'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

COMMENT ON FUNCTION outbox_internal.outbox_batch_element(integer) IS
'Tells outbox_enqueue_batch() which element is stored next; internal.';

/*
 * For mappers (ORMs), which map a table and ask for what they have not set.  It has
 * no rows, so SELECT on it, which RETURNING and ON CONFLICT need, shows nobody a
 * message.  Not security_invoker: its owner's right on the table is what an INSERT
 * needs.
 */
CREATE VIEW @extschema@.outbox_new WITH (security_barrier = true, security_invoker = false) AS
	SELECT o.id, o.route, o.event_type, o.aggregate_type, o.aggregate_id, o.payload, o.body, o.headers, o.properties, o.routing_key, o.created_at, o.available_at
	FROM @extschema@.outbox o
	WHERE false;

COMMENT ON VIEW @extschema@.outbox_new IS
'To INSERT messages into, with just the columns that an application sets: each row becomes one of the table outbox, with its checks, errors and defaults. It shows no rows, so that GRANT INSERT, SELECT on it lets nobody read messages; INSERT ... RETURNING gives what was stored. UPDATE and DELETE are refused (0A000). COPY works with the table only. Errors: those of an INSERT into outbox.';

/*
 * A mapper that saves an object for the second time tries UPDATE ... WHERE id = its
 * id, finds no row here, and INSERTs again.  So that it is told instead of publishing
 * twice, an UPDATE is refused before it has looked for rows.  Triggers of a
 * statement fire on a view only if there is one INSTEAD OF its rows; INSERT, which
 * has none, stays what it was.
 */
CREATE FUNCTION outbox_internal.outbox_new_trigger()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING
		ERRCODE = 'feature_not_supported',
		MESSAGE = format('cannot %s messages through the view "%s"', lower(TG_OP), TG_TABLE_NAME),
		DETAIL = 'A row that is inserted there is a message that will be published, and the view shows none of them.',
		HINT = 'Insert a new object for each message, and do not save it again: that would publish it twice. Operators change messages by outbox_edit() and outbox_discard().';
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_new_trigger() IS
'Refuses UPDATE and DELETE of outbox_new (0A000), also when they would find no row, as always.';

CREATE TRIGGER outbox_new_statement
	BEFORE UPDATE OR DELETE ON @extschema@.outbox_new
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_internal.outbox_new_trigger();
CREATE TRIGGER outbox_new_row
	INSTEAD OF UPDATE OR DELETE ON @extschema@.outbox_new
	FOR EACH ROW EXECUTE FUNCTION outbox_internal.outbox_new_trigger();

--
-- One message for each key within a window
--

/* Rows come and go as those of outbox do. */
CREATE TABLE outbox_internal.outbox_once (
	route text NOT NULL,
	key text NOT NULL,
	id uuid NOT NULL,
	at timestamptz NOT NULL,
	PRIMARY KEY (route, key)
)
WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

CREATE INDEX outbox_once_at ON outbox_internal.outbox_once (at);

COMMENT ON TABLE outbox_internal.outbox_once IS
'Keys of outbox_enqueue_once() and their messages, for outbox.once_window.';

CREATE FUNCTION outbox_internal.outbox_once_maintain(age interval, since timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STRICT
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	old_at constant timestamptz := clock_timestamp() - age;
	last_at timestamptz;
BEGIN
	WITH removed AS (
		DELETE FROM outbox_internal.outbox_once o
		WHERE o.ctid = ANY (ARRAY(
			SELECT old.ctid FROM outbox_internal.outbox_once old
			WHERE old.at >= since AND old.at < old_at
			ORDER BY old.at
			LIMIT 1000
			FOR UPDATE SKIP LOCKED))
		RETURNING o.at)
	SELECT max(r.at) INTO last_at FROM removed r;
	RETURN last_at;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_once_maintain(interval, timestamptz) IS
'Removes rows of outbox_once that are older, at most 1000, from since on, and returns the time of the last one; NULL: there were none. The index keeps removed rows while an old snapshot is open, so reading them again with each call would take long. The relay calls it; the owner of the extension may.';

CREATE FUNCTION @extschema@.outbox_enqueue_once(
	dedupe_key text, event_type text, payload jsonb,
	aggregate_type text DEFAULT NULL, aggregate_id text DEFAULT NULL,
	headers jsonb DEFAULT NULL, route text DEFAULT 'default',
	routing_key text DEFAULT NULL, properties jsonb DEFAULT NULL,
	available_at timestamptz DEFAULT NULL, message_id uuid DEFAULT NULL)
RETURNS uuid
AS 'MODULE_PATHNAME', 'outbox_enqueue_once'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.outbox_enqueue_once(text, text, jsonb, text, text, jsonb, text, text, jsonb, timestamptz, uuid) IS
'outbox_enqueue(), unless a message was enqueued on the route with the same dedupe_key (1 to 255 bytes) within outbox.once_window, published or not: then it returns the message_id of that one and enqueues nothing. Waits for a transaction that has the key and has not ended. Errors: 22004, 22023, 22001 dedupe_key; 40001 under REPEATABLE READ, where that one has committed; those of outbox_enqueue().';

CREATE FUNCTION @extschema@.outbox_wait(message_id uuid, timeout interval DEFAULT '10 seconds')
RETURNS text
AS 'MODULE_PATHNAME', 'outbox_wait'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.outbox_wait(uuid, interval) IS
'Waits until a message that has committed is published or given up: ''published'', ''failed'', ''pending'' when it was neither after timeout (0 to 1 hour), ''unknown'' when there is no such message, no trace of it any more, or it is on a route that the current user may not enqueue to. Errors: 25001 enqueued in this transaction, 22004 NULL, 22023 timeout.';

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
				('view ', 'outboxevent', '{outbox_event_row,outbox_event_statement}'), ('table ', 'outbox', '{outbox_cdc}'),
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
		RETURN QUERY SELECT * FROM outbox_internal.outbox_cdc_problems();
		RETURN QUERY SELECT * FROM outbox_internal.outbox_capture_problems() ORDER BY 1 LIMIT 20;
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


/*
 * For applications that were written for Debezium.  It shows what this transaction has
 * put in through it, by a function that looks into the session's memory: everybody may
 * call that, as functions of a view are checked against the caller, and it tells nobody
 * anything that he has not written himself.
 */
CREATE FUNCTION outbox_internal.outbox_event_rows()
RETURNS SETOF uuid
AS 'MODULE_PATHNAME', 'outbox_event_rows'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 1;

COMMENT ON FUNCTION outbox_internal.outbox_event_rows() IS
'Ids of the messages that the current transaction has inserted into the view outboxevent and not deleted there. Of the last 100000 at most.';

CREATE VIEW @extschema@.outboxevent AS
	SELECT e.id, NULL::text AS aggregatetype, NULL::text AS aggregateid, NULL::text AS type,
		NULL::text AS payload, NULL::timestamptz AS timestamp, NULL::text AS tracingspancontext
	FROM outbox_internal.outbox_event_rows() e(id);

COMMENT ON VIEW @extschema@.outboxevent IS
'To INSERT messages into as into the table that Debezium''s outbox event router reads, also by Debezium''s own clients. Shows the ids of what this transaction has inserted there, so that their DELETE finds it, which removes no message. INSERT, SELECT, UPDATE and DELETE on it let nobody read messages. Errors: 0A000 an UPDATE, unless it sets what this transaction has inserted to the same; those of outbox_enqueue().';

CREATE FUNCTION outbox_internal.outbox_event_trigger()
RETURNS trigger
AS 'MODULE_PATHNAME', 'outbox_event_trigger'
LANGUAGE C;

COMMENT ON FUNCTION outbox_internal.outbox_event_trigger() IS
'Makes a row that is inserted into outboxevent a message, lets a DELETE of it find it, and refuses an UPDATE (0A000) that changes it, or for which this transaction has no row.';

CREATE TRIGGER outbox_event_row
	INSTEAD OF INSERT OR UPDATE OR DELETE ON @extschema@.outboxevent
	FOR EACH ROW EXECUTE FUNCTION outbox_internal.outbox_event_trigger();
CREATE TRIGGER outbox_event_statement
	BEFORE UPDATE ON @extschema@.outboxevent
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_internal.outbox_event_trigger();

/*
 * Change data capture reads the INSERT in the log; the row goes at once.  No WHEN,
 * whose expression the server would read and compile for each statement.
 */
CREATE FUNCTION outbox_internal.outbox_cdc_trigger()
RETURNS trigger
AS 'MODULE_PATHNAME', 'outbox_cdc_trigger'
LANGUAGE C;

COMMENT ON FUNCTION outbox_internal.outbox_cdc_trigger() IS
'Deletes the row of a message whose route has relay = ''cdc'' again: what is read is its INSERT in the write-ahead log.';

CREATE TRIGGER outbox_cdc
	AFTER INSERT ON @extschema@.outbox
	FOR EACH ROW EXECUTE FUNCTION outbox_internal.outbox_cdc_trigger();

CREATE FUNCTION outbox_internal.outbox_remade_slots(
	OUT slot_name text, OUT remade_at timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'outbox_remade_slots'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED ROWS 1;

COMMENT ON FUNCTION outbox_internal.outbox_remade_slots() IS
'Replication slots of routes with relay = ''cdc'' that were dropped and made again since messages were enqueued for them.';

/*
 * Routes with relay = 'cdc'.  Which publication a slot is read with is known to its
 * reader only, so what is found here is what cannot work, and not all that may not.
 */
CREATE FUNCTION outbox_internal.outbox_cdc_problems()
RETURNS SETOF outbox_internal.outbox_problem
LANGUAGE plpgsql ROWS 5
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	names constant text[] := ARRAY(SELECT r.name FROM outbox_internal.outbox_route r WHERE r.relay = 'cdc' ORDER BY r.name);
	/* What could be read of them: slots that are named, or else all of this database. */
	named constant name[] := (SELECT CASE WHEN bool_and(r.slot IS NOT NULL) THEN array_agg(r.slot) END
		FROM outbox_internal.outbox_route r WHERE r.relay = 'cdc');
	behind constant numeric := 1073741824;
	name text;
	sample constant jsonb := jsonb_build_object('outlet', 'cdc', 'status', 'pending', 'attempts', 0);
	schema constant text := outbox_internal.outbox_schema();
	publication record;
	passes boolean;
	carried boolean;
	reached text[] := '{}';
	published constant oid := outbox_internal.outbox_relation('outbox');
	/* Other plug-ins than the server's read without a publication. */
	by_publication constant boolean := NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.database = current_database()
			AND NOT s.temporary AND s.plugin <> 'pgoutput' AND (named IS NULL OR s.slot_name = ANY (named)));
	/*
	 * A reader needs one of them.  Not attnames of pg_publication_tables, for which the server
	 * expects so many rows that it compiles the query.
	 */
	bodies constant int2[] := ARRAY(SELECT a.attnum FROM pg_attribute a WHERE a.attrelid = published AND a.attname IN ('payload', 'body'));
BEGIN
	IF names = '{}' THEN
		RETURN;
	END IF;
	/* Incomplete: it names the table and has no route of this kind whole; a reader of it misses messages. */
	FOR publication IN
		SELECT p.pubname, p.puballtables, p.pubinsert, t.rowfilter, r.prattrs IS NULL OR r.prattrs::int2[] && bodies AS bodies
		FROM pg_publication_tables t JOIN pg_publication p ON p.pubname = t.pubname
			LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = published
		WHERE to_regclass(format('%I.%I', t.schemaname, t.tablename)) = published ORDER BY p.pubname
	LOOP
		carried := false;
		FOREACH name IN ARRAY names LOOP
			EXIT WHEN NOT publication.pubinsert OR NOT publication.bodies;
			CONTINUE WHEN carried AND name = ANY (reached);
			BEGIN
				/* Built-in functions and operators only, as the server sees to. */
				EXECUTE 'SELECT (' || coalesce(publication.rowfilter, 'true') || ')'
					|| ' FROM jsonb_populate_record(NULL::outbox_internal.outbox, $1) outbox'
					INTO passes USING sample || jsonb_build_object('route', name);
			EXCEPTION WHEN OTHERS THEN
				/* By a column that was added: of some messages. */
				passes := NULL;
			END;
			IF passes IS NOT FALSE THEN
				reached := reached || name;
			END IF;
			carried := carried OR passes IS TRUE;
		END LOOP;
		RETURN QUERY
		SELECT 'warning', 'cdc publication incomplete', format('publication "%s"', publication.pubname), NULL::timestamptz,
			CASE WHEN NOT publication.pubinsert THEN 'it does not publish inserts'
				WHEN NOT publication.bodies THEN 'its columns have neither payload nor body'
				ELSE format('its row filter %s does not let all messages of any route with relay = ''cdc'' through', publication.rowfilter) END,
			'A reader of this publication misses messages or their bodies, and what it has passed over is lost to it. Publish inserts, filter by outlet or route only, and leave no column out that it needs.',
			format('SELECT * FROM pg_publication_tables WHERE pubname = %L', publication.pubname)
		WHERE by_publication AND NOT carried AND NOT publication.puballtables;
	END LOOP;

	/* A reader with pgoutput cannot read what was committed before its publication, so that comes first. */
	RETURN QUERY
	SELECT 'critical', 'cdc slot missing', r.subject, NULL::timestamptz,
		format('no logical replication slot of database %s %s, wal_level is %s', quote_ident(current_database()),
			coalesce('is called "' || r.slot || '"', 'is there'), current_setting('wal_level')),
		'Its messages are in the write-ahead log only, which is kept for slots: enqueue is refused until there is one. Create the publication before the slot.',
		CASE WHEN current_setting('wal_level') = 'logical' AND by_publication AND NOT r.names <@ reached
			THEN format('CREATE PUBLICATION outbox_cdc FOR TABLE %s.outbox WHERE (outlet = ''cdc'') WITH (publish = ''insert'')', schema)
			WHEN current_setting('wal_level') = 'logical' THEN format('SELECT pg_create_logical_replication_slot(%L::name, ''pgoutput''::name)', coalesce(r.slot, 'outbox_cdc'))
			ELSE 'ALTER SYSTEM SET wal_level = logical' END
	FROM (SELECT o.slot, array_agg(o.name) AS names, CASE count(*) WHEN 1 THEN 'route "' ELSE 'routes "' END || string_agg(o.name, '", "' ORDER BY o.name) || '"' AS subject
		  FROM outbox_internal.outbox_route o WHERE o.relay = 'cdc' GROUP BY o.slot) r
	WHERE NOT EXISTS (SELECT FROM pg_replication_slots s
		WHERE s.database = current_database() AND NOT s.temporary AND s.wal_status IS DISTINCT FROM 'lost'
			AND s.slot_name = coalesce(r.slot, s.slot_name));

	RETURN QUERY
	SELECT 'critical', 'cdc slot lost', format('replication slot "%s"', s.slot_name), NULL::timestamptz,
		'wal_status lost, ' || pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), s.confirmed_flush_lsn)) || ' behind',
		'The server has removed WAL that it had not read: messages are lost, if it was their reader''s. Drop it, create it again, and see max_slot_wal_keep_size.',
		format('SELECT pg_drop_replication_slot(%L::name)', s.slot_name)
	FROM pg_replication_slots s
	WHERE s.database = current_database() AND NOT s.temporary AND (named IS NULL OR s.slot_name = ANY (named))
		AND s.wal_status = 'lost';

	RETURN QUERY
	SELECT CASE s.wal_status WHEN 'unreserved' THEN 'critical' ELSE 'warning' END,
		CASE WHEN NOT s.active THEN 'cdc slot idle' ELSE 'cdc slot behind' END,
		format('replication slot "%s"', s.slot_name), NULL::timestamptz,
		concat_ws(', ', CASE WHEN s.active THEN 'active' ELSE 'nobody reads it' END, 'wal_status ' || s.wal_status,
			pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), s.confirmed_flush_lsn)) || ' behind',
			pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)) || ' of WAL are kept for it'),
		'Messages wait in the write-ahead log, which grows until they are read: look at the reader. Drop the slot if nobody needs it.',
		format('SELECT * FROM pg_replication_slots WHERE slot_name = %L', s.slot_name)
	FROM pg_replication_slots s
	WHERE s.database = current_database() AND NOT s.temporary AND (named IS NULL OR s.slot_name = ANY (named))
		AND s.wal_status IS DISTINCT FROM 'lost' AND (s.wal_status = 'unreserved' OR NOT s.active
			OR pg_wal_lsn_diff(pg_current_wal_lsn(), s.confirmed_flush_lsn) > behind);

	RETURN QUERY
	SELECT 'critical', 'cdc slot remade', format('replication slot "%s"', s.slot_name), s.remade_at,
		'it was dropped and created again',
		'Its reader misses what it had not read of the slot before: tell those who count on it. Write the route again when that is done.',
		format('UPDATE %s.outbox_route SET slot = slot WHERE slot = %L', schema, s.slot_name)
	FROM outbox_internal.outbox_remade_slots() s;

	IF NOT by_publication THEN
		RETURN;
	END IF;
	RETURN QUERY
	SELECT 'critical', 'cdc publication missing', format('route "%s"', n.name), NULL::timestamptz,
		'no publication has its messages',
		'A slot with pgoutput is read by publications: what none has is passed over, and lost. A slot that is older than its publication must be advanced past it, see doc/cdc.md.',
		format('CREATE PUBLICATION outbox_cdc FOR TABLE %s.outbox WHERE (outlet = ''cdc'') WITH (publish = ''insert'')', schema)
	FROM unnest(names) n(name) WHERE n.name <> ALL (reached);
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_cdc_problems() IS 'Those of outbox_problems that concern routes with relay = ''cdc'': slots and publications.';


CREATE FUNCTION @extschema@.outbox_capture()
RETURNS trigger
AS 'MODULE_PATHNAME', 'outbox_capture'
LANGUAGE C;

COMMENT ON FUNCTION @extschema@.outbox_capture() IS
'Makes messages of the changes of a table: CREATE TRIGGER ... AFTER INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION outbox_capture(''event=order''). Also FOR EACH STATEMENT with transition tables, and for TRUNCATE. Arguments are strings of the form name=value: event (prefix of inserted, updated, deleted, truncated) or event_type; aggregate_type; key (columns; default: the primary key; empty: no order); columns or except (of the payload); payload (row, changed, both or diff); unchanged (skip or emit: an UPDATE that changes nothing of it); unpublishable (refuse or omit: what cannot be published; by default a DELETE omits it); route; routing_key; headers (of op, schema, table, txid). It enqueues with the rights of the table''s owner, who needs EXECUTE on it. Errors: 22023 bad arguments, 42703 a column that is not there, 39P01 fired otherwise, 42501 the owner may not, those of outbox_enqueue().';

CREATE FUNCTION outbox_internal.outbox_check_capture(trigger oid)
RETURNS void
AS 'MODULE_PATHNAME', 'outbox_check_capture'
LANGUAGE C VOLATILE STRICT;

COMMENT ON FUNCTION outbox_internal.outbox_check_capture(oid) IS
'The error that the next row would meet because of this trigger with outbox_capture(); none if there is none, or its table is locked.';

/* Captured tables; those of outbox are locked for reading. */
CREATE FUNCTION outbox_internal.outbox_capture_problems()
RETURNS SETOF outbox_internal.outbox_problem
LANGUAGE plpgsql ROWS 5
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	t record;
	message text;
	advice text;
BEGIN
	FOR t IN
		SELECT g.oid, g.tgenabled IN ('D', 'R') AS off,
			format('trigger %s on table %s', outbox_internal.outbox_printable(quote_ident(g.tgname)),
				outbox_internal.outbox_printable(g.tgrelid::regclass::text)) AS subject,
			CASE WHEN n.printable THEN format('ALTER TABLE %s ENABLE TRIGGER %I', g.tgrelid::regclass, g.tgname)
				ELSE format('SELECT tgrelid::regclass, tgname FROM pg_trigger WHERE oid = %s::oid', g.oid) END AS command,
			CASE WHEN n.printable THEN format('SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = %L::regclass AND tgname = %L', g.tgrelid::regclass, g.tgname)
				ELSE format('SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE oid = %s::oid', g.oid) END AS definition
		FROM pg_trigger g
			JOIN pg_proc p ON p.oid = g.tgfoid AND p.proname = 'outbox_capture'
			JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
				AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
			JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'outbox',
			LATERAL (SELECT concat(g.tgrelid::regclass, g.tgname) AS names) c,
			LATERAL (SELECT c.names = outbox_internal.outbox_printable(c.names::text) AS printable) n
		ORDER BY g.oid
	LOOP
		IF t.off THEN
			RETURN QUERY SELECT 'warning', 'capture broken', t.subject, NULL::timestamptz, 'it is disabled',
				'Changes of the table become no messages, and those of this time never will: enable it, or drop it.', t.command;
			CONTINUE;
		END IF;
		BEGIN
			PERFORM outbox_internal.outbox_check_capture(t.oid);
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, advice = PG_EXCEPTION_HINT;
			RETURN QUERY SELECT 'critical', 'capture broken', t.subject, NULL::timestamptz,
				outbox_internal.outbox_printable(message),
				concat_ws(' ', 'Every statement that fires it fails with this error. Fix what it names, or create the trigger again.',
					nullif(advice, '')), t.definition;
		END;
	END LOOP;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_capture_problems() IS
'Those of outbox_problems that are triggers with outbox_capture() which are disabled or fail.';

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

--
-- External relays: programs that publish the messages of a route themselves
--

CREATE TABLE outbox_internal.outbox_lease (
	/* random, below 2^53 */
	token bigint PRIMARY KEY,
	route text NOT NULL,
	/* what the relay calls itself */
	worker text,
	claimed_by name NOT NULL,
	claimed_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	expires_at timestamptz NOT NULL,
	/* messages that are not acknowledged, in the order of seq */
	ids uuid[] NOT NULL,
	/* hashes of their keys, one for each; NULL: it has none */
	keys bigint[] NOT NULL
)
/* A row for each claim, which goes with its last acknowledgement. */
WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0,
	  autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

COMMENT ON TABLE outbox_internal.outbox_lease IS
'What external relays have claimed and not acknowledged: one row a claim. Whoever has locked the row decides what becomes of the lease. Not dumped: a copy has no relay at work.';

/*
 * Messages that can go now; retries and scheduled messages.  Each INSERT compiles each
 * predicate, and an operator in it costs 3000 instructions.  So failed_at IS NULL stands
 * for status = 'pending', and rows of other outlets are kept out only where they come:
 * change data capture has none that waits for a time.
 */
CREATE INDEX outbox_external ON @extschema@.outbox (route, seq)
	WHERE outlet = 'external' AND failed_at IS NULL AND available_at IS NULL;
CREATE INDEX outbox_external_waiting ON @extschema@.outbox (route, available_at)
	WHERE outlet IS NOT NULL AND failed_at IS NULL AND available_at IS NOT NULL;

/* The candidates of outbox_claim(). */
CREATE VIEW outbox_internal.outbox_external AS
	SELECT o.id, o.seq, o.route, o.available_at,
		outbox_internal.outbox_key_hash(o.route, o.aggregate_type, o.aggregate_id) AS key,
		coalesce(pg_catalog.pg_column_size(o.payload), 0) + coalesce(pg_catalog.octet_length(o.body), 0)
			+ coalesce(pg_catalog.pg_column_size(o.headers), 0) + 200::bigint AS bytes
	FROM @extschema@.outbox o
	WHERE o.outlet = 'external' AND o.status = 'pending' AND o.failed_at IS NULL;

/* Holders of keys, as the index outbox_holder has them. */
CREATE VIEW outbox_internal.outbox_external_holder AS
	SELECT h.seq, h.route, h.status, h.available_at,
		outbox_internal.outbox_key_hash(h.route, h.aggregate_type, h.aggregate_id) AS key
	FROM @extschema@.outbox h
	WHERE h.outlet = 'external' AND h.aggregate_id IS NOT NULL
		AND (h.status = 'failed' OR h.available_at IS NOT NULL AND h.attempts > 0);

CREATE FUNCTION outbox_internal.outbox_is_original(
	system_identifier bigint, database_oid oid, environment text, timeline bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_is_original'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION outbox_internal.outbox_is_original(bigint, oid, text, bigint) IS
'True if that record of outbox_control is of this database, and not of one that this is a copy of.';

CREATE FUNCTION outbox_internal.outbox_render_key(
	template text, event_type text, aggregate_type text, aggregate_id text)
RETURNS text
AS 'MODULE_PATHNAME', 'outbox_render_key'
LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION outbox_internal.outbox_render_key(text, text, text, text) IS
'Routing key of a message by a route''s template.';

/*
 * Changing who publishes a route.  It is locked against enqueue, and then the rows are
 * changed first: nobody claims them from then on, and what was claimed before is told
 * by outbox_claims(), or by a lease.  Who has locked a message may wait for the route:
 * messages are polled for, as outbox_lock_route() polls for a second route.
 */
CREATE FUNCTION outbox_internal.outbox_relay_trigger()
RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
SET lock_timeout = '3s'
AS $$
DECLARE
	/* As the trigger of each row writes it; 'cdc' has no rows. */
	publisher constant text := CASE NEW.relay WHEN 'external' THEN NEW.relay END;
	claimed bigint[];
	referrer text;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	/* Under a snapshot from before it would miss messages and leases. */
	IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
		RAISE EXCEPTION 'relay of route "%" must be changed under READ COMMITTED', NEW.name
			USING ERRCODE = 'active_sql_transaction';
	END IF;
	PERFORM outbox_internal.outbox_lock_route(OLD.name::text);
	IF NEW.relay = 'cdc' THEN
		/* What reads the log has not seen them, and would never see a change of them. */
		IF EXISTS (SELECT FROM outbox_internal.outbox o WHERE o.route = NEW.name) THEN
			RAISE EXCEPTION 'route "%" still has messages', NEW.name
				USING ERRCODE = 'object_in_use',
					DETAIL = 'Change data capture reads what is inserted from now on, and not what is in the table.',
					HINT = 'Let them be published, discard those that have failed, and try again; while enqueue_roles is {} nobody but the owner enqueues.';
		END IF;
		SELECT r.name INTO referrer FROM outbox_internal.outbox_route r
		WHERE r.failed_route = NEW.name ORDER BY r.name LIMIT 1;
		IF FOUND THEN
			RAISE EXCEPTION 'route "%" is the failed_route of route "%"', NEW.name, referrer
				USING ERRCODE = 'invalid_parameter_value',
					DETAIL = 'A message that is given up is changed in the table, and what reads the write-ahead log sees only what is inserted.';
		END IF;
	END IF;
	LOOP
		/*
		 * The trigger of each row writes the same, and tells the workers; where it does
		 * not fire (replicas), or leaves a restored row as it is, this alone does.
		 */
		UPDATE outbox_internal.outbox o SET outlet = publisher
		FROM (SELECT n.id FROM outbox_internal.outbox n
			WHERE n.route = NEW.name AND n.outlet IS DISTINCT FROM publisher
			FOR NO KEY UPDATE SKIP LOCKED) n
		WHERE o.id = n.id;
		EXIT WHEN NOT EXISTS (SELECT FROM outbox_internal.outbox o
			WHERE o.route = NEW.name AND o.outlet IS DISTINCT FROM publisher);
		IF NOT outbox_internal.outbox_poll_route_lock() THEN
			RAISE EXCEPTION 'messages of route "%" are locked', NEW.name
				USING ERRCODE = 'lock_not_available',
					DETAIL = 'Not ended after 3 s: ' || coalesce((
						SELECT string_agg(DISTINCT coalesce('prepared transaction "' || outbox_internal.outbox_printable(p.gid::text) || '"', 'process ' || l.pid, 'transaction ' || x.xid::text), ', ')
						FROM (SELECT o.tableoid, o.ctid FROM outbox_internal.outbox o
								WHERE o.route = NEW.name AND o.outlet IS DISTINCT FROM publisher LIMIT 10000) o,
							unnest(outbox_internal.outbox_row_lockers(o.tableoid::regclass, o.ctid)) x(xid)
							LEFT JOIN pg_prepared_xacts p ON p.transaction = x.xid
							LEFT JOIN pg_locks l ON l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock'
								AND l.granted AND l.pid IS NOT NULL AND l.transactionid = x.xid
						WHERE l.pid IS DISTINCT FROM pg_backend_pid()),
						'transactions that have just ended') || '.',
					HINT = 'Commit or roll back the transactions that have locked them, then try again.';
		END IF;
	END LOOP;
	claimed := ARRAY(SELECT c.id_hash FROM outbox_internal.outbox_claims() c);
	IF EXISTS (SELECT FROM outbox_internal.outbox o WHERE o.route = NEW.name
			AND outbox_internal.outbox_claim_hash(o.id::uuid) = ANY (claimed)) THEN
		RAISE EXCEPTION 'messages of route "%" are being published', NEW.name
			USING ERRCODE = 'object_in_use',
				HINT = 'Call outbox_pause() for the route first, and wait until outbox_workers has nothing in flight.';
	END IF;
	DELETE FROM outbox_internal.outbox_lease l
	WHERE l.token IN (SELECT e.token FROM outbox_internal.outbox_lease e
		WHERE e.route = NEW.name AND e.expires_at < clock_timestamp() FOR UPDATE SKIP LOCKED);
	IF EXISTS (SELECT FROM outbox_internal.outbox_lease l WHERE l.route = NEW.name) THEN
		RAISE EXCEPTION 'messages of route "%" are leased to an external relay', NEW.name
			USING ERRCODE = 'object_in_use',
				HINT = 'Stop the relays and let them release what they have, or wait until outbox_leases is empty or has expired.';
	END IF;
	RETURN NULL;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_relay_trigger() IS
'Converts the messages of a route whose relay changes; 55006 while some of them are in flight, and for ''cdc'' while there are any.';

/* By its name after outbox_route_changed, with which the route is read again. */
CREATE TRIGGER outbox_route_relay
	AFTER UPDATE OF relay ON @extschema@.outbox_route
	FOR EACH ROW WHEN (OLD.relay IS DISTINCT FROM NEW.relay)
	EXECUTE FUNCTION outbox_internal.outbox_relay_trigger();
ALTER TABLE @extschema@.outbox_route ENABLE ALWAYS TRIGGER outbox_route_relay;

CREATE FUNCTION outbox_internal.outbox_ids_given(ids uuid[])
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_ids_given'
LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION outbox_internal.outbox_ids_given(uuid[]) IS
'False for the default of an argument ids, which stands for all; NULL and arrays with NULL are errors (22004).';

/*
 * For functions that change messages.  To be asked with the rows locked, as
 * outbox_delete_unclaimed() says; leases of these messages whose time is over end here, so
 * that their late acknowledgement finds nothing.
 */
CREATE FUNCTION outbox_internal.outbox_taken(changed uuid[], OUT id_hash bigint)
RETURNS SETOF bigint
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	/* A claim does not write the rows, so that an older snapshot would go unnoticed. */
	IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
		AND EXISTS (SELECT FROM outbox_internal.outbox_route r WHERE r.relay = 'external') THEN
		RAISE EXCEPTION 'messages must be changed under READ COMMITTED where routes have external relays'
			USING ERRCODE = 'active_sql_transaction',
				DETAIL = 'Under a snapshot from before it would not be seen what is leased.';
	END IF;
	IF changed IS NOT NULL THEN
		DELETE FROM outbox_internal.outbox_lease l
		WHERE l.token IN (SELECT e.token FROM outbox_internal.outbox_lease e
			WHERE e.expires_at < clock_timestamp()
				AND EXISTS (SELECT FROM unnest(e.ids) i(id) WHERE i.id IN (SELECT unnest(changed)))
			FOR UPDATE SKIP LOCKED);
	END IF;
	RETURN QUERY
	SELECT c.id_hash FROM outbox_internal.outbox_claims() c
	UNION ALL
	SELECT outbox_internal.outbox_claim_hash(i.id::uuid)
	FROM outbox_internal.outbox_lease l, unnest(l.ids) i(id)
	WHERE changed IS NOT NULL OR l.expires_at >= clock_timestamp();
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_taken(uuid[]) IS
'Messages that a worker has claimed or an external relay has leased, as outbox_claims() tells them. Leases of the given messages that have expired are ended; NULL: expired leases are only passed over.';

/*
 * A claim locks rows as a worker's does, and writes down what it has in one row of
 * outbox_lease, which commits with the locks: whoever gets a row's lock afterwards
 * and looks at the leases then sees it.  Rows themselves are not written.
 *
 * A message goes only if every earlier one of its key that is there goes with it, or
 * holds nothing.  Of those that were seen and could not be locked it is not known, so
 * they hold.
 *
 * Each statement has a snapshot of its own, which is why it wants READ COMMITTED.
 * Indexes by what they were made for, as the statistics of a queue say nothing.
 * What is read without one costs too much then by the planner's count, and would be
 * compiled, for longer than it takes.  NOT IN, as that makes a hash of what is held.
 */
CREATE FUNCTION outbox_internal.outbox_claim(
	route text, max_messages integer,
	lease interval, worker text)
RETURNS TABLE (
	token bigint, seq bigint, id uuid, event_type text, aggregate_type text, aggregate_id text, payload jsonb, body bytea, headers jsonb, properties jsonb, routing_key text, created_at timestamptz, attempts integer)
LANGUAGE plpgsql VOLATILE ROWS 100
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
	max_bytes constant bigint := 16777216;
	/* The last round reads at least so many: arrays and hashes of skipped keys are bounded. */
	max_look constant integer := 500000;
	its outbox_internal.outbox_route;
	control outbox_internal.outbox_control;
	moment constant timestamptz := clock_timestamp();
	held_ids uuid[];
	held_keys bigint[];
	/* Of skipped messages: their keys, and the ids of those without a key. */
	skipped_ids uuid[] := '{}';
	skipped_keys bigint[] := '{}';
	seen_ids uuid[];
	seen_keys bigint[];
	seen_bytes bigint[];
	locked uuid[];
	new_ids uuid[];
	new_bytes bigint;
	taken_ids uuid[] := '{}';
	taken_keys bigint[];
	taken_bytes bigint := 0;
	wanted integer := max_messages;
	/* Messages to read in this round. */
	look integer := max_messages;
	/* Messages locked so far that cannot go, as an earlier one of the key was skipped. */
	vain bigint := 0;
	/* Messages of this round that it has tried to lock: the first so many. */
	tried integer;
	/* From which status on a message can hold its key here. */
	holding text;
	given bigint;
BEGIN
	IF max_messages IS NULL OR max_messages NOT BETWEEN 1 AND 10000 THEN
		RAISE EXCEPTION 'max_messages must be from 1 to 10000'
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
	IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
		RAISE EXCEPTION 'outbox_claim() must run under READ COMMITTED'
			USING ERRCODE = 'active_sql_transaction',
				DETAIL = 'Under a snapshot from before it would not see what others have claimed meanwhile.';
	END IF;
	SELECT r.* INTO its FROM outbox_internal.outbox_route r WHERE r.name = outbox_claim.route;
	IF its.relay <> 'external' THEN
		RAISE EXCEPTION 'route "%" is %', route, CASE its.relay WHEN 'cdc'
				THEN 'read by change data capture' ELSE 'published by the workers' END
			USING ERRCODE = 'object_not_in_prerequisite_state',
				HINT = 'UPDATE outbox_route SET relay = ''external'' hands it to external relays.';
	END IF;

	holding := CASE its.on_failed WHEN 'block' THEN 'failed' ELSE 'pending' END;
	/* Those whose time is over are everybody's again; their tokens end with them. */
	DELETE FROM outbox_internal.outbox_lease l
	WHERE l.token IN (SELECT e.token FROM outbox_internal.outbox_lease e
		WHERE e.route = outbox_claim.route AND e.expires_at < moment
		FOR UPDATE SKIP LOCKED);

	LOOP
		SELECT coalesce(array_agg(m.id), '{}'), coalesce(array_agg(m.key) FILTER (WHERE m.key IS NOT NULL), '{}')
		INTO held_ids, held_keys
		FROM outbox_internal.outbox_lease l, unnest(l.ids, l.keys) m(id, key)
		WHERE l.route = outbox_claim.route;
		held_ids := held_ids || skipped_ids || taken_ids;
		held_keys := held_keys || skipped_keys;

		/*
		 * Without messages of held keys, which would leave no room for others.  One statement,
		 * so that both branches have one snapshot.  Each branch has the first by seq.
		 * A due message that did not fit has therefore a higher seq than all candidates,
		 * and none of them overtakes it.  Only a key's order needs that all due
		 * messages are read.  They are sorted before they are judged, so that no more
		 * are judged than are needed.
		 */
		WITH due AS MATERIALIZED (
			SELECT w.id
			FROM (
				SELECT d.*
				FROM (
					SELECT o.id, o.seq, o.route, k.key
					FROM outbox_internal.outbox_external o, LATERAL (SELECT CASE WHEN its.ordering <> 'none' THEN o.key END AS key OFFSET 0) k
					WHERE o.route = outbox_claim.route AND o.available_at <= moment
						AND o.id NOT IN (SELECT unnest(held_ids))
						AND (k.key IS NULL OR k.key NOT IN (SELECT unnest(held_keys)))
					ORDER BY o.available_at LIMIT CASE WHEN its.ordering = 'none' THEN look END) d
				ORDER BY d.seq OFFSET 0) w
			WHERE w.key IS NULL OR NOT EXISTS (SELECT FROM outbox_internal.outbox_external_holder h
				WHERE h.key = w.key AND h.status >= holding AND h.seq < w.seq AND h.route = w.route
					AND (h.status = 'failed' OR h.available_at > moment))
			ORDER BY w.seq LIMIT look)
		SELECT coalesce(array_agg(c.id ORDER BY c.seq), '{}'), array_agg(c.key ORDER BY c.seq),
			array_agg(c.bytes ORDER BY c.seq)
		INTO seen_ids, seen_keys, seen_bytes
		FROM (
			SELECT o.id, o.seq, o.key, o.bytes
			FROM (
				(SELECT o.id, o.seq, k.key, o.bytes
				 FROM outbox_internal.outbox_external o, LATERAL (SELECT CASE WHEN its.ordering <> 'none' THEN o.key END AS key OFFSET 0) k
				 WHERE o.route = outbox_claim.route AND o.available_at IS NULL
					AND o.id NOT IN (SELECT unnest(held_ids))
					AND (k.key IS NULL OR k.key NOT IN (SELECT unnest(held_keys))
						AND NOT EXISTS (SELECT FROM outbox_internal.outbox_external_holder h
							WHERE h.key = k.key AND h.status >= holding AND h.seq < o.seq AND h.route = o.route
								AND (h.status = 'failed' OR h.available_at > moment)))
				 ORDER BY o.seq LIMIT look)
				UNION ALL
				(SELECT o.id, o.seq, k.key, o.bytes
				 FROM outbox_internal.outbox_external o, LATERAL (SELECT CASE WHEN its.ordering <> 'none' THEN o.key END AS key OFFSET 0) k
				 WHERE o.id = ANY (ARRAY(SELECT d.id FROM due d)))
			) o
			ORDER BY o.seq LIMIT look) c;
		EXIT WHEN cardinality(seen_ids) = 0;

		/* In the order of seq, and not many more than wanted: other claims skip what is locked. */
		locked := ARRAY(
			SELECT o.id FROM unnest(seen_ids) WITH ORDINALITY s(id, n) JOIN outbox_internal.outbox o ON o.id = s.id
			WHERE o.outlet = 'external' AND o.status = 'pending'
				AND o.route = outbox_claim.route
				AND (o.available_at IS NULL OR o.available_at <= moment)
			ORDER BY s.n LIMIT wanted + vain
			FOR UPDATE OF o SKIP LOCKED);
		tried := CASE WHEN cardinality(locked) < wanted + vain THEN cardinality(seen_ids)
			ELSE array_position(seen_ids, locked[cardinality(locked)]) END;
		/* A claim that has committed since we looked first is seen now. */
		SELECT coalesce(array_agg(m.id), '{}'), coalesce(array_agg(m.key) FILTER (WHERE m.key IS NOT NULL), '{}')
		INTO held_ids, held_keys
		FROM outbox_internal.outbox_lease l, unnest(l.ids, l.keys) m(id, key)
		WHERE l.route = outbox_claim.route;
		WITH seen AS (
			SELECT m.id, m.key, m.bytes, m.n,
				m.id IN (SELECT unnest(locked)) AND m.id NOT IN (SELECT unnest(held_ids))
					AND (m.key IS NULL OR m.key NOT IN (SELECT unnest(held_keys))) AS ours
			FROM unnest(seen_ids, seen_keys, seen_bytes) WITH ORDINALITY m(id, key, bytes, n)
			WHERE m.n <= tried),
		judged AS (
			/* Behind one of its key that is not ours, none is. */
			SELECT s.*, s.ours AND (s.key IS NULL
					OR bool_and(s.ours) OVER (PARTITION BY s.key ORDER BY s.n)) AS goes
			FROM seen s),
		weighed AS (
			SELECT j.*, sum(j.bytes) FILTER (WHERE j.goes) OVER (ORDER BY j.n) - j.bytes AS before,
				count(*) FILTER (WHERE j.goes) OVER (ORDER BY j.n) <= wanted AS room
			FROM judged j)
		SELECT coalesce(array_agg(w.id ORDER BY w.n) FILTER (WHERE w.goes AND w.room AND w.before + taken_bytes < max_bytes), '{}'),
			coalesce(sum(w.bytes) FILTER (WHERE w.goes), 0),
			vain + cardinality(locked) - count(*) FILTER (WHERE w.goes),
			skipped_ids || coalesce(array_agg(w.id) FILTER (WHERE NOT w.goes AND w.key IS NULL), '{}'),
			skipped_keys || coalesce(array_agg(DISTINCT w.key) FILTER (WHERE NOT w.goes AND w.key IS NOT NULL), '{}')
		INTO new_ids, new_bytes, vain, skipped_ids, skipped_keys
		FROM weighed w;
		taken_ids := taken_ids || new_ids;
		taken_bytes := taken_bytes + new_bytes;
		wanted := max_messages - cardinality(taken_ids);
		EXIT WHEN taken_bytes >= max_bytes OR wanted = 0 OR look >= max_look
			OR tried = cardinality(seen_ids) AND tried < look;
		/*
		 * The next round reads from the beginning again: an earlier message of a key may
		 * have been committed meanwhile.  It reads twice as many, so that there are few
		 * rounds, and reading grows with what is locked, and not with its square.
		 */
		look := greatest(1000, 2 * look);
	END LOOP;
	IF cardinality(taken_ids) = 0 THEN
		RETURN;
	END IF;

	/*
	 * As for the workers: nothing goes out of what is paused, switched off or a copy.
	 * This is read after the messages, as it may have committed with them.
	 */
	SELECT c.* INTO control FROM outbox_internal.outbox_control c;
	IF control.paused IS DISTINCT FROM false
		OR (SELECT r.paused FROM outbox_internal.outbox_route r WHERE r.name = outbox_claim.route) IS DISTINCT FROM false
		OR NOT current_setting('outbox.enabled')::boolean
		OR NOT outbox_internal.outbox_is_original(control.system_identifier, control.database_oid,
			control.environment, control.timeline)
		OR EXISTS (SELECT FROM outbox_internal.outbox o
			WHERE o.id = ANY (taken_ids) AND o.origin <> outbox_internal.outbox_origin()
				AND o.origin <> ALL (control.adopted_origins)) THEN
		RETURN;
	END IF;

	/*
	 * In the order of seq, by which a nack takes the later ones of a key along.  With keys also
	 * where they do not count: ordering may change while they are leased.
	 */
	SELECT array_agg(o.id ORDER BY o.seq),
		array_agg(outbox_internal.outbox_key_hash(o.route, o.aggregate_type, o.aggregate_id) ORDER BY o.seq)
	INTO taken_ids, taken_keys
	FROM outbox_internal.outbox o WHERE o.id = ANY (taken_ids);
	/* Random: it must not come again after a restore, and nobody can guess another's. */
	INSERT INTO outbox_internal.outbox_lease (token, route, worker, claimed_by, expires_at, ids, keys)
	VALUES (uuid_hash_extended(gen_random_uuid(), 0) & 9007199254740991, outbox_claim.route,
		outbox_internal.outbox_printable(outbox_claim.worker),
		outbox_internal.outbox_acting_role(),
		clock_timestamp() + lease, taken_ids, taken_keys)
	RETURNING outbox_lease.token INTO given;
	RETURN QUERY
	SELECT given,
		o.seq, o.id, o.event_type, o.aggregate_type, o.aggregate_id, o.payload, o.body, o.headers, o.properties, k.rendered, o.created_at, o.attempts
	FROM outbox_internal.outbox o, LATERAL (SELECT coalesce(o.routing_key,
			outbox_internal.outbox_render_key(its.routing_key, o.event_type, o.aggregate_type, o.aggregate_id))
		AS rendered) k
	WHERE o.id = ANY (taken_ids)
	ORDER BY o.seq;
END
$$;

CREATE FUNCTION @extschema@.outbox_claim(
	route text, max_messages integer DEFAULT 100,
	lease interval DEFAULT '30 seconds', worker text DEFAULT NULL)
RETURNS TABLE (
	token bigint, seq bigint, id uuid, event_type text, aggregate_type text, aggregate_id text, payload jsonb, body bytea, headers jsonb, properties jsonb, routing_key text, created_at timestamptz, attempts integer)
AS 'MODULE_PATHNAME', 'outbox_claim'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;

COMMENT ON FUNCTION @extschema@.outbox_claim(text, integer, interval, text) IS
'For the relay of a route with relay = ''external'': leases up to max_messages (1 to 10000, and about 16 MB) of its messages that can go now for the time of lease (at most a day) and returns them in the order of seq, with one token for all; no rows: there is nothing to do now, or the route, the database or the relay is paused or off, or this is a copy. Messages of one key come in their order, and none while an earlier one of its key is leased, locked, waits for its next attempt, or has failed with on_failed = ''block''. Publish only once the transaction has committed. routing_key is rendered by the route''s template where the message has none. A claim skips locked messages, about a million at most. worker: a name for outbox_leases, its first 511 bytes, ? in place of every byte that is not printable. Errors: 42704 unknown route; 55000 the workers publish it, or change data capture reads it; 42501 not in relay_roles; 22023 max_messages or lease; 25001 not under READ COMMITTED.';

CREATE FUNCTION @extschema@.outbox_ack(token bigint, ids uuid[] DEFAULT array_fill(NULL::uuid, ARRAY[1], ARRAY[0]))
RETURNS integer
AS 'MODULE_PATHNAME', 'outbox_ack'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.outbox_ack(bigint, uuid[]) IS
'Published: moves messages of a lease (without ids all of them) to the archive, or removes them where nothing is kept, and returns how many. Ids that are not in the lease (any more) are ignored. Errors: 55000 the lease is not held any more, so that somebody else publishes its messages; 22004 ids is NULL or contains NULL; 42501 not in relay_roles.';

CREATE FUNCTION @extschema@.outbox_nack(
	token bigint, id uuid, error text, retry_in interval DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'outbox_nack'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.outbox_nack(bigint, uuid, text, interval) IS
'Could not be published: counts an attempt of a message of a lease, with the error as its last_error: its first 511 bytes, ? in place of every byte that is not printable. Returns pending (it is tried again after retry_in, or after a growing time by outbox.retry_initial and outbox.retry_max if that is NULL), failed (after max_attempts of its route), moved (to the failed_route of its route), or NULL if it was discarded meanwhile. It leaves the lease, and so do the later messages of its key. Errors: 55000 the lease is not held any more; P0002 the message is not in it; 22004 error is NULL; 22023 retry_in; 42501 not in relay_roles.';

CREATE FUNCTION @extschema@.outbox_extend(token bigint, lease interval DEFAULT '30 seconds')
RETURNS timestamptz
AS 'MODULE_PATHNAME', 'outbox_extend'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.outbox_extend(bigint, interval) IS
'Lets a lease end so long from now (at most a day), and returns when that is. One that has expired and was not taken over counts again. Errors: 55000 the lease is not held any more; 22023 lease; 42501 not in relay_roles.';

CREATE FUNCTION @extschema@.outbox_release(token bigint, ids uuid[] DEFAULT array_fill(NULL::uuid, ARRAY[1], ARRAY[0]))
RETURNS integer
AS 'MODULE_PATHNAME', 'outbox_release'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.outbox_release(bigint, uuid[]) IS
'Gives messages of a lease (without ids all of them) back unpublished, with the later ones of their keys, at once and without an attempt, as a relay does that is stopped; returns how many. Errors: 55000 the lease is not held any more; 22004 ids is NULL or contains NULL; 42501 not in relay_roles.';

CREATE VIEW @extschema@.outbox_leases AS
	SELECT l.token, l.route, l.worker, l.claimed_by, l.claimed_at, l.expires_at,
		l.expires_at < pg_catalog.clock_timestamp() AS expired,
		pg_catalog.cardinality(l.ids) AS messages
	FROM outbox_internal.outbox_lease l;

COMMENT ON VIEW @extschema@.outbox_leases IS 'What external relays have claimed and not acknowledged, one row a claim.';

CREATE VIEW @extschema@.outbox_messages AS
	SELECT o.seq, o.id, o.route, o.event_type, o.aggregate_type, o.aggregate_id, o.payload, o.body, o.headers, o.properties, o.routing_key, o.created_at, o.available_at, o.attempts,
		o.last_error, o.last_error_reason,
		CASE WHEN c.id_hash IS NOT NULL OR l.id IS NOT NULL THEN 'processing' ELSE o.status END AS status,
		NULL::timestamptz AS published_at, o.failed_at
	FROM @extschema@.outbox o
		LEFT JOIN (SELECT id_hash FROM outbox_internal.outbox_claims() WHERE in_flight) c
			ON c.id_hash = outbox_internal.outbox_claim_hash(o.id)
		LEFT JOIN (SELECT i.id FROM outbox_internal.outbox_lease h, pg_catalog.unnest(h.ids) i(id)
				   WHERE h.expires_at >= pg_catalog.clock_timestamp()) l ON l.id = o.id
	UNION ALL
	SELECT a.seq, a.id, a.route, a.event_type, a.aggregate_type, a.aggregate_id, a.payload, a.body, a.headers, a.properties, a.routing_key, a.created_at, a.available_at, a.attempts,
		NULL, NULL,
		'published', a.published_at, NULL
	FROM @extschema@.outbox_archive a;

COMMENT ON VIEW @extschema@.outbox_messages IS 'Every message that the database still has: live ones, and published ones within outbox.retention.';

/* With a security barrier: else functions of a reader see rows that are left out. */
CREATE VIEW @extschema@.outbox_failed WITH (security_barrier = true) AS
	SELECT seq, id, route, event_type, aggregate_type, aggregate_id, payload, body, headers, properties, routing_key, created_at, attempts,
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

CREATE FUNCTION outbox_internal.outbox_locked_claims(
	OUT worker integer, OUT id uuid, OUT seq bigint, OUT since timestamptz,
	OUT in_flight integer, OUT unsettled integer, OUT waits boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'outbox_locked_claims'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION outbox_internal.outbox_locked_claims() IS
'Rows that each worker of this database has found locked, now or a while ago: up to 8 that it would have taken, and of those in flight that it would have settled one for each transaction that has them, up to 8. in_flight: how many that one stands for, 0 where it is not sent; unsettled: how many of them the worker has; waits: so many that it publishes nothing. See outbox_locked_rows().';

CREATE FUNCTION outbox_internal.outbox_row_lockers(relation regclass, place tid)
RETURNS xid[]
AS 'MODULE_PATHNAME', 'outbox_row_lockers'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION outbox_internal.outbox_row_lockers(regclass, tid) IS
'Transactions that run, or are prepared, and have that row locked or changed; NULL if there is none. For outbox_locked_rows().';

CREATE FUNCTION @extschema@.outbox_locked_rows(
	OUT worker integer, OUT seq bigint, OUT id uuid, OUT route text,
	OUT aggregate_type text, OUT aggregate_id text, OUT since timestamptz,
	OUT pids integer[], OUT prepared text[])
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	RETURN QUERY
	SELECT c.worker, o.seq, o.id, o.route, o.aggregate_type, o.aggregate_id, c.since,
		ARRAY(SELECT l.pid FROM pg_locks l
			WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock'
				AND l.granted AND l.pid IS NOT NULL
				AND l.transactionid = ANY (k.xids)
			ORDER BY l.pid),
		ARRAY(SELECT p.gid FROM pg_prepared_xacts p
			WHERE p.transaction = ANY (k.xids) ORDER BY p.gid)
	FROM outbox_internal.outbox_locked_claims() c
		JOIN outbox_internal.outbox o ON o.id = c.id,
		LATERAL (SELECT outbox_internal.outbox_row_lockers(o.tableoid::regclass, o.ctid) AS xids) k
	WHERE k.xids IS NOT NULL
	ORDER BY c.since, o.seq;
END
$$;

CREATE VIEW outbox_internal.outbox_locked_rows AS
	SELECT l.* FROM @extschema@.outbox_locked_rows() l;

COMMENT ON FUNCTION @extschema@.outbox_locked_rows() IS
'Messages that the relay would take or settle and that somebody has locked or changed, in a transaction that has not ended: since when the worker waits for the row, the processes of those transactions, and the names of the prepared ones among them. Up to 8 rows of each worker that are not sent, and of those in flight one for each such transaction, up to 8; later messages of their keys wait behind them.';

CREATE FUNCTION @extschema@.outbox_table_lockers(
	OUT relation regclass, OUT mode text, OUT granted boolean, OUT pid integer,
	OUT since timestamptz, OUT query_start timestamptz,
	OUT application_name text, OUT blocked_by integer[], OUT prepared text)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
BEGIN ATOMIC
	SELECT outbox_internal.outbox_act_as_owner();
	SELECT l.relation::regclass, l.mode, l.granted, l.pid,
		CASE WHEN l.granted THEN coalesce(a.xact_start, p.prepared) ELSE l.waitstart END,
		a.query_start, a.application_name,
		CASE WHEN NOT l.granted THEN pg_blocking_pids(l.pid) END, p.gid
	FROM (SELECT DISTINCT ON (t.relation, k.virtualtransaction) t.relation, k.mode, k.granted, k.pid, k.waitstart, k.virtualtransaction
			FROM outbox_internal.outbox_tables t,
				LATERAL (SELECT t.relation UNION ALL
					SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = t.relation UNION ALL
					SELECT '@extschema@.outbox_seq_seq'::regclass WHERE t.name = 'outbox') r (oid)
				JOIN pg_locks k ON k.relation = r.oid
			WHERE k.locktype = 'relation'
				AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
				AND (k.mode = 'AccessExclusiveLock' OR t.name NOT IN ('outbox_route', 'outbox_control', 'outbox_job', 'outbox_history')
					AND k.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock'))
				/* Of the archive's days, today's is written to. */
				AND coalesce(substring(t.name FROM '^outbox_archive_(?:p|dropping_)([0-9]+)')
					= to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD'), true)
			ORDER BY t.relation, k.virtualtransaction, k.granted, k.mode) l
		LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		LEFT JOIN (pg_locks x JOIN pg_prepared_xacts p ON p.transaction = x.transactionid)
			ON l.pid IS NULL AND x.locktype = 'transactionid'
			AND x.virtualtransaction = l.virtualtransaction AND x.mode = 'ExclusiveLock'
	/* Not by backend_type, which not every owner may see. */
	WHERE NOT EXISTS (SELECT FROM outbox_internal.outbox_worker_stats() w WHERE w.pid = l.pid)
	ORDER BY 5 NULLS LAST, 1;
END;

CREATE VIEW outbox_internal.outbox_table_lockers AS
	SELECT l.* FROM @extschema@.outbox_table_lockers() l;

COMMENT ON FUNCTION @extschema@.outbox_table_lockers() IS
'Locks on tables of outbox, their indexes and the sequence that enqueue or the relay cannot work beside, and those that are waited for in the same mode, as both queue behind them. One row for a table and a transaction. since: when the transaction began or was prepared, or the wait; pid: NULL of a prepared transaction, whose name is in prepared; blocked_by: the processes that it waits for, if it waits.';

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

--
-- What operators have done
--

CREATE TABLE @extschema@.outbox_history (
	id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT outbox_history_pkey PRIMARY KEY,
	at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	role name NOT NULL,
	action text NOT NULL,
	subject text,
	messages bigint,
	reason text,
	detail jsonb,
	login name NOT NULL DEFAULT session_user
);

CREATE VIEW outbox_internal.outbox_history AS SELECT h.* FROM @extschema@.outbox_history h;

CREATE INDEX outbox_history_at ON @extschema@.outbox_history (at);

COMMENT ON TABLE @extschema@.outbox_history IS
'What operators have done to messages, routes and the relay of this database by the functions of the extension: one row for each call that has changed something, in its transaction. Kept for outbox.history_retention.';

/*
 * For functions that run as the owner of the extension, who is current_user
 * there.  What the session is stays visible: its login, and the role that SET
 * ROLE has given it.
 */
CREATE FUNCTION outbox_internal.outbox_remember(
	action text, subject text, messages bigint, reason text, detail jsonb)
RETURNS void
LANGUAGE sql
BEGIN ATOMIC
	INSERT INTO @extschema@.outbox_history (role, action, subject, messages, reason, detail)
	VALUES (outbox_internal.outbox_acting_role(),
		$1, $2, $3, $4, $5);
END;

COMMENT ON FUNCTION outbox_internal.outbox_remember(text, text, bigint, text, jsonb) IS
'Writes a row of outbox_history, in the name of the session''s role.';

CREATE FUNCTION outbox_internal.outbox_history_maintain(retention interval)
RETURNS bigint
LANGUAGE plpgsql STRICT
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	old_at constant timestamptz := clock_timestamp() - retention;
	removed bigint;
BEGIN
	DELETE FROM outbox_internal.outbox_history h
	WHERE h.id IN (
		SELECT old.id FROM outbox_internal.outbox_history old
		WHERE old.at < old_at
		ORDER BY old.at
		LIMIT 1000
		FOR UPDATE SKIP LOCKED);
	GET DIAGNOSTICS removed = ROW_COUNT;
	RETURN removed;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_history_maintain(interval) IS
'Removes rows of outbox_history that are older than the retention, at most 1000, and returns how many. The relay calls it; the owner of the extension may.';

--
-- Functions for operators.  They run as the owner of the extension, so EXECUTE
-- on them is all that an operator's role needs.
--

CREATE FUNCTION outbox_internal.outbox_requeue_rows(
	locked tid[], subject text, arguments jsonb)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
	requeued bigint;
BEGIN
	UPDATE outbox_internal.outbox o
	SET status = 'pending', attempts = 0, available_at = NULL
	WHERE o.ctid = ANY (locked);
	GET DIAGNOSTICS requeued = ROW_COUNT;
	IF requeued > 0 THEN
		PERFORM outbox_internal.outbox_remember('requeue', subject, requeued, NULL::text, arguments);
	END IF;
	RETURN requeued;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_requeue_rows(tid[], text, jsonb) IS
'Makes the failed messages at these places pending again, which the caller has locked, records that with subject and arguments, and returns how many.';

CREATE FUNCTION @extschema@.outbox_requeue(id uuid)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	place tid;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	/* Locked only if it failed: what is pending is the relay's to lock. */
	SELECT o.ctid INTO place
	FROM outbox_internal.outbox o WHERE o.id = outbox_requeue.id AND o.status = 'failed'
	FOR UPDATE;
	IF NOT FOUND THEN
		PERFORM FROM outbox_internal.outbox o WHERE o.id = outbox_requeue.id;
		IF NOT FOUND THEN
			RAISE EXCEPTION 'message "%" does not exist', outbox_requeue.id
				USING ERRCODE = 'no_data_found',
					DETAIL = 'It was published, discarded, or never enqueued.',
					HINT = 'The view outbox_failed lists the messages that can be requeued.';
		END IF;
		RETURN false;
	END IF;
	RETURN outbox_internal.outbox_requeue_rows(ARRAY[place]::tid[],
		'message "' || outbox_requeue.id || '"', NULL::jsonb) > 0;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_requeue(uuid) IS
'Makes a failed message pending again, with its attempts counted from 0. Returns false when it is pending already; an unknown id is an error (P0002).';

/* Messages can wait for a route that is gone, and be discarded. */
CREATE FUNCTION outbox_internal.outbox_check_route(route text, gone boolean)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF route IS NOT NULL
		AND NOT EXISTS (SELECT FROM outbox_internal.outbox_route r WHERE r.name = outbox_check_route.route)
		AND NOT (gone AND EXISTS (SELECT FROM outbox_internal.outbox o WHERE o.route = outbox_check_route.route)) THEN
		RAISE EXCEPTION 'route "%" does not exist', route
			USING ERRCODE = 'undefined_object',
				HINT = 'The table outbox_route lists the routes.';
	END IF;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_check_route(text, boolean) IS
'An error (42704) for a name that is neither NULL, nor a route, nor, if gone is true, that of a route that is gone and still has messages.';

/*
 * What an external relay or a worker has claimed, by the hash that outbox_taken() tells,
 * is asked again with the rows locked: a claim that is under way commits before we get
 * the lock, and is told from then on; no new one can take the row while we have it.
 */
CREATE FUNCTION outbox_internal.outbox_delete_unclaimed(locked tid[])
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
	claimed bigint[];
	deleted bigint;
BEGIN
	IF locked = '{}' THEN
		RETURN 0;
	END IF;
	claimed := ARRAY(SELECT c.id_hash FROM outbox_internal.outbox_taken(ARRAY(
		SELECT o.id FROM outbox_internal.outbox o WHERE o.ctid = ANY (locked))::uuid[]) c);
	DELETE FROM outbox_internal.outbox o
	WHERE o.ctid = ANY (locked)
		AND outbox_internal.outbox_claim_hash(o.id::uuid) <> ALL (claimed);
	GET DIAGNOSTICS deleted = ROW_COUNT;
	RETURN deleted;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_delete_unclaimed(tid[]) IS
'Deletes the messages at these places, which the caller has locked, but for those that a worker has claimed or an external relay has leased; returns how many.';

/*
 * Functions for many lock the rows by one statement and change them by another,
 * at their places.  The statistics of a queue that was just empty, or of one that
 * was just filled, are wrong, and a join of 100,000 rows by them took minutes
 * (measured); to look for the elements of a known array the server makes a hash.
 */
CREATE FUNCTION outbox_internal.outbox_lock_messages(
	status text, route text, event_type text, aggregate_type text, aggregate_id text,
	last_error_like text, created_before timestamptz, ids uuid[], max_messages integer,
	OUT locked tid[], OUT filter jsonb)
RETURNS record
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
	/* A claimed message is not even locked: its settling would have to wait for us. */
	claimed bigint[] := '{}';
BEGIN
	IF max_messages < 0 THEN
		RAISE EXCEPTION 'max_messages must not be negative'
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
	PERFORM outbox_internal.outbox_check_route(route, true);
	IF status = 'pending' THEN
		claimed := ARRAY(SELECT c.id_hash FROM outbox_internal.outbox_taken(NULL::uuid[]) c);
	END IF;
	locked := ARRAY(
		SELECT o.ctid FROM outbox_internal.outbox o
		WHERE o.status = outbox_lock_messages.status
			AND (outbox_lock_messages.route IS NULL OR o.route = outbox_lock_messages.route)
			AND (outbox_lock_messages.event_type IS NULL
				OR o.event_type = outbox_lock_messages.event_type)
			AND (outbox_lock_messages.aggregate_type IS NULL
				OR o.aggregate_type = outbox_lock_messages.aggregate_type)
			AND (outbox_lock_messages.aggregate_id IS NULL
				OR o.aggregate_id = outbox_lock_messages.aggregate_id)
			AND (last_error_like IS NULL OR o.last_error LIKE last_error_like)
			AND (created_before IS NULL OR o.created_at < created_before)
			AND (ids IS NULL OR o.id = ANY (ids))
			AND outbox_internal.outbox_claim_hash(o.id::uuid) <> ALL (claimed)
		ORDER BY o.seq
		LIMIT max_messages
		FOR UPDATE SKIP LOCKED);
	filter := jsonb_strip_nulls(jsonb_build_object('route', route, 'event_type', event_type,
		'aggregate_type', aggregate_type, 'aggregate_id', aggregate_id,
		'last_error_like', last_error_like, 'created_before', created_before,
		'ids', ids[1:100], 'max_messages', max_messages));
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_lock_messages(text, text, text, text, text, text, timestamptz, uuid[], integer) IS
'Locks the messages of that status that match all other arguments which are not NULL, the oldest first, at most max_messages; returns their places, and the arguments for outbox_history. Messages that a worker is publishing, or another session has locked, are left. Errors: 22023 max_messages, 42704 unknown route.';

CREATE FUNCTION @extschema@.outbox_requeue_ids(ids uuid[])
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	chosen record;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	IF ids IS NULL THEN
		RAISE EXCEPTION 'ids must not be null'
			USING ERRCODE = 'null_value_not_allowed';
	END IF;
	chosen := outbox_internal.outbox_lock_messages('failed'::text, NULL::text,
		NULL::text, NULL::text, NULL::text, NULL::text, NULL::timestamptz, ids, NULL::integer);
	RETURN outbox_internal.outbox_requeue_rows(chosen.locked, NULL::text, chosen.filter);
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_requeue_ids(uuid[]) IS
'Makes those of these messages pending again that have failed, with their attempts counted from 0, and returns how many these were; one that somebody else has locked is left. NULL is an error (22004).';

CREATE FUNCTION @extschema@.outbox_requeue_failed(
	route text DEFAULT NULL, event_type text DEFAULT NULL,
	aggregate_type text DEFAULT NULL, aggregate_id text DEFAULT NULL,
	last_error_like text DEFAULT NULL, created_before timestamptz DEFAULT NULL,
	max_messages integer DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	chosen record;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	chosen := outbox_internal.outbox_lock_messages('failed'::text, route,
		event_type, aggregate_type, aggregate_id, last_error_like, created_before, NULL::uuid[], max_messages);
	RETURN outbox_internal.outbox_requeue_rows(chosen.locked, NULL::text, chosen.filter);
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_requeue_failed(text, text, text, text, text, timestamptz, integer) IS
'Makes the failed messages pending again that match all arguments which are not NULL (last_error_like is a LIKE pattern), the oldest first, at most max_messages. Returns their number; one that somebody else has locked is left. An unknown route is an error (42704).';

/* To be asked with the row locked, as outbox_delete_unclaimed() says. */
CREATE FUNCTION outbox_internal.outbox_check_unclaimed(id uuid)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF EXISTS (SELECT FROM outbox_internal.outbox_taken(ARRAY[outbox_check_unclaimed.id]::uuid[]) c
			WHERE c.id_hash = outbox_internal.outbox_claim_hash(outbox_check_unclaimed.id)) THEN
		RAISE EXCEPTION 'message "%" is being published', outbox_check_unclaimed.id
			USING ERRCODE = 'object_in_use',
				HINT = 'Call outbox_pause() for its route first, or try again later.';
	END IF;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_check_unclaimed(uuid) IS
'An error (55006) while a worker has the message in its memory, or an external relay has leased it.';

CREATE FUNCTION @extschema@.outbox_discard(id uuid)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	PERFORM FROM outbox_internal.outbox o WHERE o.id = outbox_discard.id
	FOR UPDATE;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	PERFORM outbox_internal.outbox_check_unclaimed(outbox_discard.id);
	DELETE FROM outbox_internal.outbox o WHERE o.id = outbox_discard.id;
	PERFORM outbox_internal.outbox_remember('discard', 'message "' || outbox_discard.id || '"',
		1::bigint, NULL::text, NULL::jsonb);
	RETURN true;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_discard(uuid) IS
'Removes a failed or waiting message for good; it is never published. Returns false when there is none with that id; one that a worker or an external relay is publishing is an error (55006).';

CREATE FUNCTION @extschema@.outbox_discard_messages(
	reason text, status text DEFAULT 'failed',
	route text DEFAULT NULL, event_type text DEFAULT NULL,
	aggregate_type text DEFAULT NULL, aggregate_id text DEFAULT NULL,
	last_error_like text DEFAULT NULL, created_before timestamptz DEFAULT NULL,
	ids uuid[] DEFAULT array_fill(NULL::uuid, ARRAY[1], ARRAY[0]), max_messages integer DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	given boolean;
	chosen record;
	discarded bigint;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	given := outbox_internal.outbox_ids_given(ids);
	IF reason IS NULL OR reason = '' THEN
		RAISE EXCEPTION 'reason must not be null or empty'
			USING ERRCODE = 'invalid_parameter_value',
				HINT = 'It is kept in outbox_history.';
	END IF;
	IF status IS NULL OR status <> ALL ('{failed,pending}'::text[]) THEN
		RAISE EXCEPTION 'status must be ''failed'' or ''pending'''
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
	chosen := outbox_internal.outbox_lock_messages(status, route, event_type, aggregate_type,
		aggregate_id, last_error_like, created_before, (CASE WHEN given THEN ids END)::uuid[], max_messages);
	discarded := outbox_internal.outbox_delete_unclaimed(chosen.locked);
	IF discarded > 0 THEN
		PERFORM outbox_internal.outbox_remember('discard', NULL::text, discarded, reason,
			(jsonb_build_object('status', status) || chosen.filter)::jsonb);
	END IF;
	RETURN discarded;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_discard_messages(text, text, text, text, text, text, text, timestamptz, uuid[], integer) IS
'Removes for good the messages of that status (failed, or pending: waiting) that match all other arguments which are not NULL (last_error_like is a LIKE pattern), the oldest first, at most max_messages; they are never published. Returns their number; what a worker is publishing, or somebody else has locked, is left. The reason is kept in outbox_history. Errors: 22023 no reason, or another status; 22004 ids is NULL or contains NULL; 42704 unknown route.';

CREATE FUNCTION @extschema@.outbox_edit(
	id uuid, payload jsonb DEFAULT NULL, body bytea DEFAULT NULL,
	headers jsonb DEFAULT NULL, properties jsonb DEFAULT NULL,
	routing_key text DEFAULT NULL, route text DEFAULT NULL,
	clear text[] DEFAULT NULL, reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	before outbox_internal.outbox;
	after outbox_internal.outbox;
	old jsonb;
	wrong text := (SELECT c.name FROM unnest(clear) c(name)
		WHERE (c.name = ANY ('{headers,properties,routing_key}'::text[])) IS NOT TRUE LIMIT 1);
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	IF payload IS NOT NULL AND body IS NOT NULL THEN
		RAISE EXCEPTION 'payload and body must not both be given'
			USING ERRCODE = 'invalid_parameter_value',
				HINT = 'One of them replaces the other.';
	END IF;
	IF wrong IS NOT NULL OR EXISTS (SELECT FROM unnest(clear) c(name) WHERE c.name IS NULL) THEN
		RAISE EXCEPTION 'clear contains "%", which cannot be cleared', coalesce(wrong, 'NULL')
			USING ERRCODE = 'invalid_parameter_value',
				HINT = 'What can be: headers, properties, routing_key.';
	END IF;
	SELECT * INTO before FROM outbox_internal.outbox o WHERE o.id = outbox_edit.id
	FOR UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'message "%" does not exist', outbox_edit.id
			USING ERRCODE = 'no_data_found',
				DETAIL = 'It was published, discarded, or never enqueued.';
	END IF;
	/* It would go out as the worker has it. */
	PERFORM outbox_internal.outbox_check_unclaimed(outbox_edit.id);
	/*
	 * It becomes a message of this database, as one of another is not checked
	 * again.  So it has to be one that the relay may publish.
	 */
	IF before.origin <> outbox_internal.outbox_origin()
		AND before.origin <> ALL ((SELECT c.adopted_origins FROM outbox_internal.outbox_control c)::bigint[]) THEN
		RAISE EXCEPTION 'message "%" belongs to another database', outbox_edit.id
			USING ERRCODE = 'object_not_in_prerequisite_state',
				HINT = 'Look at what is pending, then call outbox_adopt().';
	END IF;
	UPDATE outbox_internal.outbox o SET
		payload = CASE WHEN outbox_edit.body IS NULL THEN coalesce(outbox_edit.payload, o.payload) END,
		body = CASE WHEN outbox_edit.payload IS NULL THEN coalesce(outbox_edit.body, o.body) END,
		headers = CASE WHEN 'headers' = ANY (clear) THEN NULL
			ELSE coalesce(outbox_edit.headers, o.headers) END,
		properties = CASE WHEN 'properties' = ANY (clear) THEN NULL
			ELSE coalesce(outbox_edit.properties, o.properties) END,
		routing_key = CASE WHEN 'routing_key' = ANY (clear) THEN NULL
			ELSE coalesce(outbox_edit.routing_key, o.routing_key) END,
		route = coalesce(outbox_edit.route, o.route),
		origin = outbox_internal.outbox_origin()
	WHERE o.id = outbox_edit.id
	RETURNING o.* INTO after;
	/* Of what is over 1 MB only size and hash: the history is no archive. */
	SELECT jsonb_object_agg(v.name,
		CASE WHEN octet_length(v.value::text) > 1048576
			THEN jsonb_build_object('bytes', octet_length(v.value::text), 'sha256',
				encode(sha256(convert_to(v.value::text, getdatabaseencoding())), 'hex'))
			ELSE v.value END)
	INTO old
	FROM (VALUES
		('route', to_jsonb(before.route), before.route IS DISTINCT FROM after.route),
		('routing_key', to_jsonb(before.routing_key), before.routing_key IS DISTINCT FROM after.routing_key),
		('payload', before.payload, before.payload IS DISTINCT FROM after.payload),
		('body', CASE WHEN octet_length(before.body) > 700000
				THEN jsonb_build_object('bytes', octet_length(before.body),
					'sha256', encode(sha256(before.body), 'hex'))
				ELSE to_jsonb(encode(before.body, 'base64')) END,
			before.body IS DISTINCT FROM after.body),
		('headers', before.headers, before.headers IS DISTINCT FROM after.headers),
		('properties', before.properties, before.properties IS DISTINCT FROM after.properties)
	) v(name, value, changed)
	WHERE v.changed;
	IF old IS NULL THEN
		RETURN false;
	END IF;
	PERFORM outbox_internal.outbox_remember('edit', 'message "' || outbox_edit.id || '"', 1::bigint, reason,
		jsonb_build_object('aggregate_type', before.aggregate_type,
			'aggregate_id', before.aggregate_id, 'old', old));
	RETURN true;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_edit(uuid, jsonb, bytea, jsonb, jsonb, text, text, text[], text) IS
'Changes a failed or waiting message: what is given replaces what it has (payload a body and the other way round), what clear names (headers, properties, routing_key) is taken away, all else stays, its status too: outbox_requeue() sends a failed one. It is checked as a new message is. The old values are kept in outbox_history. Returns false when nothing is different. Errors: P0002 unknown id; 55006 a worker is publishing it; 55000 it belongs to another database; 22023 payload and body, or something else in clear; those of outbox_enqueue().';

/*
 * What is in the memory of a worker is not waited for: it is out within a moment,
 * or not before somebody resumes its route, and waiting would hold what we have
 * locked.
 */
CREATE FUNCTION @extschema@.outbox_erase(
	aggregate_type text, aggregate_id text, reason text DEFAULT NULL,
	OUT live bigint, OUT archived bigint, OUT history bigint, OUT remaining bigint)
RETURNS record
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
SET lock_timeout = '3s' SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
	claimed bigint[];
	locked tid[];
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	IF aggregate_id IS NULL THEN
		RAISE EXCEPTION 'aggregate_id must not be null'
			USING ERRCODE = 'null_value_not_allowed';
	END IF;
	/* What leaves the live table meanwhile has to be seen in the archive. */
	IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
		RAISE EXCEPTION 'outbox_erase() must run under READ COMMITTED'
			USING ERRCODE = 'active_sql_transaction',
				DETAIL = 'Under a snapshot from before it would miss what is published meanwhile.';
	END IF;
	/*
	 * A chunk of a replay that has read the archive and not committed would put
	 * back what is removed here: wait for it, and let none begin before we commit.
	 */
	PERFORM outbox_internal.outbox_lock_table(outbox_internal.outbox_relation('outbox_job'), 'ExclusiveLock', true);
	claimed := ARRAY(SELECT c.id_hash FROM outbox_internal.outbox_taken(NULL::uuid[]) c);
	locked := ARRAY(
		SELECT o.ctid FROM outbox_internal.outbox o
		WHERE o.aggregate_id = outbox_erase.aggregate_id
			AND o.aggregate_type IS NOT DISTINCT FROM outbox_erase.aggregate_type
			AND outbox_internal.outbox_claim_hash(o.id::uuid) <> ALL (claimed)
		ORDER BY o.seq
		FOR UPDATE);
	live := outbox_internal.outbox_delete_unclaimed(locked);
	/*
	 * Before the archive is looked at, each with a snapshot of its own: what a
	 * worker moves there in between is counted and removed, too, and what it moves
	 * later is counted.  The other way round it would be neither.
	 */
	SELECT count(*) INTO remaining
	FROM outbox_internal.outbox o
	WHERE o.aggregate_id = outbox_erase.aggregate_id
		AND o.aggregate_type IS NOT DISTINCT FROM outbox_erase.aggregate_type;
	DELETE FROM outbox_internal.outbox_archive a
	WHERE a.aggregate_id = outbox_erase.aggregate_id
		AND a.aggregate_type IS NOT DISTINCT FROM outbox_erase.aggregate_type;
	GET DIAGNOSTICS archived = ROW_COUNT;
	/* A filter without aggregate_type was for all of them. */
	UPDATE outbox_internal.outbox_history h
	SET detail = h.detail - '{aggregate_type,aggregate_id,old}'::text[] || '{"erased": true}'::jsonb
	WHERE h.detail->>'aggregate_id' = outbox_erase.aggregate_id
		AND (NOT h.detail ? 'aggregate_type'
			OR h.detail->>'aggregate_type' IS NOT DISTINCT FROM outbox_erase.aggregate_type);
	GET DIAGNOSTICS history = ROW_COUNT;
	/* A job has its list of messages; what it was filed with is only shown. */
	UPDATE outbox_internal.outbox_job j
	SET arguments = j.arguments - '{aggregate_type,aggregate_id}'::text[] || '{"erased": true}'::jsonb
	WHERE j.arguments->>'aggregate_id' = outbox_erase.aggregate_id
		AND (NOT j.arguments ? 'aggregate_type'
			OR j.arguments->>'aggregate_type' IS NOT DISTINCT FROM outbox_erase.aggregate_type);
	/* By the hash: the name of what was erased must not be kept. */
	IF live + archived + history > 0 THEN
		PERFORM outbox_internal.outbox_remember('erase', 'key', live + archived, reason,
			jsonb_build_object(
				/* Of all routes, so of none. */
				'key_hash', outbox_internal.outbox_key_hash('', outbox_erase.aggregate_type, outbox_erase.aggregate_id),
				'live', live, 'archived', archived, 'history', history, 'remaining', remaining));
	END IF;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_erase(text, text, text) IS
'Removes all messages of one aggregate, on all routes and wherever they are: live ones (never published then), archived ones, and what outbox_history and arguments of jobs have kept of them. aggregate_type NULL: of messages without one. Returns how many of each, and how many live ones remain because a worker is publishing them or they were enqueued meanwhile: repeat it until that is 0. It reads the whole archive, and jobs wait until the caller commits; partitions that have left the archive to be dropped (outbox_archive_dropping_...), WAL, backups, standbys and consumers keep what they have. Errors: 22004 aggregate_id NULL; 25001 not under READ COMMITTED; 55P03 after 3 s behind a lock.';

CREATE FUNCTION outbox_internal.outbox_set_paused(route text, value boolean, reason text)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	changed boolean;
	captured text;
BEGIN
	/* Who and when: outbox_pause_trigger().  A pause of what is paused says so again. */
	IF route IS NULL THEN
		UPDATE outbox_internal.outbox_control c
		SET paused = value, paused_by = NULL, paused_at = NULL,
			pause_reason = outbox_set_paused.reason
		WHERE c.paused OR value;
		changed := FOUND;
	ELSE
		UPDATE outbox_internal.outbox_route r
		SET paused = value, paused_by = NULL, paused_at = NULL,
			pause_reason = outbox_set_paused.reason
		WHERE r.name = outbox_set_paused.route AND (r.paused OR value);
		changed := FOUND;
		PERFORM outbox_internal.outbox_check_route(route, false);
	END IF;
	IF changed THEN
		PERFORM outbox_internal.outbox_remember(
			(CASE WHEN value THEN 'pause' ELSE 'resume' END)::text,
			coalesce('route "' || route || '"', 'database'), NULL::bigint, reason, NULL::jsonb);
	END IF;
	IF value AND route IS NULL THEN
		SELECT array_to_string((array_agg(quote_ident(r.name) ORDER BY r.name))[1:3], ', ')
			|| CASE WHEN count(*) > 3 THEN format(' and %s more', count(*) - 3) ELSE '' END
		INTO captured
		FROM outbox_internal.outbox_route r
		WHERE r.relay = 'cdc';
		IF captured IS NOT NULL THEN
			RAISE NOTICE 'change data capture goes on publishing'
				USING DETAIL = format('Routes with relay = ''cdc'': %s.', captured),
					HINT = 'Stop the connector that reads them.';
		END IF;
	END IF;
	RETURN changed;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_set_paused(text, boolean, text) IS
'What outbox_pause() and outbox_resume() share.';

CREATE FUNCTION @extschema@.outbox_pause(route text DEFAULT NULL, reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
BEGIN ATOMIC
	SELECT outbox_internal.outbox_act_as_owner();
	SELECT outbox_internal.outbox_set_paused(route, true, reason);
END;

COMMENT ON FUNCTION @extschema@.outbox_pause(text, text) IS
'Stops publishing on a route, or with NULL in this whole database, from the commit on; what is in flight is still confirmed. Enqueue goes on, and so does change data capture, whose routes a NOTICE names. Who, when and the reason are in the columns beside paused, and in outbox_history. Returns true; an unknown route is an error (42704).';

CREATE FUNCTION @extschema@.outbox_resume(route text DEFAULT NULL, reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
BEGIN ATOMIC
	SELECT outbox_internal.outbox_act_as_owner();
	SELECT outbox_internal.outbox_set_paused(route, false, reason);
END;

COMMENT ON FUNCTION @extschema@.outbox_resume(text, text) IS
'Undoes outbox_pause() with the same route; the reason is kept in outbox_history. Returns false when it was not paused; an unknown route is an error (42704).';

CREATE FUNCTION @extschema@.outbox_adopt()
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	before outbox_internal.outbox_control;
	after outbox_internal.outbox_control;
	highest bigint;
	numbers regclass;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	numbers := outbox_internal.outbox_relation('outbox_seq_seq');
	SELECT * INTO before FROM outbox_internal.outbox_control FOR UPDATE;
	/*
	 * What came by logical replication has the numbers of its publisher, and what
	 * is enqueued from now on comes after it.  Nobody may draw a number meanwhile.
	 */
	SELECT max(o.seq) INTO highest FROM outbox_internal.outbox o;
	IF highest > coalesce(pg_sequence_last_value(numbers), 0) THEN
		PERFORM outbox_internal.outbox_lock_table(outbox_internal.outbox_relation('outbox'), 'ShareRowExclusiveLock', true);
		PERFORM setval(numbers, greatest(highest, pg_sequence_last_value(numbers)));
	END IF;
	/* In any case: that adopted_at changes makes the workers look again. */
	UPDATE outbox_internal.outbox_control c
	SET system_identifier = i.system_identifier, database_oid = i.database_oid,
		environment = i.environment, timeline = i.timeline,
		adopted_at = now(),
		adopted_origins = c.adopted_origins || ARRAY(
			SELECT DISTINCT o.origin FROM outbox_internal.outbox o
			WHERE o.origin <> outbox_internal.outbox_origin()
				AND o.origin <> ALL (c.adopted_origins))
	FROM outbox_internal.outbox_identity() i
	RETURNING c.* INTO after;
	IF (after.system_identifier, after.database_oid, after.adopted_origins,
			after.environment, after.timeline)
		IS NOT DISTINCT FROM
		(before.system_identifier, before.database_oid, before.adopted_origins,
		 before.environment, before.timeline) THEN
		RETURN false;
	END IF;
	PERFORM outbox_internal.outbox_remember('adopt', 'database', NULL::bigint, NULL::text,
		jsonb_build_object(
			'before', to_jsonb(before) - '{singleton,paused,paused_by,paused_at,pause_reason}'::text[],
			'after', to_jsonb(after) - '{singleton,paused,paused_by,paused_at,pause_reason}'::text[]));
	RETURN true;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_adopt() IS
'Lets the relay publish what a copy (restored dump, CREATE DATABASE ... TEMPLATE, server in another environment or restored to a point in time) or a subscriber of logical replication holds: records this database in outbox_control, and in adopted_origins where the messages that are there now come from, and lets seq go on behind theirs. Returns false when all of that was recorded already.';

CREATE FUNCTION outbox_internal.outbox_tell_workers()
RETURNS integer
AS 'MODULE_PATHNAME', 'outbox_worker_restart'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

COMMENT ON FUNCTION outbox_internal.outbox_tell_workers() IS
'What outbox_worker_restart() does, unremembered.';

/*
 * The workers are told at once, whatever becomes of the transaction.  It has to
 * work where nothing can be written, too: in a database that is read-only by
 * default.
 */
CREATE FUNCTION @extschema@.outbox_worker_restart()
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	told integer;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	told := outbox_internal.outbox_tell_workers();
	IF told > 0 AND NOT current_setting('transaction_read_only')::boolean THEN
		PERFORM outbox_internal.outbox_remember('restart workers', 'database', NULL::bigint, NULL::text,
			jsonb_build_object('workers', told));
	END IF;
	RETURN told;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_worker_restart() IS
'Makes the workers of this database settle, leave and start again (new connections, ALTER DATABASE SET read again), at once, not at commit. Returns how many were told.';

--
-- Jobs: what takes the relay more than one transaction
--

CREATE TABLE @extschema@.outbox_job (
	id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT outbox_job_pkey PRIMARY KEY,
	kind text NOT NULL CHECK (kind IN ('replay')),
	state text NOT NULL DEFAULT 'waiting'
		CHECK (state IN ('waiting', 'running', 'done', 'cancelled', 'failed')),
	arguments jsonb NOT NULL,
	created_by name NOT NULL,
	created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	started_at timestamptz,
	ended_at timestamptz,
	total bigint NOT NULL DEFAULT 0,
	done bigint NOT NULL DEFAULT 0,
	skipped bigint NOT NULL DEFAULT 0,
	position bigint NOT NULL GENERATED ALWAYS AS (done + skipped) STORED,
	last_error text,
	last_error_at timestamptz
);

/*
 * What a job has still to do, 1000 messages a row: where they are in the archive,
 * and their seq, by which it is seen that they still are.  Ten bytes a message, and
 * no index of the archive that each published message would have to pay for.
 */
CREATE TABLE outbox_internal.outbox_job_list (
	/* no foreign key, whose check would name the chosen schema when it runs: outbox_replay() deletes */
	job bigint,
	/* how many of the job's messages come before these */
	first bigint,
	/* each one's partition, place there, and seq, by which a moved row is noticed */
	parts oid[] NOT NULL,
	tids tid[] NOT NULL,
	seqs bigint[] NOT NULL,
	/* and the file of the partition: another one has other places */
	files oid[] NOT NULL,
	PRIMARY KEY (job, first)
);

CREATE TRIGGER outbox_job_changed
	AFTER INSERT OR UPDATE ON @extschema@.outbox_job
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_internal.outbox_change_trigger();

COMMENT ON TABLE @extschema@.outbox_job IS
'Jobs that worker 0 of this database runs one after the other, in chunks between which it publishes; filed by outbox_replay(). One that has ended stays for 30 days.';
CREATE VIEW outbox_internal.outbox_job AS SELECT j.* FROM @extschema@.outbox_job j;

COMMENT ON TABLE outbox_internal.outbox_job_list IS
'Internal: the messages that jobs have still to do, by their places in the archive.';

--
-- Replay: published messages once more, out of the archive
--

CREATE FUNCTION @extschema@.outbox_replay(
	published_from timestamptz, published_to timestamptz DEFAULT NULL,
	route text DEFAULT NULL, aggregate_type text DEFAULT NULL,
	aggregate_id text DEFAULT NULL, new_ids boolean DEFAULT false,
	max_messages bigint DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	filed_at timestamptz := clock_timestamp();
	upto timestamptz := coalesce(published_to, filed_at);
	filed bigint;
	what jsonb;
	listed bigint;
	bodiless bigint;
	their_route text;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	IF published_from IS NULL OR new_ids IS NULL THEN
		RAISE EXCEPTION '% must not be null',
			CASE WHEN published_from IS NULL THEN 'published_from' ELSE 'new_ids' END
			USING ERRCODE = 'null_value_not_allowed',
				HINT = CASE WHEN published_from IS NULL
					THEN 'With ''-infinity'' it is all that the archive has.' ELSE 'Give true or false.' END;
	END IF;
	IF upto > filed_at THEN
		RAISE EXCEPTION 'published_to must not be in the future'
			USING ERRCODE = 'invalid_parameter_value',
				DETAIL = 'A replay is of messages that are published when it is filed.',
				HINT = 'Leave it out for all until now.';
	END IF;
	IF published_from >= upto THEN
		RAISE EXCEPTION 'published_from must be before published_to'
			USING ERRCODE = 'invalid_parameter_value',
				DETAIL = format('The time is from %s up to %s, which itself is not in it.',
					published_from, upto);
	END IF;
	IF max_messages <= 0 THEN
		RAISE EXCEPTION 'max_messages must be positive'
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
	PERFORM outbox_internal.outbox_check_route(route, false);

	DELETE FROM outbox_internal.outbox_job j
	WHERE j.ended_at < filed_at - interval '30 days';
	DELETE FROM outbox_internal.outbox_job_list l
	WHERE NOT EXISTS (SELECT FROM outbox_internal.outbox_job j WHERE j.id = l.job);
	INSERT INTO outbox_internal.outbox_job (kind, created_by, created_at, arguments)
	VALUES ('replay', outbox_internal.outbox_acting_role(),
		filed_at, jsonb_strip_nulls(jsonb_build_object(
			'published_from', published_from, 'published_to', upto,
			'route', outbox_replay.route,
			'aggregate_type', outbox_replay.aggregate_type,
			'aggregate_id', outbox_replay.aggregate_id,
			'new_ids', new_ids, 'max_messages', max_messages)))
	RETURNING id, arguments INTO filed, what;

	/*
	 * In the order of enqueue, which published_at is not: a clock may go back, and
	 * a failed message may be published long after the next ones of its key.  To
	 * read the archive once, here, is what lets the relay read it by places only.
	 */
	WITH l AS MATERIALIZED (
		SELECT row_number() OVER (ORDER BY a.seq, a.published_at) - 1 AS n,
			a.tableoid AS part, a.ctid AS tid, a.seq,
			CASE WHEN num_nonnulls(a.payload, a.body) = 0 THEN a.route END AS bodiless_on
		FROM outbox_internal.outbox_archive a
		WHERE a.published_at >= published_from AND a.published_at < upto
			AND (outbox_replay.route IS NULL OR a.route = outbox_replay.route)
			AND (outbox_replay.aggregate_type IS NULL
				OR a.aggregate_type = outbox_replay.aggregate_type)
			AND (outbox_replay.aggregate_id IS NULL
				OR a.aggregate_id = outbox_replay.aggregate_id)
		ORDER BY a.seq, a.published_at
		LIMIT max_messages),
	put AS (
		INSERT INTO outbox_internal.outbox_job_list (job, first, parts, tids, seqs, files)
		SELECT filed, min(l.n), array_agg(l.part ORDER BY l.n),
			array_agg(l.tid ORDER BY l.n), array_agg(l.seq ORDER BY l.n),
			array_agg(pg_relation_filenode(l.part) ORDER BY l.n)
		FROM l
		GROUP BY l.n / 1000)
	SELECT count(*), count(l.bodiless_on), min(l.bodiless_on)
	INTO listed, bodiless, their_route
	FROM l;
	IF bodiless > 0 THEN
		RAISE EXCEPTION 'messages that were archived without their body cannot be replayed'
			USING ERRCODE = 'object_not_in_prerequisite_state',
				DETAIL = format('Without payload and body in the archive: %s of %s selected messages, for example on route "%s". outbox_route.archive was ''metadata'' when they were published.',
					bodiless, listed, their_route),
				HINT = format('Replay another route or another time. SELECT route, min(published_at), max(published_at) FROM %s.outbox_archive WHERE payload IS NULL AND body IS NULL GROUP BY route shows which messages have no body.',
					outbox_internal.outbox_schema());
	END IF;
	UPDATE outbox_internal.outbox_job j
	SET total = listed, state = CASE WHEN listed = 0 THEN 'done' ELSE j.state END,
		ended_at = CASE WHEN listed = 0 THEN clock_timestamp() END
	WHERE j.id = filed;
	PERFORM outbox_internal.outbox_remember('replay', 'job ' || filed, listed, NULL::text, what);
	RETURN filed;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_replay(timestamptz, timestamptz, text, text, text, boolean, bigint) IS
'Files a job that publishes archived messages once more, in the order of their enqueue: those that were published from published_from until before published_to (NULL: until now) and match all other arguments that are not NULL, the oldest max_messages of them. They keep their ids, or with new_ids get new ones. Returns the id of the job: see outbox_job, outbox_progress and outbox_job_cancel(). Reads the archive of that time once. Errors: 22004 and 22023 name the argument, 42704 unknown route, 55000 some of the messages were archived without their body.';

CREATE FUNCTION @extschema@.outbox_job_cancel(id bigint)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	j outbox_internal.outbox_job;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	SELECT * INTO j FROM outbox_internal.outbox_job o
	WHERE o.id = outbox_job_cancel.id FOR UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'job % does not exist', outbox_job_cancel.id
			USING ERRCODE = 'no_data_found',
				HINT = 'The table outbox_job lists the jobs.';
	END IF;
	IF j.state IN ('done', 'cancelled') THEN
		RETURN false;
	END IF;
	DELETE FROM outbox_internal.outbox_job_list l WHERE l.job = j.id;
	UPDATE outbox_internal.outbox_job o SET state = 'cancelled', ended_at = clock_timestamp()
	WHERE o.id = j.id;
	PERFORM outbox_internal.outbox_remember('cancel', 'job ' || j.id, j.done, NULL::text,
		jsonb_build_object('total', j.total, 'skipped', j.skipped));
	RETURN true;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_job_cancel(bigint) IS
'Ends a job that waits, runs or has failed; what it has put into outbox until then is published. Returns false when it was done or cancelled already; an unknown id is an error (P0002).';

CREATE FUNCTION @extschema@.outbox_job_retry(id bigint)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	UPDATE outbox_internal.outbox_job o SET state = 'waiting', ended_at = NULL
	WHERE o.id = outbox_job_retry.id AND o.state = 'failed';
	IF FOUND THEN
		PERFORM outbox_internal.outbox_remember('retry', 'job ' || outbox_job_retry.id,
			NULL::bigint, NULL::text, NULL::jsonb);
		RETURN true;
	END IF;
	PERFORM FROM outbox_internal.outbox_job o WHERE o.id = outbox_job_retry.id;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'job % does not exist', outbox_job_retry.id
			USING ERRCODE = 'no_data_found',
				HINT = 'The table outbox_job lists the jobs.';
	END IF;
	RETURN false;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_job_retry(bigint) IS
'Lets a failed job go on where it was. Returns false when it has not failed; an unknown id is an error (P0002).';

/*
 * Which job is next; the relay runs one at a time, in the order in which they were
 * filed.
 */
CREATE FUNCTION outbox_internal.outbox_job_next()
RETURNS bigint
LANGUAGE sql STABLE
BEGIN ATOMIC
	SELECT min(j.id) FROM @extschema@.outbox_job j WHERE j.state IN ('waiting', 'running');
END;

COMMENT ON FUNCTION outbox_internal.outbox_job_next() IS
'Internal: the job that the relay works at, or NULL.';

CREATE FUNCTION outbox_internal.outbox_may_pass(sqlstate text)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN sqlstate ~ '^(08|25|40|53|55(?!000)|57|58|XX)';

COMMENT ON FUNCTION outbox_internal.outbox_may_pass(text) IS
'True of errors that a later attempt may not meet: they come neither from the message nor from its route. 55000 is none of them: a route lacks its slot.';

CREATE FUNCTION outbox_internal.outbox_job_step(
	max_messages integer, max_bytes bigint, earlier uuid[], tell boolean DEFAULT false,
	OUT outcome text, OUT ids uuid[])
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
/* It runs in the process that publishes: it waits for nobody. */
SET lock_timeout = '10ms'
/* The worker's session has it off, for statements of src/store only. */
SET enable_sort = on
AS $$
DECLARE
	j outbox_internal.outbox_job;
	l outbox_internal.outbox_job_list;
	skip bigint;				/* what of the list's row is done */
	n integer;				/* messages that this chunk has */
	cut bigint;				/* the first that is too much */
	listed bigint;			/* where the list's row ends */
	there bigint;
	missing text;
	rewritten text;
	messages text;
	put text;
	one uuid[];
	problem text;
	waits text;
	/* Behind an error that is older, and as long as it waits. */
	told constant text := '(; )?waits for messages of route ".*$';
BEGIN
	j.id := outbox_internal.outbox_job_next();
	IF j.id IS NULL THEN
		outcome := 'none';
		RETURN;
	END IF;
	/*
	 * Not faster than it is published: of an earlier chunk nearly all has to be.
	 * A tenth may wait, for another attempt, say, and does not hold up the rest.  Neither
	 * do dead letters on a failed_route that is paused: they have an error, which a message
	 * that the job put on that route itself does not have.
	 */
	SELECT CASE WHEN count(*) <= cardinality(earlier) / 10 THEN NULL
		WHEN bool_or(w.paused) THEN format('waits for messages of route "%s", which is paused',
			min(w.route) FILTER (WHERE w.paused))
		ELSE format('waits for messages of route "%s" to be published', min(w.route)) END
	INTO waits
	FROM (SELECT r.name AS route, r.paused FROM unnest(earlier) e(id)
			JOIN outbox_internal.outbox o ON o.id = e.id AND o.status = 'pending'
			JOIN outbox_internal.outbox_route r ON r.name = o.route
		  WHERE NOT r.paused OR o.last_error IS NULL OR NOT EXISTS (
			SELECT FROM outbox_internal.outbox_route f WHERE f.failed_route = r.name)
		  LIMIT cardinality(earlier) / 10 + 1) w;
	IF waits IS NOT NULL THEN
		/* Once: each UPDATE wakes the workers. */
		IF tell AND NOT EXISTS (SELECT FROM outbox_internal.outbox_job o
				WHERE o.id = j.id AND right(o.last_error, length(waits)) = waits) THEN
			UPDATE outbox_internal.outbox_job o SET last_error_at = clock_timestamp(),
				last_error = concat_ws('; ', nullif(regexp_replace(o.last_error, told, ''), ''), waits)
			WHERE o.id = j.id AND o.state IN ('waiting', 'running');
		END IF;
		outcome := 'busy';
		RETURN;
	END IF;
	SELECT * INTO j FROM outbox_internal.outbox_job o
	WHERE o.id = j.id AND o.state IN ('waiting', 'running')
	FOR UPDATE SKIP LOCKED;
	IF NOT FOUND THEN
		outcome := 'locked';
		RETURN;
	END IF;
	SELECT * INTO l FROM outbox_internal.outbox_job_list o
	WHERE o.job = j.id AND o.first <= j.position
	ORDER BY o.first DESC LIMIT 1;
	skip := j.position - l.first;
	IF l.job IS NULL OR skip >= cardinality(l.tids) THEN
		RAISE EXCEPTION 'what job % has still to do is not in outbox_job_list', j.id
			USING ERRCODE = 'data_corrupted';
	END IF;
	n := least(max_messages, cardinality(l.tids) - skip);
	listed := l.first + cardinality(l.tids);
	l.parts := l.parts[skip + 1 : skip + n];
	l.tids := l.tids[skip + 1 : skip + n];
	l.seqs := l.seqs[skip + 1 : skip + n];
	l.files := l.files[skip + 1 : skip + n];

	/* By partition, as a place is one in its partition; it may have been dropped. */
	SELECT string_agg(format(
		'SELECT u.n, a.id, a.created_at,
			a.route, a.event_type, a.aggregate_type, a.aggregate_id, a.payload, a.body, a.headers, a.properties, a.routing_key
		 FROM unnest($1, $2, $3) WITH ORDINALITY u(part, tid, seq, n)
			JOIN %s a ON a.tableoid = u.part AND a.ctid = u.tid AND a.seq = u.seq WHERE u.part = %s',
		/* An administrator's own partition is found through the archive. */
		CASE c.relnamespace WHEN 'outbox_internal'::regnamespace THEN p.part::regclass::text
			ELSE 'outbox_internal.outbox_archive' END, p.part), ' UNION ALL ')
	INTO messages
	FROM (SELECT DISTINCT u.part FROM unnest(l.parts) u(part)) p
		JOIN pg_class c ON c.oid = p.part AND c.relkind = 'r';
	messages := coalesce(messages,
		'SELECT 0::bigint AS n, a.* FROM outbox_internal.outbox_archive a WHERE false');
	EXECUTE format(
		'SELECT min(s.n) FROM (
			SELECT r.n, sum(coalesce(pg_column_size(r.payload), 0)
					+ coalesce(pg_column_size(r.body), 0))
				OVER (ORDER BY r.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS size
			FROM (%s) r) s WHERE s.size >= $4', messages)
	INTO cut USING l.parts, l.tids, l.seqs, max_bytes;
	n := coalesce(cut - 1, n);

	put := format(
		'WITH put AS (
			INSERT INTO outbox_internal.outbox (id,
				route, event_type, aggregate_type, aggregate_id, payload, body, properties, routing_key, headers)
			SELECT CASE WHEN NOT $4 THEN r.id END,
				r.route, r.event_type, r.aggregate_type, r.aggregate_id, r.payload, r.body, r.properties, r.routing_key,
				jsonb_build_object(''x-outbox-replayed-timestamp'',
					floor(extract(epoch FROM r.created_at))::bigint)
				|| CASE WHEN $4 THEN jsonb_build_object(''x-outbox-replayed-from'', r.id)
						ELSE ''{}'' END
				|| CASE WHEN $4 THEN coalesce(r.headers, ''{}''::jsonb) - ''{x-outbox-seq,x-outbox-key-seq}''::text[]
						ELSE coalesce(r.headers, ''{}''::jsonb) END
				|| jsonb_build_object(''x-outbox-replay'', $5)
			FROM (%s) r
			WHERE EXISTS (SELECT FROM outbox_internal.outbox_route t WHERE t.name = r.route)
				AND ($4 OR NOT EXISTS (SELECT FROM outbox_internal.outbox o WHERE o.id = r.id))
			ORDER BY r.n
			RETURNING id, seq)
		SELECT coalesce(array_agg(put.id ORDER BY put.seq DESC), ''{}'') FROM put', messages);
	BEGIN
		EXECUTE put INTO ids
		USING l.parts[1:n], l.tids[1:n], l.seqs[1:n],
			(j.arguments->>'new_ids')::boolean, j.id;
	EXCEPTION WHEN OTHERS THEN
		IF outbox_internal.outbox_may_pass(SQLSTATE) THEN
			RAISE;
		END IF;
		/* One of them is refused: not many one by one, as that takes longer. */
		n := least(n, 50);
		ids := '{}';
		FOR i IN 1 .. n LOOP
			BEGIN
				EXECUTE put INTO one
				USING l.parts[i:i], l.tids[i:i], l.seqs[i:i],
					(j.arguments->>'new_ids')::boolean, j.id;
				ids := one || ids;
			EXCEPTION WHEN OTHERS THEN
				IF outbox_internal.outbox_may_pass(SQLSTATE) THEN
					RAISE;
				END IF;
				problem := format('the message of seq %s was skipped: %s', l.seqs[i], SQLERRM);
			END;
		END LOOP;
	END;

	IF cardinality(ids) < n THEN
		EXECUTE format(
			'SELECT count(*), min(r.route) FILTER (WHERE NOT EXISTS (
				SELECT FROM outbox_internal.outbox_route t WHERE t.name = r.route))
			 FROM (%s) r', messages)
		INTO there, missing USING l.parts[1:n], l.tids[1:n], l.seqs[1:n];
		SELECT min(u.part::regclass::text) INTO rewritten
		FROM unnest(l.parts[1:n], l.files[1:n]) u(part, file)
		WHERE there < n AND pg_relation_filenode(u.part) <> u.file;
		IF rewritten IS NOT NULL THEN
			RAISE EXCEPTION '% was rewritten (VACUUM FULL, CLUSTER, TRUNCATE) after job % was filed: call outbox_job_cancel(%), and outbox_replay() again',
				rewritten, j.id, j.id
				USING ERRCODE = 'object_not_in_prerequisite_state';
		END IF;
		problem := coalesce(problem, format('of %s messages, %s were skipped: %s', n, n - cardinality(ids),
			CASE WHEN missing IS NOT NULL THEN format('route "%s" does not exist', missing)
				WHEN there < n THEN 'they are not in the archive any more'
				ELSE 'their ids are in outbox' END));
	END IF;
	j.last_error := nullif(regexp_replace(j.last_error, told, ''), '');
	UPDATE outbox_internal.outbox_job o SET
		state = CASE WHEN j.position + n < j.total THEN 'running' ELSE 'done' END,
		started_at = coalesce(o.started_at, clock_timestamp()),
		ended_at = CASE WHEN j.position + n >= j.total THEN clock_timestamp() END,
		done = o.done + cardinality(ids),
		skipped = o.skipped + n - cardinality(ids),
		last_error = coalesce(problem, j.last_error),
		last_error_at = CASE WHEN problem IS NOT NULL THEN clock_timestamp()
			WHEN j.last_error IS NOT NULL THEN o.last_error_at END
	WHERE o.id = j.id
	RETURNING * INTO j;
	IF j.position >= listed THEN
		DELETE FROM outbox_internal.outbox_job_list o WHERE o.job = j.id AND o.first = l.first;
	END IF;
	/* In the name of who filed it. */
	IF j.state = 'done' THEN
		INSERT INTO outbox_internal.outbox_history (role, action, subject, messages, detail)
		VALUES (j.created_by, 'replay done', 'job ' || j.id, j.done,
			jsonb_build_object('total', j.total, 'skipped', j.skipped));
	END IF;
	outcome := 'put';
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_job_step(integer, bigint, uuid[], boolean) IS
'Internal, the relay calls it: does the next chunk of the next job, at most so many messages and bytes, and says what came of it: ''put'' with the ids that are in outbox now, the latest first; ''none'': there is no job; ''busy'': too many of the messages in earlier are not published yet, which with tell becomes the job''s last_error; ''locked'': somebody has locked the job.';

CREATE FUNCTION outbox_internal.outbox_job_error(job bigint, error text, final boolean)
RETURNS void
LANGUAGE sql
SET lock_timeout = '10ms'
SET enable_sort = on
BEGIN ATOMIC
	UPDATE @extschema@.outbox_job
	SET last_error = error, last_error_at = clock_timestamp(),
		state = CASE WHEN final THEN 'failed' ELSE state END,
		ended_at = CASE WHEN final THEN clock_timestamp() END
	/* Unless it has ended meanwhile. */
	WHERE id = job AND state IN ('waiting', 'running');
END;

COMMENT ON FUNCTION outbox_internal.outbox_job_error(bigint, text, boolean) IS
'Internal, the relay calls it: notes what stands in the way of a job that waits or runs; final: the job has failed.';

CREATE FUNCTION outbox_internal.outbox_drain(OUT since timestamptz, OUT published bigint)
RETURNS record
AS 'MODULE_PATHNAME', 'outbox_drain'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION outbox_internal.outbox_drain() IS
'Since when workers of this database have published without a pause, and how many messages; NULL and 0 when none does. See the view outbox_progress.';

CREATE VIEW @extschema@.outbox_progress WITH (security_barrier = true) AS
	SELECT p.kind, p.subject, p.state, p.started_at, p.total, p.estimated, p.done,
		round(100.0 * p.done / nullif(p.total, 0), 1)::double precision AS percent,
		round(p.rate::numeric, 1)::double precision AS rate,
		clock_timestamp() + (p.total - p.done) / nullif(p.rate, 0) * interval '1 second'
			AS estimated_end
	FROM (SELECT j.kind, 'job ' || j.id AS subject, j.state, j.started_at, j.total,
			false AS estimated, j.position AS done,
			j.position / nullif(extract(epoch FROM clock_timestamp() - j.started_at), 0)::double precision AS rate
		  FROM @extschema@.outbox_job j
		  WHERE j.state IN ('waiting', 'running')
		  UNION ALL
		  SELECT 'drain', 'backlog', 'running', d.since, d.published + s.backlog,
			s.estimated, d.published, s.rate
		  FROM @extschema@.outbox_status s, outbox_internal.outbox_drain() d
		  WHERE d.since IS NOT NULL AND s.time_to_drain >= interval '5 seconds') p;

COMMENT ON VIEW @extschema@.outbox_progress IS 'What the relay is working off, one row each: jobs that wait or run, and a backlog that takes another 5 s or more.';
--
-- Tables by their OIDs
--

/*
 * For what cannot go through a view: locks, partitions, a sequence, statistics.
 * Bound now, so that the name is not looked up again.
 */
CREATE FUNCTION outbox_internal.outbox_relation(name text)
RETURNS oid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
	SELECT CASE name
		WHEN 'outbox' THEN '@extschema@.outbox'::regclass
		WHEN 'outbox_seq_seq' THEN '@extschema@.outbox_seq_seq'::regclass
		WHEN 'outbox_route' THEN '@extschema@.outbox_route'::regclass
		WHEN 'outbox_control' THEN '@extschema@.outbox_control'::regclass
		WHEN 'outbox_archive' THEN '@extschema@.outbox_archive'::regclass
		WHEN 'outbox_job' THEN '@extschema@.outbox_job'::regclass
		WHEN 'outboxevent' THEN '@extschema@.outboxevent'::regclass
		WHEN 'outbox_new' THEN '@extschema@.outbox_new'::regclass END::oid;
END;

COMMENT ON FUNCTION outbox_internal.outbox_relation(text) IS
'OID of a table or view of the extension, or of the sequence outbox_seq_seq; NULL for other names.';

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
				'outbox_capture',
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

--
-- Nothing for everybody: the administrator grants what each role needs.
--

SELECT outbox_internal.outbox_revoke_all(d.classid::regclass, d.objid)
FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'outbox';

/*
 * Defaults of columns of outbox, the expression of an index, conditions of triggers,
 * the CHECK of outbox_route, and what is behind outboxevent and
 * outbox_messages: whoever may use these must be able to evaluate them.
 */
GRANT EXECUTE ON FUNCTION
	outbox_internal.outbox_origin(),
	outbox_internal.outbox_key_hash(text, text, text),
	outbox_internal.outbox_printable(text),
	outbox_internal.outbox_claim_hash(uuid),
	outbox_internal.outbox_restoring(),
	outbox_internal.outbox_route_allowed(text, text, text, text, integer, text, text, boolean, text, interval, text, text, text, integer, text, jsonb, name),
	outbox_internal.outbox_event_rows(),
	@extschema@.outbox_uuid7()
TO PUBLIC;

/*
 * Those who may monitor the server may see what the relay does.  Functions in a
 * view are checked against the caller, so the view alone would not do.
 */
GRANT SELECT ON @extschema@.outbox_status, @extschema@.outbox_routes_status, @extschema@.outbox_problems, @extschema@.outbox_metrics, @extschema@.outbox_workers, @extschema@.outbox_archive_status, @extschema@.outbox_versions, @extschema@.outbox_progress TO pg_monitor;
GRANT EXECUTE ON FUNCTION
	outbox_internal.outbox_relay_state(),
	outbox_internal.outbox_worker_stats(),
	outbox_internal.outbox_archive_state(),
	outbox_internal.outbox_problem_list(outbox_internal.outbox_route_count[]),
	outbox_internal.outbox_metric_list(),
	outbox_internal.outbox_backlog(),
	outbox_internal.outbox_route_stats(),
	@extschema@.outbox_database_stats(),
	@extschema@.outbox_quantile(double precision, double precision[], double precision[]),
	@extschema@.outbox_reason_hint(text),
	outbox_internal.outbox_reason_hint(text, boolean, text, text),
	@extschema@.outbox_locked_rows(),
	@extschema@.outbox_table_lockers(),
	@extschema@.outbox_version(),
	outbox_internal.outbox_library_versions(),
	outbox_internal.outbox_drain()
TO pg_monitor;
