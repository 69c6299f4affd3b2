@add relations@		WHEN 'outboxevent' THEN '@extschema@.outboxevent'::regclass
@add triggers@				('view ', 'outboxevent', '{outbox_event_row,outbox_event_statement}'),
@add public@	outbox_internal.outbox_event_rows(),

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

