/* How an update script of outbox begins: see the Makefile. */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION outbox UPDATE" to load this file. \quit

/* As in the installation script, the schema is not in the path. */
SET LOCAL search_path = pg_catalog, pg_temp;

/*
 * With a function that is dropped go the rights that an administrator has given,
 * and taken.  So one whose arguments or result change steps aside first:
 *
 *	ALTER FUNCTION @extschema@.outbox_f(text) RENAME TO outbox_old_f;
 *	CREATE FUNCTION @extschema@.outbox_f(text, integer) ...
 *	(its COMMENT, REVOKE and GRANT, and views and functions that call it)
 *	SELECT @extschema@.outbox_update_rights(
 *		'@extschema@.outbox_old_f(text)'::pg_catalog.regprocedure,
 *		'@extschema@.outbox_f(text, integer)'::pg_catalog.regprocedure);
 *	DROP FUNCTION @extschema@.outbox_old_f(text);
 *
 * What differs between the rights of the old one and those that it was made with
 * (pg_init_privs) is the administrator's.  The new one gets these as grants of its
 * owner, whoever granted them, and they must not count as made with it: pg_dump
 * would leave them out.
 *
 * The types are said: an overload that another role has made before the update could
 * fit plain literals better.
 */
CREATE FUNCTION @extschema@.outbox_update_rights(old regprocedure, new regprocedure)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
	owner constant oid := (SELECT proowner FROM pg_proc WHERE oid = old);
	creator constant oid := (SELECT proowner FROM pg_proc WHERE oid = new);
	/* Whom the initial rights of the old one name as its owner. */
	maker constant oid := coalesce((SELECT a.grantor
		FROM pg_init_privs i, aclexplode(i.initprivs) a
		WHERE i.classoid = 'pg_proc'::regclass AND i.objoid = old AND i.objsubid = 0
		LIMIT 1), owner);
	made constant aclitem[] := (SELECT array_agg(makeaclitem(
			CASE a.grantee WHEN creator THEN maker ELSE a.grantee END,
			CASE a.grantor WHEN creator THEN maker ELSE a.grantor END,
			a.privilege_type, a.is_grantable))
		FROM pg_init_privs i, aclexplode(i.initprivs) a
		WHERE i.classoid = 'pg_proc'::regclass AND i.objoid = new AND i.objsubid = 0);
	this constant oid := (SELECT oid FROM pg_database WHERE datname = current_database());
	item record;
	role text;
BEGIN
	EXECUTE format('ALTER FUNCTION %s OWNER TO %s', new, owner::regrole);
	FOR item IN
		WITH rights AS (
			SELECT a.grantee, a.privilege_type, a.is_grantable, true AS given
			FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', owner))) a
			WHERE p.oid = old AND a.grantee <> owner
		), initial AS (
			SELECT a.grantee, a.privilege_type, a.is_grantable, false AS given
			FROM pg_proc p
				LEFT JOIN pg_init_privs i ON i.objoid = p.oid AND i.objsubid = 0
					AND i.classoid = 'pg_proc'::regclass,
				aclexplode(coalesce(i.initprivs, acldefault('f', owner))) a
			WHERE p.oid = old AND a.grantee <> owner AND a.grantee <> a.grantor
		)
		SELECT d.*
		FROM (SELECT * FROM rights UNION ALL SELECT * FROM initial) d
		WHERE (SELECT count(*) FROM rights r WHERE (r.grantee, r.privilege_type, r.is_grantable)
					= (d.grantee, d.privilege_type, d.is_grantable))
			<> (SELECT count(*) FROM initial i WHERE (i.grantee, i.privilege_type, i.is_grantable)
					= (d.grantee, d.privilege_type, d.is_grantable))
		ORDER BY d.given		/* first what was taken */
	LOOP
		role := CASE item.grantee WHEN 0 THEN 'PUBLIC' ELSE item.grantee::regrole::text END;
		IF item.given THEN
			EXECUTE format('GRANT %s ON FUNCTION %s TO %s %s', item.privilege_type, new,
				role, CASE WHEN item.is_grantable THEN 'WITH GRANT OPTION' ELSE '' END);
		ELSE
			EXECUTE format('REVOKE %s ON FUNCTION %s FROM %s CASCADE', item.privilege_type, new, role);
		END IF;
	END LOOP;

	DELETE FROM pg_init_privs
	WHERE classoid = 'pg_proc'::regclass AND objoid = new AND made IS NULL;
	UPDATE pg_init_privs SET initprivs = made
	WHERE classoid = 'pg_proc'::regclass AND objoid = new;
	/* From PostgreSQL 17 on the roles in it are recorded, but for the server's own. */
	IF current_setting('server_version_num')::integer >= 170000 THEN
		DELETE FROM pg_shdepend
		WHERE dbid = this AND classid = 'pg_proc'::regclass AND objid = new AND deptype = 'i';
		INSERT INTO pg_shdepend (dbid, classid, objid, objsubid, refclassid, refobjid, deptype)
		SELECT DISTINCT this, 'pg_proc'::regclass, new, 0, 'pg_authid'::regclass, r.oid, 'i'::"char"
		FROM aclexplode(made) a JOIN pg_authid r ON r.oid IN (a.grantee, a.grantor)
		WHERE r.oid >= 16384;
	END IF;
END
$$;

/* Whose what is, before; see end.sql. */
SELECT pg_catalog.set_config('outbox_update.members',
	(SELECT pg_catalog.string_agg(pg_catalog.format('%s %s', d.classid, d.objid), ',')
	 FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
	 WHERE d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
		AND d.deptype = 'e' AND e.extname = 'outbox'), true);

