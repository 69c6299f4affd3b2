-- The extension itself, and what the files after this one use.

-- The relay is off in this database before the extension is there: on a server with
-- a broker, nothing that these tests enqueue may reach it.
SELECT format('ALTER DATABASE %I SET outbox.enabled = off', current_database())
\gexec
\c -
CREATE EXTENSION outbox;
SELECT extversion = outbox_version() AS same_version,
	extnamespace::regnamespace AS schema
FROM pg_extension WHERE extname = 'outbox';

SET client_min_messages = warning;

-- What users find.  Partitions of days come and go.
CREATE SCHEMA outbox_regress;
GRANT USAGE ON SCHEMA outbox_regress TO PUBLIC;
CREATE VIEW outbox_regress.relations AS
	SELECT c.oid, c.relname, c.relkind, c.relispartition, c.relnamespace::regnamespace AS schema
	FROM pg_depend d JOIN pg_class c ON d.classid = 'pg_class'::regclass
		AND d.objid = c.oid
	WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
		AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'outbox')
		AND c.relname !~ '^outbox_archive_p\d{8}$';
CREATE VIEW outbox_regress.functions AS
	SELECT p.oid, p.oid::regprocedure AS function, p.prosecdef, p.proconfig,
		p.proacl, p.prolang, p.prosqlbody, p.pronamespace::regnamespace AS schema
	FROM pg_depend d JOIN pg_proc p ON d.classid = 'pg_proc'::regclass
		AND d.objid = p.oid
	WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
		AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'outbox');
SELECT relname, relkind FROM outbox_regress.relations
WHERE schema = 'public'::regnamespace ORDER BY relname COLLATE "C";
-- For users: functions with arguments; doc-check compares them with doc/sql.md.
SET intervalstyle = postgres;
\pset format unaligned
\df outbox*
\pset format aligned
RESET intervalstyle;
-- What only the extension uses: tables, views of the tables and of what users see, functions.
SELECT relname, relkind FROM outbox_regress.relations
WHERE schema = 'outbox_internal'::regnamespace ORDER BY relname COLLATE "C";
SELECT count(*) <= 102 AS as_few, count(*) FILTER (WHERE prosecdef) AS definer FROM outbox_regress.functions
WHERE schema = 'outbox_internal'::regnamespace;
SELECT nspname, nspowner = (SELECT extowner FROM pg_extension WHERE extname = 'outbox') AS owned, nspacl
FROM pg_namespace WHERE nspname = 'outbox_internal';
SELECT attname, format_type(atttypid, atttypmod), attnotnull,
	coalesce(pg_get_expr(adbin, adrelid), NULLIF(attidentity, '')::text) AS default
FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attrelid = 'outbox'::regclass AND attnum > 0 ORDER BY attnum;
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid IN ('outbox'::regclass, 'outbox_route'::regclass, 'outbox_control'::regclass)
	AND contype <> 'n' ORDER BY conname COLLATE "C";
-- No foreign key: its check is a text with the schema's name, which the server parses when it runs, as the tables' owner.
SELECT conrelid::regclass, conname, confrelid::regclass FROM pg_constraint
WHERE contype = 'f' AND (conrelid IN (SELECT oid FROM outbox_regress.relations) OR confrelid IN (SELECT oid FROM outbox_regress.relations));

-- Nothing outside of its schemas.
SELECT pg_describe_object(classid, objid, objsubid)
FROM pg_depend d, pg_identify_object(classid, objid, objsubid) o
WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
	AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'outbox')
	AND o.schema NOT IN ('public', 'outbox_internal');

-- Every table, view and function that users find has a comment; columns are in doc/sql.md.
SELECT relname FROM outbox_regress.relations
WHERE relkind IN ('r', 'p', 'v') AND schema = 'public'::regnamespace
	AND obj_description(oid, 'pg_class') IS NULL;
SELECT function FROM outbox_regress.functions
WHERE schema = 'public'::regnamespace AND obj_description(oid, 'pg_proc') IS NULL;

-- Functions in SQL are bound; those in PL/pgSQL do not follow the caller's search_path,
-- but for two triggers whose condition is that it is empty.
SELECT function FROM outbox_regress.functions
WHERE prolang <> (SELECT oid FROM pg_language WHERE lanname = 'c')
	AND prosqlbody IS NULL AND NOT 'search_path=pg_catalog, pg_temp' = ANY (coalesce(proconfig, '{}'))
ORDER BY function::text COLLATE "C";
SELECT tgname, pg_get_triggerdef(oid) ~ ' WHEN \(.*outbox_restoring\(\)+ EXECUTE' AS restoring
FROM pg_trigger WHERE tgfoid IN (SELECT oid FROM outbox_regress.functions
	WHERE prolang <> (SELECT oid FROM pg_language WHERE lanname = 'c'))
ORDER BY tgname COLLATE "C";

-- Nothing is for everybody but what a write or a view evaluates; test/tools/doc-check compares doc/security.md with this.
SELECT function FROM outbox_regress.functions, aclexplode(coalesce(proacl, acldefault('f', 10)))
WHERE grantee = 0;
SELECT c.relname FROM outbox_regress.relations r JOIN pg_class c ON c.oid = r.oid,
	aclexplode(c.relacl)
WHERE grantee = 0;

-- pg_dump takes along what is data: routes, messages and their numbering.
SELECT t.relation::regclass, t.condition
FROM pg_extension, unnest(extconfig, extcondition) AS t(relation, condition)
WHERE extname = 'outbox' ORDER BY t.relation::regclass::text COLLATE "C";

-- What can go now, what waits, and what has failed: an index each.
SELECT indexrelid::regclass, pg_get_expr(indpred, indrelid)
FROM pg_index WHERE indrelid = 'outbox'::regclass AND indpred IS NOT NULL
ORDER BY indexrelid::regclass::text COLLATE "C";

-- It stays in the schema that it was created in.
ALTER EXTENSION outbox SET SCHEMA outbox_regress;

-- How a statement ends, undone in any case: 'ok', or SQLSTATE, message, detail
-- and hint.
CREATE FUNCTION outbox_regress.outcome(statement text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	state text;
	message text;
	detail text;
	hint text;
BEGIN
	EXECUTE statement;
	RAISE EXCEPTION USING ERRCODE = 'ZZZZZ';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE,
		message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
		hint = PG_EXCEPTION_HINT;
	IF state = 'ZZZZZ' THEN
		RETURN 'ok';
	END IF;
	RETURN state || ' ' || message
		|| CASE WHEN detail <> '' THEN E'\n  DETAIL: ' || detail ELSE '' END
		|| CASE WHEN hint <> '' THEN E'\n  HINT: ' || hint ELSE '' END;
END
$$;

-- The same for a message with one argument set to an expression, enqueued by
-- the function and by a plain INSERT: both must end alike.
CREATE FUNCTION outbox_regress.enqueue(argument text, expression text,
	event_type text DEFAULT '''e''', payload text DEFAULT '''{}''')
RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	by_function text;
	by_insert text;
	col text := CASE argument WHEN 'message_id' THEN 'id' ELSE argument END;
BEGIN
	by_function := outbox_regress.outcome(format(
		'SELECT outbox_enqueue(event_type => %s, payload => %s, %I => %s)',
		event_type, payload, argument, expression));
	by_insert := outbox_regress.outcome(format(
		'INSERT INTO outbox (event_type, payload, %I) VALUES (%s, %s, %s)',
		col, event_type, payload, expression));
	RETURN CASE WHEN by_function = by_insert THEN by_function
		ELSE by_function || E'\nINSERT: ' || by_insert END;
END
$$;

CREATE FUNCTION pg_temp.sequence_problem(change text, OUT problem text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'ALTER SEQUENCE outbox_seq_seq ' || change;
	SELECT concat_ws(': ', p.subject, p.detail, p.command) INTO problem FROM outbox_problems p WHERE p.problem = 'sequence changed';
	ALTER SEQUENCE outbox_seq_seq CACHE 1 INCREMENT 1 NO CYCLE;
END
$$;

-- outbox_problems knows all triggers and indexes of our tables: it has a row for each that is off or gone
BEGIN;
DO $$
DECLARE
	t record;
BEGIN
	FOR t IN SELECT relation FROM outbox_internal.outbox_tables LOOP
		EXECUTE format('ALTER TABLE %s DISABLE TRIGGER USER', t.relation::regclass);
	END LOOP;
	FOR t IN SELECT i.indexrelid FROM outbox_internal.outbox_tables o JOIN pg_index i ON i.indrelid = o.relation
			JOIN pg_class c ON c.oid = i.indexrelid WHERE NOT c.relispartition LOOP
		EXECUTE format('ALTER INDEX %s RENAME TO renamed_%s', t.indexrelid::regclass, t.indexrelid);
	END LOOP;
END
$$;
SELECT o.name, g.tgname AS not_known FROM outbox_internal.outbox_tables o JOIN pg_trigger g ON g.tgrelid = o.relation
WHERE NOT g.tgisinternal AND NOT EXISTS (SELECT FROM outbox_problems p WHERE p.detail = format('trigger %s is disabled', g.tgname));
SELECT (SELECT count(*) FROM outbox_problems WHERE problem = 'index missing')
	- (SELECT count(*) FROM outbox_internal.outbox_tables o JOIN pg_index i ON i.indrelid = o.relation
		JOIN pg_class c ON c.oid = i.indexrelid WHERE NOT c.relispartition) AS more_or_less;
ROLLBACK;
-- ... and a sequence whose numbers do not rise with time
SELECT pg_temp.sequence_problem('CACHE 2'), pg_temp.sequence_problem('INCREMENT -1'), pg_temp.sequence_problem('CYCLE');
-- ... and those that fire on replicas, too, which ENABLE TRIGGER USER takes away from them
BEGIN;
CREATE TEMP TABLE on_replicas AS
SELECT g.tgname FROM outbox_internal.outbox_tables o JOIN pg_trigger g ON g.tgrelid = o.relation WHERE g.tgenabled = 'A';
SELECT format('ALTER TABLE %s ENABLE TRIGGER USER', relation::regclass) FROM outbox_internal.outbox_tables
WHERE EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = relation AND NOT g.tgisinternal) ORDER BY name
\gexec
SELECT count(*) > 0 AS there_are, (SELECT count(*) FROM outbox_problems WHERE problem = 'trigger off') - count(*) AS more_or_less,
	bool_and(EXISTS (SELECT FROM outbox_problems p WHERE p.detail = format('trigger %s does not fire on replicas', r.tgname))) AS named
FROM on_replicas r;
SELECT command FROM outbox_problems WHERE problem = 'trigger off' ORDER BY command
\gexec
SELECT count(*) FROM outbox_problems WHERE problem = 'trigger off';
ROLLBACK;
