/* outbox--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION outbox" to load this file. \quit

/*
 * Operators and functions of others that lie in the target schema must not be
 * taken for PostgreSQL's, not even where theirs fit better.  So the schema is not
 * in the path, and what is ours is named with it.
 */
SET LOCAL search_path = pg_catalog, pg_temp;

/*
 * What users do not call has a schema of its own, in which nobody but the owner of
 * the extension can create anything.  The chosen schema may belong to anybody: its
 * owner may rename it, and others may have functions of our names in it.  So nothing
 * of ours looks a name up there when it runs.  Views, defaults, triggers, indexes and
 * functions with BEGIN ATOMIC are bound when they are created, that is now; PL/pgSQL
 * and the statements of the library name objects of pg_catalog and of outbox_internal
 * only, and reach the tables through the views of the same names there.
 */
DO $$
BEGIN
	IF '@extschema@' = 'outbox_internal' THEN
		RAISE EXCEPTION 'cannot create extension "outbox" in schema "outbox_internal"'
			USING ERRCODE = 'duplicate_schema',
				DETAIL = 'CREATE EXTENSION creates that schema itself, for what only the extension uses.',
				HINT = 'Drop the schema, and create the extension in another one.';
	ELSIF to_regnamespace('outbox_internal') IS NOT NULL THEN
		RAISE EXCEPTION 'schema "outbox_internal" already exists'
			USING ERRCODE = 'duplicate_schema',
				DETAIL = 'CREATE EXTENSION creates it, for what only the extension uses.',
				HINT = 'Rename it or drop it.';
	END IF;
END
$$;
CREATE SCHEMA outbox_internal;
COMMENT ON SCHEMA outbox_internal IS
'What only the extension outbox uses: nothing here is for users, and any of it may change.';

/*
 * ALTER DEFAULT PRIVILEGES may have granted what is created here to others.  With
 * TRIGGER on a table somebody would have the rights of its owner.
 */
CREATE FUNCTION outbox_internal.outbox_revoke_all(class regclass, object oid)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	granted record;
BEGIN
	FOR granted IN
		SELECT DISTINCT o.kind, o.name, a.grantee
		FROM (SELECT 'ROUTINE' AS kind, p.oid::regprocedure::text AS name, p.proowner AS owner,
				coalesce(p.proacl, acldefault('f'::"char", p.proowner)) AS acl
			FROM pg_proc p WHERE p.oid = $2 AND $1 = 'pg_proc'::regclass
			UNION ALL
			SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
				c.oid::regclass::text, c.relowner, c.relacl
			FROM pg_class c WHERE c.oid = $2 AND $1 = 'pg_class'::regclass
			UNION ALL
			SELECT 'SCHEMA', n.oid::regnamespace::text, n.nspowner, n.nspacl
			FROM pg_namespace n WHERE n.oid = $2 AND $1 = 'pg_namespace'::regclass) o,
			aclexplode(o.acl) a
		WHERE a.grantee <> o.owner
	LOOP
		EXECUTE format('REVOKE ALL ON %s %s FROM %s', granted.kind, granted.name,
			CASE granted.grantee WHEN 0 THEN 'PUBLIC' ELSE granted.grantee::regrole::text END);
	END LOOP;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_revoke_all(regclass, oid) IS
'Revokes all rights on an object of that catalog (pg_class, pg_proc, pg_namespace) from everybody but its owner.';

SELECT outbox_internal.outbox_revoke_all('pg_namespace'::regclass, 'outbox_internal'::regnamespace::oid);

CREATE FUNCTION outbox_internal.outbox_act_as_owner()
RETURNS void
AS 'MODULE_PATHNAME', 'outbox_act_as_owner'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION outbox_internal.outbox_act_as_owner() IS
'First in each function that runs as its owner: loads the library, without which SET outbox.as_owner = on does nothing, and begins a security-restricted operation. Errors: 42501 an object of the extension belongs to another role.';

CREATE FUNCTION outbox_internal.outbox_lock_table(relation oid, mode text, wait boolean)
RETURNS void
AS 'MODULE_PATHNAME', 'outbox_lock_table'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

COMMENT ON FUNCTION outbox_internal.outbox_lock_table(oid, text, boolean) IS
'LOCK TABLE ONLY of a table that is known by its OID; mode as in pg_locks (''ExclusiveLock''). Errors: 42P01 it is gone, 55P03 it is locked and wait is false.';

CREATE FUNCTION outbox_internal.outbox_alter_table(relation oid, command text)
RETURNS void
AS 'MODULE_PATHNAME', 'outbox_alter_table'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

COMMENT ON FUNCTION outbox_internal.outbox_alter_table(oid, text) IS
'ALTER TABLE of a table that is known by its OID; command is what comes after the name.';

