/* outbox--0.9--1.0.sql */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION outbox UPDATE TO '1.0'" to load this file. \quit

/*
 * What outbox--1.0.sql makes and outbox--0.9.sql did not.  Each change of the one
 * is a change of the other, in the same words and in the same order, so that an
 * updated extension is the same as a new one.
 *
 * As in outbox--1.0.sql, the schema is not in the path.
 */
SET LOCAL search_path = pg_catalog, pg_temp;

--
-- A copy of a whole server: its environment, and a recovery to a point in time
--

ALTER TABLE @extschema@.outbox_control
	ADD COLUMN environment text NOT NULL DEFAULT '',
	ADD COLUMN timeline bigint NOT NULL DEFAULT 1;

COMMENT ON COLUMN @extschema@.outbox_control.environment IS
'The setting outbox.environment of the server whose relay may publish the messages of this database. Where it differs, this is a copy in another environment, and its relay stays silent until outbox_adopt() is called.';
COMMENT ON COLUMN @extschema@.outbox_control.timeline IS
'Timeline that the server was on when that was recorded. Where a recovery to a target has ended one since then, the relay stays silent until outbox_adopt() is called.';

CREATE FUNCTION @extschema@.outbox_identity(
	OUT system_identifier bigint, OUT database_oid oid,
	OUT environment text, OUT timeline bigint)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
	SELECT s.system_identifier, d.oid,
		coalesce(current_setting('outbox.environment', true), ''),
		('x' || "left"(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint
	FROM pg_control_system() s, pg_database d
	WHERE d.datname = current_database()
$$;

COMMENT ON FUNCTION @extschema@.outbox_identity() IS
'What tells this database from others and from its copies, as outbox_control records it.';

REVOKE ALL ON FUNCTION @extschema@.outbox_identity() FROM PUBLIC;

/* As if the extension had been created now. */
UPDATE @extschema@.outbox_control c
SET environment = i.environment, timeline = i.timeline
FROM @extschema@.outbox_identity() i;

CREATE OR REPLACE FUNCTION @extschema@.outbox_control_restore_trigger()
RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
	UPDATE @extschema@.outbox_control c SET
		paused = c.paused OR NEW.paused,
		system_identifier = NEW.system_identifier,
		database_oid = NEW.database_oid, adopted_at = NEW.adopted_at,
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

CREATE OR REPLACE FUNCTION @extschema@.outbox_adopt()
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	before @extschema@.outbox_control;
	after @extschema@.outbox_control;
	highest bigint;
BEGIN
	SELECT * INTO before FROM @extschema@.outbox_control FOR UPDATE;
	/*
	 * What came by logical replication has the numbers of its publisher, and what
	 * is enqueued from now on comes after it.  Nobody may draw a number meanwhile.
	 */
	SELECT max(o.seq) INTO highest FROM @extschema@.outbox o;
	IF highest >= (SELECT last_value + is_called::integer FROM @extschema@.outbox_seq_seq) THEN
		LOCK TABLE @extschema@.outbox IN SHARE ROW EXCLUSIVE MODE;
		PERFORM setval('@extschema@.outbox_seq_seq', greatest(highest, s.last_value))
		FROM @extschema@.outbox_seq_seq s;
	END IF;
	/* In any case: that adopted_at changes makes the workers look again. */
	UPDATE @extschema@.outbox_control c
	SET system_identifier = i.system_identifier, database_oid = i.database_oid,
		environment = i.environment, timeline = i.timeline,
		adopted_at = now(),
		adopted_origins = c.adopted_origins || ARRAY(
			SELECT DISTINCT o.origin FROM @extschema@.outbox o
			WHERE o.origin <> @extschema@.outbox_origin()
				AND o.origin <> ALL (c.adopted_origins))
	FROM @extschema@.outbox_identity() i
	RETURNING c.* INTO after;
	RETURN (after.system_identifier, after.database_oid, after.adopted_origins,
			after.environment, after.timeline)
		IS DISTINCT FROM
		(before.system_identifier, before.database_oid, before.adopted_origins,
		 before.environment, before.timeline);
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_adopt() IS
'Lets the relay publish what a copy (restored dump, CREATE DATABASE ... TEMPLATE, server in another environment or restored to a point in time) or a subscriber of logical replication holds: records this database in outbox_control, and in adopted_origins where the messages that are there now come from, and lets seq go on behind theirs. Returns false when all of that was recorded already.';
