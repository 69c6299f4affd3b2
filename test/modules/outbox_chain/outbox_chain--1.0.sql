/* outbox_chain--1.0.sql */

\echo Use "CREATE EXTENSION outbox_chain" to load this file. \quit

CREATE TABLE @extschema@.outbox_chain_table (n integer);

CREATE FUNCTION @extschema@.outbox_chain_argument(a text)
RETURNS text
LANGUAGE sql SECURITY DEFINER
AS $$ SELECT a $$;
COMMENT ON FUNCTION @extschema@.outbox_chain_argument(text) IS 'Gets another argument.';

CREATE FUNCTION @extschema@.outbox_chain_result(OUT a integer)
RETURNS integer
LANGUAGE sql
AS $$ SELECT 1 $$;

CREATE FUNCTION @extschema@.outbox_chain_default(a integer)
RETURNS integer
LANGUAGE sql
AS $$ SELECT 1 $$;

CREATE VIEW @extschema@.outbox_chain_view AS SELECT * FROM @extschema@.outbox_chain_result();

REVOKE ALL ON FUNCTION @extschema@.outbox_chain_argument(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.outbox_chain_result() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION @extschema@.outbox_chain_argument(text), @extschema@.outbox_chain_result() TO pg_monitor;
