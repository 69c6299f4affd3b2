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
	SELECT @columns new o.@
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

