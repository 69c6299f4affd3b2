--
-- The relay of this database, and whose database this is
--

CREATE TABLE @extschema@.outbox_control (
	singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
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
COMMENT ON COLUMN @extschema@.outbox_control.singleton IS
'Always true: keeps the table at one row.';
COMMENT ON COLUMN @extschema@.outbox_control.paused IS
'True: the workers of this database publish nothing.';
COMMENT ON COLUMN @extschema@.outbox_control.system_identifier IS
'Server whose relay may publish the messages of this database (pg_control_system()). Where it or database_oid differs, this is a copy, and its relay stays silent until outbox_adopt() is called.';
COMMENT ON COLUMN @extschema@.outbox_control.database_oid IS
'Database whose relay may publish the messages of this database.';
COMMENT ON COLUMN @extschema@.outbox_control.adopted_at IS
'When outbox_adopt() was called last; at first, when the extension was created.';
COMMENT ON COLUMN @extschema@.outbox_control.adopted_origins IS
'Values of outbox.origin that the relay accepts beside that of this database; outbox_adopt() adds those that it finds.';
COMMENT ON COLUMN @extschema@.outbox_control.environment IS
'The setting outbox.environment of the server whose relay may publish the messages of this database. Where it differs, this is a copy in another environment, and its relay stays silent until outbox_adopt() is called.';
COMMENT ON COLUMN @extschema@.outbox_control.timeline IS
'Timeline that the server was on when that was recorded. Where a recovery to a target has ended one since then, the relay stays silent until outbox_adopt() is called.';
COMMENT ON COLUMN @extschema@.outbox_control.paused_by IS
'Who paused it: the role that the session had (SET ROLE), else the one that it logged in as; NULL: not paused.';
COMMENT ON COLUMN @extschema@.outbox_control.paused_at IS
'When that was; NULL: not paused.';
COMMENT ON COLUMN @extschema@.outbox_control.pause_reason IS
'Why, as given to outbox_pause(); NULL: not paused, or none was given.';

CREATE VIEW outbox_internal.outbox_control AS SELECT c.* FROM @extschema@.outbox_control c;

--
-- Routes: where messages go
--

/* One CHECK for all columns of a route, since it says what is allowed where a constraint can only say its name. */
CREATE FUNCTION outbox_internal.outbox_route_allowed(
	name text, exchange text, exchange_type text, routing_key text,
	max_attempts integer, ordering text, on_failed text, paused boolean,
	failed_route text, retention interval, relay text, sequence text,
	max_pending integer, format text, format_options jsonb, slot name)
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_route_allowed'
LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION outbox_internal.outbox_route_allowed(text, text, text, text, integer, text, text, boolean, text, interval, text, text, integer, text, jsonb, name) IS
'True, or an error that names the column of outbox_route and says what is allowed (23514, 22023, 54000, 55000).';

CREATE TABLE @extschema@.outbox_route (
	name text PRIMARY KEY,
	exchange text NOT NULL DEFAULT 'outbox',
	exchange_type text,
	routing_key text NOT NULL DEFAULT '{event_type}',
	max_attempts integer NOT NULL DEFAULT 10,
	ordering text NOT NULL DEFAULT 'key',
	on_failed text NOT NULL DEFAULT 'skip',
	paused boolean NOT NULL DEFAULT false,
	enqueue_roles name[],
	control boolean NOT NULL DEFAULT true REFERENCES @extschema@.outbox_control,
	paused_by name,
	paused_at timestamptz,
	pause_reason text,
	failed_route text,
	retention interval,
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
		paused, failed_route, retention, relay, sequence, max_pending, format,
		format_options, slot))
);

COMMENT ON TABLE @extschema@.outbox_route IS
'Destinations of messages. A message names a route; the route names the exchange and how to publish to it. Changes reach the workers at commit.';
COMMENT ON COLUMN @extschema@.outbox_route.name IS
'What outbox_enqueue() takes as its argument route.';
COMMENT ON COLUMN @extschema@.outbox_route.exchange IS
'RabbitMQ exchange to publish to; the empty string is the broker''s default exchange, whose routing keys are names of queues.';
COMMENT ON COLUMN @extschema@.outbox_route.exchange_type IS
'When set (direct, topic, fanout, headers or x-...), the exchange is declared durable with this type at first use; NULL: it has to exist.';
COMMENT ON COLUMN @extschema@.outbox_route.routing_key IS
'Template of the routing key: {event_type}, {aggregate_type} and {aggregate_id} are replaced (by nothing where the message has none). A message''s own routing_key takes precedence.';
COMMENT ON COLUMN @extschema@.outbox_route.max_attempts IS
'Failed attempts (returned or nacked by the broker) after which a message becomes failed. Outages do not count.';
COMMENT ON COLUMN @extschema@.outbox_route.ordering IS
'''key'': at most one unconfirmed message per (aggregate_type, aggregate_id) of this route, in the order of enqueue; ''none'': no order.';
COMMENT ON COLUMN @extschema@.outbox_route.on_failed IS
'What happens to later messages of a key when one becomes failed: ''skip'' lets them go on, ''block'' holds them until the failed one is requeued or discarded.';
COMMENT ON COLUMN @extschema@.outbox_route.paused IS
'True: nothing is published on this route, the messages wait. See outbox_pause() and outbox_resume().';
COMMENT ON COLUMN @extschema@.outbox_route.control IS
'Always true. Makes a restore load outbox_control, which tells a copy from the original, before the routes.';
COMMENT ON COLUMN @extschema@.outbox_route.enqueue_roles IS
'Roles whose members may enqueue to this route; NULL: everybody who may enqueue at all.';
COMMENT ON COLUMN @extschema@.outbox_route.paused_by IS
'Who paused it: the role that the session had (SET ROLE), else the one that it logged in as; NULL: not paused.';
COMMENT ON COLUMN @extschema@.outbox_route.paused_at IS
'When that was; NULL: not paused.';
COMMENT ON COLUMN @extschema@.outbox_route.pause_reason IS
'Why, as given to outbox_pause(); NULL: not paused, or none was given.';
COMMENT ON COLUMN @extschema@.outbox_route.failed_route IS
'Route on which a message goes on that is given up on this one (a dead letter): by its template, with its attempts counted from 0 and the reason in the header x-outbox-death. NULL: it becomes failed.';
COMMENT ON COLUMN @extschema@.outbox_route.retention IS
'How long published messages of this route stay in outbox_archive, dropped by whole days (UTC); NULL: outbox.retention; 0: they are not archived, at once. Other changes count from tomorrow''s messages on. At most 2147483647 seconds.';
COMMENT ON COLUMN @extschema@.outbox_route.relay IS
'Who publishes the messages of this route: ''internal'', the workers, to RabbitMQ; ''external'', programs that take them by outbox_claim(); ''cdc'', what reads them out of the write-ahead log (Debezium): the row is deleted by the statement that inserts it.';
COMMENT ON COLUMN @extschema@.outbox_route.relay_roles IS
'Roles whose members may be the external relay of this route; NULL: everybody who may execute outbox_claim() and its like.';

COMMENT ON COLUMN @extschema@.outbox_route.sequence IS
'Numbers for consumers, in the headers. ''seq'': x-outbox-seq, which grows; ''key'': also x-outbox-key-seq, 1, 2, 3 ... of the messages of the key on this route, without gaps: who enqueues for a key waits until others who have are done. NULL: none.';
COMMENT ON COLUMN @extschema@.outbox_route.max_pending IS
'Messages that it may have, those that wait, are scheduled or have failed; enqueue is refused (53400) when it has as many. Those that were stored while this was NULL do not count. NULL: no limit.';
COMMENT ON COLUMN @extschema@.outbox_route.format IS
'What the workers put on the wire, for which consumers: ''plain'', ''cloudevents'', ''debezium'', ''spring'', ''masstransit'', ''nservicebus'', ''cap'', ''celery'' or ''laravel''; see doc/formats.md. Counts from the commit on, also for messages that wait. Other than ''plain'' only where relay is ''internal''.';
COMMENT ON COLUMN @extschema@.outbox_route.format_options IS
'Settings of that format, a JSON object; NULL: none. Keys of all but ''plain'': type, a template of the type''s name with {event_type}, {aggregate_type} and {aggregate_id}, by default ''{event_type}''; types, an object from event_type to name, before that, or to an array of names. The others are in doc/formats.md.';
COMMENT ON COLUMN @extschema@.outbox_route.enqueue_role_oids IS
'OIDs of enqueue_roles when these were written, 0: there was no such role. A role gets in only with both. Set by the table''s trigger.';
COMMENT ON COLUMN @extschema@.outbox_route.relay_role_oids IS
'The same of relay_roles.';
COMMENT ON COLUMN @extschema@.outbox_route.slot IS
'With relay = ''cdc'': name of the replication slot that its messages are read by, without which enqueue is refused; NULL: any logical one of this database.';

CREATE VIEW outbox_internal.outbox_route AS SELECT r.* FROM @extschema@.outbox_route r;

/*
 * Numbers of routes with sequence = 'key'.  Keys by their hash, as in the index
 * outbox_key: what a key is called need not be kept for ever.
 */
CREATE TABLE @extschema@.outbox_key_number (
	route text NOT NULL,
	key_hash bigint NOT NULL,
	last bigint NOT NULL,
	PRIMARY KEY (route, key_hash)
) WITH (fillfactor = 80);

COMMENT ON TABLE @extschema@.outbox_key_number IS
'Of routes with sequence = ''key'', the number of the last message of each key. One row for each key that was ever used; without its row a key begins at 1 again.';
COMMENT ON COLUMN @extschema@.outbox_key_number.route IS 'Name of the route; numbers outlive it, so that one that is made again under this name goes on.';
COMMENT ON COLUMN @extschema@.outbox_key_number.key_hash IS 'outbox_key_hash() of the key.';
COMMENT ON COLUMN @extschema@.outbox_key_number.last IS 'Number of its last message, header x-outbox-key-seq.';

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
	id uuid NOT NULL DEFAULT @extschema@.outbox_uuid7() PRIMARY KEY,
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
	/* 'pending' or 'failed': see outbox_row_trigger() */
	status text NOT NULL DEFAULT 'pending',
	origin bigint NOT NULL DEFAULT outbox_internal.outbox_origin(),
	failed_at timestamptz,
	external boolean,
	counted boolean
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
	WHERE status = 'pending' AND available_at IS NULL AND external IS NULL;
/* Retries and scheduled messages, by when they are due. */
CREATE INDEX outbox_waiting ON @extschema@.outbox (available_at, seq)
	WHERE status = 'pending' AND available_at IS NOT NULL AND external IS NULL;
CREATE INDEX outbox_failed_seq ON @extschema@.outbox (seq) WHERE status = 'failed';
/* Rows of one key, whatever lies between them; two keys may share a hash. */
CREATE INDEX outbox_key ON @extschema@.outbox (outbox_internal.outbox_key_hash(route, aggregate_type, aggregate_id), seq)
	WHERE status = 'pending' AND available_at IS NULL AND aggregate_id IS NOT NULL AND external IS NULL;
/* Those of routes with max_pending; "C", as it is read without the planner. */
CREATE INDEX outbox_counted ON @extschema@.outbox (route COLLATE "C") WHERE counted;

COMMENT ON TABLE @extschema@.outbox IS
'Messages that are not published yet, or have failed. A row is a message from the commit of the transaction that inserted it until RabbitMQ has confirmed it.';
COMMENT ON COLUMN @extschema@.outbox.seq IS 'Order in which messages have entered their route; those of one key are published in this order. A message that changes its route gets a new one.';
COMMENT ON COLUMN @extschema@.outbox.id IS 'The AMQP message_id, the same over all attempts: consumers recognise duplicates by it.';
COMMENT ON COLUMN @extschema@.outbox.route IS 'Destination, a name in outbox_route.';
COMMENT ON COLUMN @extschema@.outbox.event_type IS 'The AMQP property type, and by default the routing key; 1 to 255 bytes.';
COMMENT ON COLUMN @extschema@.outbox.aggregate_type IS 'Kind of thing that the message is about; with route and aggregate_id the key within which order is kept. Sent as header.';
COMMENT ON COLUMN @extschema@.outbox.aggregate_id IS 'Identity of the thing that the message is about; NULL: the message has no order. Sent as header.';
COMMENT ON COLUMN @extschema@.outbox.payload IS 'Body as JSON (application/json); exactly one of payload and body is set.';
COMMENT ON COLUMN @extschema@.outbox.body IS 'Body as bytes (application/octet-stream unless properties say otherwise); exactly one of payload and body is set.';
COMMENT ON COLUMN @extschema@.outbox.headers IS 'AMQP headers as a JSON object: string, boolean, number, null, array and object become S, t, l or d, V, A and F.';
COMMENT ON COLUMN @extschema@.outbox.properties IS 'AMQP properties as a JSON object: content_type, content_encoding, correlation_id, reply_to, priority, expiration, type, app_id.';
COMMENT ON COLUMN @extschema@.outbox.routing_key IS 'Routing key of this message; NULL: the route''s template.';
COMMENT ON COLUMN @extschema@.outbox.created_at IS 'When it was enqueued; the AMQP timestamp (in seconds).';
COMMENT ON COLUMN @extschema@.outbox.available_at IS 'Not published before this time: scheduled by the application, or the next attempt; NULL: at once.';
COMMENT ON COLUMN @extschema@.outbox.attempts IS 'Attempts that the broker returned or nacked; outages do not count.';
COMMENT ON COLUMN @extschema@.outbox.last_error IS 'Why the last attempt failed, in the broker''s words.';
COMMENT ON COLUMN @extschema@.outbox.status IS '''pending'', or ''failed'' after max_attempts of its route, until requeued or discarded.';
COMMENT ON COLUMN @extschema@.outbox.origin IS 'Database in which it was enqueued, see outbox_origin(). The relay publishes nothing while it finds messages of another one that outbox_adopt() has not adopted.';
COMMENT ON COLUMN @extschema@.outbox.failed_at IS 'When it became failed; NULL: it has not, or was requeued.';
COMMENT ON COLUMN @extschema@.outbox.external IS 'True: its route is published by an external relay (outbox_route.relay), and the workers leave it alone; false: it is for change data capture, and in the write-ahead log only; NULL otherwise. Set by the table''s trigger.';
COMMENT ON COLUMN @extschema@.outbox.counted IS 'True: it counts towards max_pending of its route; NULL otherwise. Set by the table''s trigger.';

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

