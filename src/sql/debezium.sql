@add relations@		WHEN 'outboxevent' THEN '@extschema@.outboxevent'::regclass
@add triggers@				('view ', 'outboxevent', '{outbox_event_row,outbox_event_statement}'), ('table ', 'outbox', '{outbox_cdc}'),
@add problems@		RETURN QUERY SELECT * FROM outbox_internal.outbox_cdc_problems();
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

