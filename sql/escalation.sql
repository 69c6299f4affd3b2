-- What an administrator adds to the tables (triggers, checks, defaults, indexes)
-- runs as their owner when outbox_enqueue() or a function for operators stores
-- or changes a row.  Names in it that have no schema must not lead to what the
-- caller has made, by its search_path or among its temporary tables and views.
-- (Temporary domains are a way that is left, see doc/dev/privileges.md.)
SET client_min_messages = error;
SET search_path = outbox_regress, public;
\pset format unaligned
\pset tuples_only on
CREATE ROLE regress_outbox_evil;
GRANT EXECUTE ON FUNCTION outbox_enqueue_batch, outbox_enqueue, outbox_enqueue_bytes, outbox_enqueue_text, outbox_pause,
	outbox_resume, outbox_requeue, outbox_requeue_failed, outbox_discard
	TO regress_outbox_evil;

-- The administrator's code.  Nothing of what it names without a schema is in
-- pg_catalog; where it is not found, the code goes on, so that all is tried.
CREATE SCHEMA regress_admin;
CREATE TABLE regress_admin.audit_log (t text);
CREATE FUNCTION regress_admin.careless() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM note_it();
	EXCEPTION WHEN undefined_function THEN NULL;
	END;
	BEGIN
		PERFORM 'a'::text ~!~ 'b'::text;
	EXCEPTION WHEN undefined_function THEN NULL;
	END;
	BEGIN
		INSERT INTO audit_log VALUES ('x');
	EXCEPTION WHEN undefined_table OR insufficient_privilege THEN NULL;
	END;
	BEGIN
		EXECUTE 'SELECT * FROM audit_view';
	EXCEPTION WHEN undefined_table OR insufficient_privilege THEN NULL;
	END;
	BEGIN
		EXECUTE 'TRUNCATE audit_log';
	EXCEPTION WHEN undefined_table OR insufficient_privilege THEN NULL;
	END;
	BEGIN
		EXECUTE $q$SELECT 'x'::audit_name$q$;
	EXCEPTION WHEN undefined_object THEN NULL;
	END;
	RETURN true;
END
$$;
CREATE FUNCTION regress_admin.careless(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	PERFORM regress_admin.careless();
	RETURN $1;
END
$$;
CREATE FUNCTION regress_admin.fires() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM regress_admin.careless();
	RETURN coalesce(NEW, OLD);
END
$$;
GRANT USAGE ON SCHEMA regress_admin TO PUBLIC;

-- The attacker's
CREATE SCHEMA regress_evil AUTHORIZATION regress_outbox_evil;
SET ROLE regress_outbox_evil;
CREATE TABLE regress_evil.called (name text, who text);
GRANT INSERT ON regress_evil.called TO PUBLIC;
GRANT USAGE ON SCHEMA regress_evil TO PUBLIC;
CREATE FUNCTION regress_evil.payload(text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF current_user <> 'regress_outbox_evil' THEN
		INSERT INTO regress_evil.called VALUES ($1, current_user);
		ALTER ROLE regress_outbox_evil SUPERUSER;
	END IF;
	RETURN true;
END
$$;
CREATE FUNCTION regress_evil.note_it() RETURNS boolean LANGUAGE sql
	AS $$SELECT regress_evil.payload('function')$$;
CREATE FUNCTION regress_evil.op(text, text) RETURNS boolean LANGUAGE sql
	AS $$SELECT regress_evil.payload('operator')$$;
CREATE OPERATOR regress_evil.~!~ (LEFTARG = text, RIGHTARG = text, FUNCTION = regress_evil.op);
CREATE FUNCTION regress_evil.on_log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM regress_evil.payload('table in ' || TG_TABLE_SCHEMA);
	RETURN NEW;
END
$$;
CREATE TABLE regress_evil.audit_log (t text);
CREATE TRIGGER t BEFORE INSERT ON regress_evil.audit_log
	FOR EACH ROW EXECUTE FUNCTION regress_evil.on_log();
CREATE VIEW regress_evil.audit_view AS SELECT regress_evil.payload('view');
CREATE DOMAIN regress_evil.audit_name AS text CHECK (regress_evil.payload('domain'));
GRANT ALL ON ALL TABLES IN SCHEMA regress_evil TO PUBLIC;
-- and among its temporary objects
CREATE TEMPORARY TABLE audit_log (t text);
CREATE TRIGGER t BEFORE INSERT ON audit_log
	FOR EACH ROW EXECUTE FUNCTION regress_evil.on_log();
CREATE TRIGGER truncated BEFORE TRUNCATE ON audit_log
	FOR EACH STATEMENT EXECUTE FUNCTION regress_evil.on_log();
CREATE TEMPORARY VIEW audit_view AS SELECT regress_evil.payload('temporary view');
GRANT ALL ON audit_log, audit_view TO PUBLIC;
RESET ROLE;

-- Every kind of addition, one at a time, every function, and two search_paths
CREATE TABLE additions (n int, name text, up text, down text);
INSERT INTO additions VALUES
	(1, 'BEFORE trigger', 'CREATE TRIGGER added BEFORE INSERT OR UPDATE OR DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION regress_admin.fires()',
		'DROP TRIGGER added ON outbox'),
	(2, 'AFTER trigger', 'CREATE TRIGGER added AFTER INSERT OR UPDATE OR DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION regress_admin.fires()',
		'DROP TRIGGER added ON outbox'),
	(3, 'statement trigger', 'CREATE TRIGGER added BEFORE INSERT OR UPDATE OR DELETE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION regress_admin.fires()',
		'DROP TRIGGER added ON outbox'),
	(4, 'constraint trigger', 'CREATE CONSTRAINT TRIGGER added AFTER INSERT OR UPDATE OR DELETE ON outbox DEFERRABLE FOR EACH ROW EXECUTE FUNCTION regress_admin.fires()',
		'DROP TRIGGER added ON outbox'),
	(5, 'deferred constraint trigger', 'CREATE CONSTRAINT TRIGGER added AFTER INSERT OR UPDATE OR DELETE ON outbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION regress_admin.fires()',
		'DROP TRIGGER added ON outbox'),
	(6, 'check', 'ALTER TABLE outbox ADD CONSTRAINT added CHECK (regress_admin.careless()) NOT VALID',
		'ALTER TABLE outbox DROP CONSTRAINT added'),
	(7, 'default', 'ALTER TABLE outbox ADD added text DEFAULT regress_admin.careless(''x'')',
		'ALTER TABLE outbox DROP added'),
	(8, 'default of a column', 'ALTER TABLE outbox ALTER last_error SET DEFAULT regress_admin.careless(''x'')',
		'ALTER TABLE outbox ALTER last_error DROP DEFAULT'),
	(9, 'generated column', 'ALTER TABLE outbox ADD added text GENERATED ALWAYS AS (regress_admin.careless(event_type)) STORED',
		'ALTER TABLE outbox DROP added'),
	(10, 'index expression', 'CREATE INDEX added ON outbox (regress_admin.careless(event_type))', 'DROP INDEX added'),
	(11, 'index predicate', 'CREATE INDEX added ON outbox (seq) WHERE regress_admin.careless(event_type) > ''''', 'DROP INDEX added'),
	(12, 'policy', 'CREATE POLICY added ON outbox USING (regress_admin.careless()) WITH CHECK (regress_admin.careless()); ALTER TABLE outbox ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY',
		'DROP POLICY added ON outbox; ALTER TABLE outbox DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY'),
	(13, 'rule', 'CREATE RULE added AS ON INSERT TO outbox DO ALSO SELECT regress_admin.careless()', 'DROP RULE added ON outbox'),
	(14, 'trigger on outbox_route', 'CREATE TRIGGER added BEFORE UPDATE ON outbox_route FOR EACH ROW EXECUTE FUNCTION regress_admin.fires()',
		'DROP TRIGGER added ON outbox_route'),
	(15, 'trigger on outbox_control', 'CREATE TRIGGER added AFTER UPDATE ON outbox_control FOR EACH ROW EXECUTE FUNCTION regress_admin.fires()',
		'DROP TRIGGER added ON outbox_control'),
	(16, 'check on outbox_route', 'ALTER TABLE outbox_route ADD CONSTRAINT added CHECK (regress_admin.careless())',
		'ALTER TABLE outbox_route DROP CONSTRAINT added');
CREATE FUNCTION attempt() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	statement text;
BEGIN
	FOREACH statement IN ARRAY ARRAY[
		$q$SELECT public.outbox_enqueue('e', '{}')$q$,
		$q$SELECT public.outbox_enqueue_bytes('e', '')$q$,
		$q$SELECT public.outbox_enqueue_text('e', '{}')$q$,
		$q$SELECT public.outbox_enqueue_batch('[{"event_type": "e", "payload": 1}, {"event_type": "e", "payload": 2}]')$q$,
		$q$SELECT public.outbox_requeue('00000000-0000-7000-8000-000000000001')$q$,
		$q$SELECT public.outbox_requeue_failed()$q$,
		$q$SELECT public.outbox_discard('00000000-0000-7000-8000-000000000002')$q$,
		$q$SELECT public.outbox_pause('default')$q$,
		$q$SELECT public.outbox_resume('default')$q$,
		$q$SELECT public.outbox_pause()$q$]
	LOOP
		BEGIN
			EXECUTE statement;
			SET CONSTRAINTS ALL IMMEDIATE;
		EXCEPTION WHEN OTHERS THEN NULL;
		END;
	END LOOP;
END
$$;
CREATE TABLE found (addition text, path text, name text, who text);
-- Called as a procedure: each addition is committed, as DDL is, and the caller's
-- role and search_path are those of a session.
CREATE PROCEDURE try_all() LANGUAGE plpgsql AS $$
DECLARE
	a record;
	path text;
BEGIN
	FOR a IN SELECT * FROM outbox_regress.additions ORDER BY n LOOP
		DELETE FROM public.outbox;
		INSERT INTO public.outbox (id, event_type, payload, status) VALUES
			('00000000-0000-7000-8000-000000000001', 'f', '{}', 'failed'),
			('00000000-0000-7000-8000-000000000002', 'f', '{}', 'failed'),
			('00000000-0000-7000-8000-000000000003', 'f', '{}', 'failed');
		EXECUTE a.up;
		COMMIT;
		/* What the administrator himself does in this session is not meant. */
		DELETE FROM regress_evil.called;
		FOREACH path IN ARRAY ARRAY['regress_evil, pg_catalog', 'pg_catalog'] LOOP
			PERFORM set_config('search_path', path, false);
			SET ROLE regress_outbox_evil;
			PERFORM outbox_regress.attempt();
			SET ROLE NONE;
			SET search_path = outbox_regress, public;
			INSERT INTO outbox_regress.found SELECT DISTINCT a.name, path, c.name, c.who FROM regress_evil.called c;
			DELETE FROM regress_evil.called;
			ALTER ROLE regress_outbox_evil NOSUPERUSER;
			COMMIT;
		END LOOP;
		EXECUTE a.down;
		COMMIT;
	END LOOP;
END
$$;
GRANT USAGE ON SCHEMA outbox_regress TO regress_outbox_evil;
CALL try_all();
SELECT count(*) FROM additions;
SELECT addition, path, string_agg(name, ', ' ORDER BY name), min(who)
FROM found GROUP BY addition, path ORDER BY 1, 2;
SELECT count(*) FROM found;
SELECT rolsuper FROM pg_roles WHERE rolname = 'regress_outbox_evil';

-- A temporary table of the caller's is of no use to its own triggers either, and
-- the reason is told; afterwards it can be used as before.
CREATE FUNCTION regress_admin.unguarded() RETURNS trigger LANGUAGE plpgsql
	AS 'BEGIN INSERT INTO audit_log VALUES (1); RETURN NEW; END';
CREATE TRIGGER added BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION regress_admin.unguarded();
SET ROLE regress_outbox_evil;
SELECT outcome($$SELECT public.outbox_enqueue('e', '{}')$$);
INSERT INTO audit_log VALUES ('mine');
SELECT count(*) > 0 FROM audit_log;
RESET ROLE;
DROP TRIGGER added ON outbox;
SET ROLE regress_outbox_evil;
CREATE TEMPORARY TABLE enqueued AS SELECT public.outbox_enqueue('e', '{}') AS id;
SELECT count(id) FROM enqueued;
RESET ROLE;

-- Who owns the extension's schema, or may create in it, makes functions that our own calls
-- might find: of our names, with the same arguments and with such as would fit better; or
-- renames it and makes another one of its name, with relations of our names, too.
CREATE TABLE calls (call text);
INSERT INTO calls VALUES
	($$%I.outbox_enqueue('e', '{}', 't', '1')$$), ($$%I.outbox_enqueue_text('e', '{}')$$),
	($$count(*) FROM %I.outbox_enqueue_batch('[{"event_type": "e", "payload": 1}]')$$),
	($$%I.outbox_enqueue_once('k', 'e', '{}')$$), ($$%I.outbox_wait('00000000-0000-7000-8000-000000000001', '0')$$),
	('count(*) FROM %I.outbox_status'), ('count(*) FROM %I.outbox_problems'), ('count(*) FROM %I.outbox_metrics'),
	('count(*) FROM %I.outbox_routes_status'), ('count(*) FROM %I.outbox_workers'), ('count(*) FROM %I.outbox_messages'),
	('count(*) FROM %I.outbox_archive_status'), ('count(*) FROM %I.outbox_versions'), ('count(*) FROM %I.outbox_progress'),
	('count(*) FROM %I.outbox_held_keys'), ('count(*) FROM %I.outbox_locked_rows()'), ('count(*) FROM %I.outbox_table_lockers()'),
	('count(*) FROM %I.outbox_top()'), ('count(*) FROM %I.outbox_preflight()'), ($$count(*) FROM %I.outbox_reason_hint('not reached')$$),
	('%I.outbox_requeue_failed()'), ($$%I.outbox_discard_messages('test', max_messages => 1)$$),
	($$%1$I.outbox_edit(id, payload => '2') FROM %1$I.outbox WHERE route = 'default'$$), ($$count(*) FROM %I.outbox_erase('t', '1')$$),
	($$%I.outbox_pause('default')$$), ($$%I.outbox_resume('default')$$), ('%I.outbox_adopt()'), ('%I.outbox_worker_restart()'),
	($$%I.outbox_replay('-infinity')$$), ($$outbox_internal.outbox_job_step(10, 1000, '{}')$$),
	($$count(*) FROM %I.outbox_claim('claimed')$$), ($$%1$I.outbox_extend(token) FROM %1$I.outbox_leases$$),
	($$%I.outbox_nack(l.token, l.ids[1], 'no') FROM outbox_internal.outbox_lease l$$),
	($$%I.outbox_requeue_failed('claimed')$$), ($$count(*) FROM %I.outbox_claim('claimed')$$),
	($$%1$I.outbox_release(token) FROM %1$I.outbox_leases$$), ($$count(*) FROM %I.outbox_claim('claimed')$$),
	($$%1$I.outbox_ack(token) FROM %1$I.outbox_leases$$),
	($$outbox_internal.outbox_archive_maintain('1 day') FROM generate_series(1, 9)$$),
	($$outbox_internal.outbox_history_maintain('0')$$), ($$outbox_internal.outbox_once_maintain('0', '-infinity')$$);
-- Each call with plans made again; then the triggers of routes.
CREATE PROCEDURE make_calls(schema name) LANGUAGE plpgsql AS $$
DECLARE
	c record;
BEGIN
	FOR c IN SELECT * FROM outbox_regress.calls LOOP
		DISCARD PLANS;
		BEGIN
			EXECUTE 'SELECT ' || format(c.call, schema);
		EXCEPTION WHEN OTHERS THEN
			RAISE INFO '%: % %', c.call, SQLSTATE, SQLERRM;
		END;
	END LOOP;
	EXECUTE format($q$UPDATE %I.outbox_route SET relay = 'internal', failed_route = 'default' WHERE name = 'claimed'$q$, schema);
	EXECUTE format($q$DELETE FROM %I.outbox_route WHERE name = 'empty'$q$, schema);
	RAISE INFO 'others ran: %', (SELECT coalesce(string_agg(DISTINCT name || ' as ' || who, ', '), 'none') FROM regress_evil.called);
END
$$;
CREATE FUNCTION impostors() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	f record;
	made bigint := 0;
BEGIN
	FOR f IN
		SELECT p.proname, a.arguments
		FROM outbox_regress.functions m JOIN pg_proc p ON p.oid = m.oid,
			LATERAL (VALUES (oidvectortypes(p.proargtypes)),
				(replace(oidvectortypes(p.proargtypes), 'oid', 'regclass')),
				(replace(oidvectortypes(p.proargtypes), 'regclass', 'oid')),
				(replace(oidvectortypes(p.proargtypes), 'bigint', 'integer')),
				(replace(oidvectortypes(p.proargtypes), 'double precision', 'bigint')),
				(regexp_replace(oidvectortypes(p.proargtypes), '\mtext\M', 'varchar', 'g'))) a(arguments)
	LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS text LANGUAGE plpgsql AS %L', f.proname, f.arguments,
				format('BEGIN PERFORM regress_evil.payload(%L); RETURN NULL; END', f.proname));
			made := made + 1;
		EXCEPTION WHEN duplicate_function THEN NULL;
		END;
	END LOOP;
	RETURN made;
END
$$;
INSERT INTO outbox_route (name, relay) VALUES ('claimed', 'external'), ('empty', 'internal');
INSERT INTO outbox (event_type, payload, status, route) VALUES ('f', '{}', 'failed', 'default'),
	('g', '{}', 'failed', 'default'), ('c', '{}', 'pending', 'claimed');
-- A day that is due, and what has left the archive and is large.
CREATE PROCEDURE make_due(schema name) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE outbox_internal.outbox_archive_p20000101 PARTITION OF %I.outbox_archive
		FOR VALUES FROM (''2000-01-01 00:00+00'') TO (''2000-01-02 00:00+00'')', schema);
	ALTER EXTENSION outbox ADD TABLE outbox_internal.outbox_archive_p20000101;
	EXECUTE format('CREATE TABLE outbox_internal.outbox_archive_dropping_1 (LIKE %I.outbox_archive)', schema);
	INSERT INTO outbox_internal.outbox_archive_dropping_1 (seq, id, route, event_type, created_at, attempts, published_at, body)
		SELECT 1, gen_random_uuid(), 'default', 'e', now(), 0, '2000-01-01', convert_to(repeat('x', 1900), 'UTF8')
		FROM generate_series(1, 10000);
	ALTER EXTENSION outbox ADD TABLE outbox_internal.outbox_archive_dropping_1;
END
$$;
DELETE FROM regress_evil.called;
SET search_path = pg_catalog;
-- beside ours
BEGIN;
SELECT outbox_regress.impostors() > 100;
CALL outbox_regress.make_due('public');
CALL outbox_regress.make_calls('public');
ROLLBACK;
-- in the place of ours
BEGIN;
ALTER SCHEMA public RENAME TO regress_moved;
CREATE SCHEMA public;
SELECT outbox_regress.impostors() > 150;
DO $$
DECLARE
	r record;
BEGIN
	FOR r IN SELECT DISTINCT relname FROM outbox_regress.relations WHERE relkind IN ('r', 'p', 'v') LOOP
		EXECUTE format('CREATE VIEW public.%I AS SELECT regress_evil.payload(%L)', r.relname, r.relname);
	END LOOP;
END
$$;
CALL outbox_regress.make_due('regress_moved');
CALL outbox_regress.make_calls('regress_moved');
ROLLBACK;
SET search_path = outbox_regress, public;
DROP TABLE calls;
DROP PROCEDURE make_calls, make_due;
DROP FUNCTION impostors;
TRUNCATE outbox;
DELETE FROM outbox_route WHERE name IN ('claimed', 'empty');

-- A superuser owns the table and another role the rest, such as after REASSIGN OWNED and one
-- ALTER TABLE: what that role puts into the extension's views would run as the superuser.
BEGIN;
DO $$
DECLARE
	member record;
BEGIN
	FOR member IN SELECT r.relname, r.schema, CASE r.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END AS kind
			FROM outbox_regress.relations r
			WHERE r.relkind IN ('r', 'p', 'v') AND r.oid <> 'public.outbox'::regclass LOOP
		EXECUTE format('ALTER %s %s.%I OWNER TO regress_outbox_evil', member.kind, member.schema, member.relname);
	END LOOP;
	FOR member IN SELECT f.function FROM outbox_regress.functions f LOOP
		EXECUTE format('ALTER FUNCTION %s OWNER TO regress_outbox_evil', member.function);
	END LOOP;
	ALTER SCHEMA outbox_internal OWNER TO regress_outbox_evil;
	GRANT ALL ON public.outbox TO regress_outbox_evil;
END
$$;
SET LOCAL ROLE regress_outbox_evil;
CREATE OR REPLACE FUNCTION outbox_internal.theirs(name text) RETURNS text LANGUAGE sql
	AS $$SELECT CASE WHEN regress_evil.payload('view') THEN name END$$;
DO $$
BEGIN
	EXECUTE 'CREATE OR REPLACE VIEW outbox_internal.outbox_route AS '
		|| regexp_replace(pg_get_viewdef('outbox_internal.outbox_route'::regclass), '(\w+\.)?\mname,',
			'outbox_internal.theirs(\1name) AS name,');
END
$$;
RESET ROLE;
-- so that routes are read again
ALTER TABLE public.outbox_route SET (fillfactor = 90);
DO $$
BEGIN
	PERFORM public.outbox_enqueue('e', '{}');
	RAISE INFO 'others ran: %', (SELECT coalesce(string_agg(DISTINCT name, ', '), 'none') FROM regress_evil.called);
EXCEPTION WHEN insufficient_privilege THEN
	RAISE INFO '%', replace(SQLERRM, current_user, 'SUPERUSER');
END
$$;
ROLLBACK;
-- and each function of outbox_internal
BEGIN;
DO $$
DECLARE
	given regprocedure;
	message text;
	refused integer := 0;
	done text[] := '{}';
BEGIN
	FOR given IN SELECT f.function FROM outbox_regress.functions f
			WHERE f.schema = 'outbox_internal'::regnamespace ORDER BY f.function::text COLLATE "C" LOOP
		BEGIN
			EXECUTE format('ALTER FUNCTION %s OWNER TO regress_outbox_evil', given);
			PERFORM public.outbox_enqueue('e', '{}');
			RAISE EXCEPTION USING ERRCODE = 'TR001', MESSAGE = 'done';
		EXCEPTION WHEN insufficient_privilege OR SQLSTATE 'TR001' THEN
			message := SQLERRM;
		END;
		IF message = format('function "%s" belongs to role "regress_outbox_evil", and the table "outbox" to "%s"',
				(SELECT p.proname FROM pg_proc p WHERE p.oid = given), current_user) THEN
			refused := refused + 1;
		ELSE
			done := done || (given || ': ' || message);
		END IF;
	END LOOP;
	RAISE INFO 'refused: %, not refused: %', refused > 50, done;
END
$$;
ROLLBACK;

-- and what else could be another role's: types, what is in outbox_internal without being a
-- member, the table under another name.  A superuser's function is the owner's.
CREATE PROCEDURE refused(statement text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	PERFORM public.outbox_enqueue('e', '{}');
	RAISE EXCEPTION USING ERRCODE = 'TR001', MESSAGE = 'not refused';
EXCEPTION WHEN insufficient_privilege OR SQLSTATE 'TR001' THEN
	RAISE INFO '%: %', statement, replace(SQLERRM, current_user, 'SUPERUSER');
END
$$;
CREATE ROLE regress_outbox_root SUPERUSER;
CALL refused('ALTER TYPE outbox_internal.outbox_problem OWNER TO regress_outbox_evil');
CALL refused($$CREATE FUNCTION outbox_internal.outbox_key_hash(varchar, varchar, varchar) RETURNS bigint LANGUAGE sql RETURN 1;
ALTER FUNCTION outbox_internal.outbox_key_hash(varchar, varchar, varchar) OWNER TO regress_outbox_evil$$);
CALL refused('CREATE TABLE outbox_internal.theirs (); ALTER TABLE outbox_internal.theirs OWNER TO regress_outbox_evil');
CALL refused('ALTER FUNCTION public.outbox_pause(text, text) OWNER TO regress_outbox_evil');
CALL refused('ALTER FUNCTION outbox_internal.outbox_key_hash(text, text, text) OWNER TO regress_outbox_root');
CALL refused($$ALTER FUNCTION outbox_internal.outbox_key_hash(text, text, text) OWNER TO regress_outbox_root;
SELECT public.outbox_enqueue('e', '{}'); ALTER ROLE regress_outbox_root NOSUPERUSER$$);
-- what the owner of a partitioned table adds to it comes down to its partitions
CALL refused('CREATE TABLE regress_evil.whole (LIKE public.outbox_route) PARTITION BY LIST (name);
ALTER TABLE regress_evil.whole ATTACH PARTITION public.outbox_route DEFAULT; ALTER TABLE regress_evil.whole OWNER TO regress_outbox_evil');
-- rows of children would be messages and routes
CALL refused('CREATE TABLE regress_evil.child () INHERITS (public.outbox); ALTER TABLE regress_evil.child OWNER TO regress_outbox_evil');
CALL refused('CREATE TABLE regress_evil.child () INHERITS (public.outbox_route)');
DO $$
BEGIN
	ALTER TABLE public.outbox OWNER TO regress_outbox_evil;
	ALTER TABLE public.outbox RENAME TO regress_renamed;
	PERFORM public.outbox_requeue_failed();
	RAISE EXCEPTION USING ERRCODE = 'TR001', MESSAGE = 'not refused';
EXCEPTION WHEN undefined_table OR SQLSTATE 'TR001' THEN
	RAISE INFO '%', SQLERRM;
END
$$;
DROP PROCEDURE refused;
DROP ROLE regress_outbox_root;

-- Objects that only name the extension's, which a role without any right can make, are none
-- of them.  Each is found in pg_depend where those are looked for.
CREATE VIEW dependents AS
	SELECT count(*) AS n FROM pg_depend d WHERE EXISTS (SELECT FROM pg_depend m JOIN pg_extension e
		ON m.refclassid = 'pg_extension'::regclass AND m.refobjid = e.oid AND e.extname = 'outbox'
		WHERE m.deptype = 'e' AND (d.refclassid, d.refobjid) IN ((m.classid, m.objid), (m.refclassid, m.refobjid),
			('pg_type'::regclass, (SELECT c.reltype FROM pg_class c WHERE m.classid = 'pg_class'::regclass AND c.oid = m.objid))));
DO $$
DECLARE
	statement text;
	before bigint := (SELECT n FROM outbox_regress.dependents);
BEGIN
	SET LOCAL ROLE regress_outbox_evil;
	CREATE TABLE regress_evil.target (n oid);
	RESET ROLE;
	FOREACH statement IN ARRAY ARRAY[
		'CREATE FUNCTION regress_evil.schema() RETURNS oid BEGIN ATOMIC SELECT %1$s::regnamespace::oid; END',
		'CREATE FUNCTION regress_evil.relation() RETURNS oid BEGIN ATOMIC SELECT %2$s::regclass::oid; END',
		'CREATE FUNCTION regress_evil.view() RETURNS oid BEGIN ATOMIC SELECT %3$s::regclass::oid; END',
		'CREATE FUNCTION regress_evil.function() RETURNS oid BEGIN ATOMIC SELECT %4$s::regprocedure::oid; END',
		'CREATE FUNCTION regress_evil.type() RETURNS oid BEGIN ATOMIC SELECT %5$s::regtype::oid; END',
		'CREATE FUNCTION regress_evil.called() RETURNS uuid BEGIN ATOMIC SELECT public.outbox_uuid7(); END',
		'CREATE FUNCTION regress_evil.takes(public.outbox) RETURNS integer LANGUAGE sql RETURN 1',
		'ALTER FUNCTION regress_evil.note_it DEPENDS ON EXTENSION outbox',
		'CREATE VIEW regress_evil.over AS SELECT %1$s::regnamespace FROM public.outbox',
		'CREATE MATERIALIZED VIEW regress_evil.stored AS SELECT %1$s::regnamespace::oid, %2$s::regclass::oid AS relation',
		'CREATE TYPE regress_evil.composite AS (o public.outbox)',
		'CREATE TABLE regress_evil.typed (o public.outbox, n oid DEFAULT %1$s::regnamespace::oid)',
		'CREATE TEMPORARY TABLE generated (n oid, g boolean GENERATED ALWAYS AS (n = %1$s::regnamespace::oid) STORED)',
		'CREATE DOMAIN regress_evil.domain AS oid DEFAULT %1$s::regnamespace::oid CHECK (VALUE = %1$s::regnamespace::oid)',
		'CREATE INDEX expression ON regress_evil.target ((n = %1$s::regnamespace::oid), (n = %2$s::regclass::oid))',
		'CREATE INDEX predicate ON regress_evil.target (n) WHERE n = %1$s::regnamespace::oid',
		'CREATE INDEX dependent ON regress_evil.target (n); ALTER INDEX regress_evil.dependent DEPENDS ON EXTENSION outbox',
		'CREATE TABLE regress_evil.parted (n oid) PARTITION BY LIST ((n = %1$s::regnamespace::oid))',
		'CREATE STATISTICS regress_evil.statistics ON n, (n = %1$s::regnamespace::oid) FROM regress_evil.target',
		'CREATE POLICY policy ON regress_evil.target USING (n = %1$s::regnamespace::oid)',
		'CREATE RULE rule AS ON DELETE TO regress_evil.target DO ALSO SELECT %1$s::regnamespace',
		'CREATE TRIGGER trigger BEFORE INSERT ON regress_evil.target FOR EACH ROW WHEN (NEW.n = %1$s::regnamespace::oid) EXECUTE FUNCTION regress_evil.on_log()'] LOOP
		statement := format(statement, quote_literal('outbox_internal'), quote_literal('public.outbox'::regclass::oid),
			quote_literal('outbox_internal.outbox'::regclass::oid), quote_literal('outbox_internal.outbox_origin()'::regprocedure::oid),
			quote_literal('outbox_internal.outbox_problem'::regtype::oid));
		BEGIN
			SET LOCAL ROLE regress_outbox_evil;
			EXECUTE statement;
			RESET ROLE;
			/* so that all is looked at again */
			ALTER TABLE public.outbox_route SET (fillfactor = 90);
			PERFORM public.outbox_enqueue('e', '{}');
			RAISE EXCEPTION USING ERRCODE = 'TR001', MESSAGE = CASE WHEN before = (SELECT n FROM outbox_regress.dependents)
				THEN 'does not depend on outbox' ELSE 'not refused' END;
		EXCEPTION WHEN insufficient_privilege OR SQLSTATE 'TR001' THEN
			RAISE INFO '%: %', regexp_replace(statement, '\d{4,}', 'OID', 'g'), replace(SQLERRM, current_user, 'SUPERUSER');
		END;
	END LOOP;
END
$$;
-- Nor do changes of other roles make sessions look again
BEGIN;
SELECT outbox_enqueue('e', '{}') IS NOT NULL;
SELECT pg_stat_get_xact_numscans('pg_depend_reference_index'::regclass) AS scans \gset
ALTER ROLE regress_outbox_evil CONNECTION LIMIT 10;
SELECT outbox_enqueue('e', '{}') IS NOT NULL, pg_stat_get_xact_numscans('pg_depend_reference_index'::regclass) - :scans AS looks;
ROLLBACK;

-- A table or sequence that was renamed or moved is not replaced by one with its name, which
-- whoever may create in the schema can make: calls fail until it has its name back.
CREATE PROCEDURE replaced(rename text, replacement text, route text DEFAULT 'default') LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	hint text;
BEGIN
	EXECUTE rename;
	EXECUTE replacement;
	SET LOCAL ROLE regress_outbox_evil;
	PERFORM public.outbox_enqueue('e', '{}', 'order', '1', route => replaced.route);
	RAISE EXCEPTION USING ERRCODE = 'TR001', MESSAGE = 'not refused';
EXCEPTION WHEN undefined_table OR SQLSTATE 'TR001' THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RAISE INFO '%: % % %', rename, SQLERRM, detail, hint;
END
$$;
INSERT INTO outbox_route (name, exchange, sequence) VALUES ('numbered', 'x', 'key');
CALL replaced('ALTER TABLE public.outbox RENAME TO theirs', 'CREATE TABLE public.outbox (LIKE public.theirs)');
CALL replaced('ALTER TABLE public.outbox SET SCHEMA regress_admin', 'CREATE TABLE public.outbox (LIKE regress_admin.outbox)');
CALL replaced('ALTER TABLE public.outbox_route RENAME TO theirs', 'CREATE VIEW public.outbox_route AS SELECT * FROM public.theirs');
CALL replaced('ALTER SEQUENCE public.outbox_seq_seq RENAME TO theirs', 'CREATE SEQUENCE public.outbox_seq_seq', 'numbered');
-- one that is the extension's no longer, too
CALL replaced('ALTER EXTENSION outbox DROP TABLE public.outbox_route', 'ALTER TABLE public.outbox_route SET (fillfactor = 90)');
-- The archive is not written by enqueue
CALL replaced('ALTER TABLE public.outbox_archive RENAME TO theirs', 'CREATE TABLE public.outbox_archive (LIKE public.theirs)');
-- nothing of it was kept
SELECT outbox_enqueue('e', '{}', 'order', '1', route => 'numbered') IS NOT NULL;
DROP PROCEDURE replaced;
TRUNCATE outbox, outbox_key_number;
DELETE FROM outbox_route WHERE name = 'numbered';

-- A partition that is dropped while the owners are looked at is none of them
BEGIN;
INSERT INTO pg_inherits VALUES (1, 'outbox_archive'::regclass, 1, false);
CREATE FUNCTION looked_at_again() RETURNS void LANGUAGE sql RETURN NULL::void;
SELECT outbox_enqueue('e', '{}') IS NOT NULL;
ROLLBACK;

SELECT outbox_pause();
SELECT outbox_resume('default');
TRUNCATE outbox;
DROP TABLE additions, found;
DROP VIEW dependents;
DROP PROCEDURE try_all;
DROP FUNCTION attempt;
DROP OWNED BY regress_outbox_evil CASCADE;
DROP ROLE regress_outbox_evil;
DROP SCHEMA regress_admin CASCADE;
RESET search_path;

-- A stranger's function that names the schema is not kept in memory, however large.
\c -
SET check_function_bodies = off;
DO $do$ BEGIN
	EXECUTE format('CREATE FUNCTION pg_temp.large(o oid DEFAULT ''outbox_internal''::regnamespace::oid) RETURNS int LANGUAGE sql AS %L',
		'SELECT 1 -- ' || (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300000) i));
END $do$;
SELECT outbox_enqueue('e', '{}') IS NOT NULL AS enqueued;
SELECT sum(used_bytes) < 5000000 AS small FROM pg_backend_memory_contexts WHERE name = 'CacheMemoryContext';
