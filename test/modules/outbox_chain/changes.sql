
ALTER FUNCTION @extschema@.outbox_chain_argument(text) RENAME TO outbox_old_argument;
CREATE FUNCTION @extschema@.outbox_chain_argument(a text, b integer DEFAULT 0)
RETURNS text
LANGUAGE sql SECURITY DEFINER
AS $$ SELECT a || b $$;
COMMENT ON FUNCTION @extschema@.outbox_chain_argument(text, integer) IS 'Has got another argument.';
REVOKE ALL ON FUNCTION @extschema@.outbox_chain_argument(text, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION @extschema@.outbox_chain_argument(text, integer) TO pg_monitor;
SELECT @extschema@.outbox_update_rights('@extschema@.outbox_old_argument(text)'::pg_catalog.regprocedure,
	'@extschema@.outbox_chain_argument(text, integer)'::pg_catalog.regprocedure);
DROP FUNCTION @extschema@.outbox_old_argument(text);

ALTER FUNCTION @extschema@.outbox_chain_result() RENAME TO outbox_old_result;
CREATE FUNCTION @extschema@.outbox_chain_result(OUT a integer, OUT b integer)
RETURNS record
LANGUAGE sql
AS $$ SELECT 1, 2 $$;
REVOKE ALL ON FUNCTION @extschema@.outbox_chain_result() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION @extschema@.outbox_chain_result() TO pg_monitor;
CREATE OR REPLACE VIEW @extschema@.outbox_chain_view AS SELECT * FROM @extschema@.outbox_chain_result();
SELECT @extschema@.outbox_update_rights('@extschema@.outbox_old_result()'::pg_catalog.regprocedure,
	'@extschema@.outbox_chain_result()'::pg_catalog.regprocedure);
DROP FUNCTION @extschema@.outbox_old_result();

ALTER FUNCTION @extschema@.outbox_chain_default(integer) RENAME TO outbox_old_default;
CREATE FUNCTION @extschema@.outbox_chain_default(a bigint)
RETURNS integer
LANGUAGE sql
AS $$ SELECT 1 $$;
SELECT @extschema@.outbox_update_rights('@extschema@.outbox_old_default(integer)'::pg_catalog.regprocedure,
	'@extschema@.outbox_chain_default(bigint)'::pg_catalog.regprocedure);
DROP FUNCTION @extschema@.outbox_old_default(integer);

CREATE TABLE @extschema@.outbox_chain_more (n integer GENERATED ALWAYS AS IDENTITY);
CREATE FUNCTION @extschema@.outbox_chain_new()
RETURNS integer
LANGUAGE sql
AS $$ SELECT 1 $$;

