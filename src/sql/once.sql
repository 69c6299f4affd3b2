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

