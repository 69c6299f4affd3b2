/* outbox_chain--2.0.sql */

\echo Use "CREATE EXTENSION outbox_chain" to load this file. \quit

CREATE TABLE @extschema@.outbox_chain_table (n integer);

CREATE FUNCTION @extschema@.outbox_chain_argument(a text, b integer DEFAULT 0)
RETURNS text
LANGUAGE sql SECURITY DEFINER
AS $$ SELECT a || b $$;
COMMENT ON FUNCTION @extschema@.outbox_chain_argument(text, integer) IS 'Has got another argument.';

CREATE FUNCTION @extschema@.outbox_chain_result(OUT a integer, OUT b integer)
RETURNS record
LANGUAGE sql
AS $$ SELECT 1, 2 $$;

CREATE FUNCTION @extschema@.outbox_chain_default(a bigint)
RETURNS integer
LANGUAGE sql
AS $$ SELECT 1 $$;

CREATE VIEW @extschema@.outbox_chain_view AS SELECT * FROM @extschema@.outbox_chain_result();

CREATE TABLE @extschema@.outbox_chain_more (n integer GENERATED ALWAYS AS IDENTITY);
CREATE FUNCTION @extschema@.outbox_chain_new()
RETURNS integer
LANGUAGE sql
AS $$ SELECT 1 $$;

REVOKE ALL ON FUNCTION @extschema@.outbox_chain_argument(text, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.outbox_chain_result() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION @extschema@.outbox_chain_argument(text, integer), @extschema@.outbox_chain_result() TO pg_monitor;
