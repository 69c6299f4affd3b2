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
	@columns table@,
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

