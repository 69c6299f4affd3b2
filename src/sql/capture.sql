@add ways in@				'outbox_capture',
@add problems@		RETURN QUERY SELECT * FROM outbox_internal.outbox_capture_problems() ORDER BY 1 LIMIT 20;

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

