/*
 * What is new belongs to whoever runs this.  It must belong to the owner of the
 * tables, as whom the relay and the functions act, whoever that is by now.
 */
DO $$
DECLARE
	tables_owner constant pg_catalog.oid := (SELECT c.relowner FROM pg_catalog.pg_class c
		WHERE c.oid = '@extschema@.outbox'::pg_catalog.regclass);
	command pg_catalog.text;
BEGIN
	FOR command IN
		SELECT pg_catalog.format('ALTER %s %s OWNER TO %s', m.kind, m.name,
			tables_owner::pg_catalog.regrole)
		FROM pg_catalog.pg_depend d
			JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid,
			LATERAL (
				SELECT 'ROUTINE', p.oid::pg_catalog.regprocedure::pg_catalog.text, p.proowner
				FROM pg_catalog.pg_proc p
				WHERE d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND p.oid = d.objid
				UNION ALL
				SELECT CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
					c.oid::pg_catalog.regclass::pg_catalog.text, c.relowner
				FROM pg_catalog.pg_class c
				WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND c.oid = d.objid
					/* one of a column goes with its table */
					AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend l
						WHERE c.relkind = 'S' AND l.deptype IN ('a', 'i')
							AND l.classid = d.classid AND l.objid = c.oid)
			) m(kind, name, owner)
		WHERE d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
			AND d.deptype = 'e' AND e.extname = 'outbox'
			AND m.owner <> tables_owner
			AND pg_catalog.format('%s %s', d.classid, d.objid)
				<> ALL (pg_catalog.string_to_array(pg_catalog.current_setting('outbox_update.members'), ','))
	LOOP
		EXECUTE command;
	END LOOP;
END
$$;

DROP FUNCTION @extschema@.outbox_update_rights(regprocedure, regprocedure);
