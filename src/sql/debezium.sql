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
COMMENT ON COLUMN @extschema@.outboxevent.id IS 'The AMQP message_id; NULL: a new UUID of version 7, which RETURNING gives.';
COMMENT ON COLUMN @extschema@.outboxevent.aggregatetype IS 'aggregate_type; where a route has this name it is the route of the message, and else ''default''.';
COMMENT ON COLUMN @extschema@.outboxevent.aggregateid IS 'aggregate_id.';
COMMENT ON COLUMN @extschema@.outboxevent.type IS 'event_type.';
COMMENT ON COLUMN @extschema@.outboxevent.payload IS 'JSON becomes payload, as jsonb: keys in another order, the last of the same, no blanks. Bytes (bytea, of which \x and hexadecimal digits come here) become body. Other text becomes body, as text/plain in UTF-8. NULL: JSON null.';
COMMENT ON COLUMN @extschema@.outboxevent.timestamp IS 'created_at; NULL: now.';
COMMENT ON COLUMN @extschema@.outboxevent.tracingspancontext IS 'A trace context as java.util.Properties writes it: its traceparent and tracestate become headers. What is none is left out.';

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

