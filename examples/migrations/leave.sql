-- Last part of leave-table.sql and the like: takes messages out of outbox and puts them where
-- :insert says, in one transaction for each :chunk (1000), in their order. :route (default) is one
-- route; pause it first: SELECT outbox_pause('default'). It can be interrupted, and run again.
-- Messages of bytes (body, no payload) are refused unless :insert moves them, which
-- -v bytes=moved says, or -v bytes=lost.

\set ON_ERROR_STOP on
\if :{?route}
\else
	\set route default
\endif
\if :{?bytes}
\else
	\set bytes refused
\endif
\if :{?chunk}
\else
	\set chunk 1000
\endif
SELECT quote_ident(n.nspname) AS outbox_schema
FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'outbox' \gset

BEGIN;
SET LOCAL client_min_messages = warning;
DROP SCHEMA IF EXISTS outbox_leaving CASCADE;
CREATE SCHEMA outbox_leaving;

CREATE FUNCTION outbox_leaving.put(messages :outbox_schema.outbox[]) RETURNS void LANGUAGE sql
BEGIN ATOMIC
	:insert;
END;

-- What a worker has in its memory cannot be removed: it is published, or waits again, within seconds.
-- Later messages of its key would be before it, so nothing is moved then.
CREATE FUNCTION outbox_leaving.leave(route text, max_rows bigint, bytes text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, :outbox_schema, pg_temp AS $$
DECLARE
	messages outbox[];
	removed bigint;
BEGIN
	-- never NULL, of which outbox_discard_messages() would think that it means all
	messages := ARRAY(SELECT o FROM outbox o WHERE o.route = leave.route ORDER BY o.seq LIMIT max_rows FOR UPDATE);
	IF bytes NOT IN ('moved', 'lost') AND EXISTS (SELECT FROM unnest(messages) m WHERE m.payload IS NULL) THEN
		RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
			MESSAGE = format('route "%s" has messages of bytes (body), which are not moved', leave.route),
			HINT = 'Let them be published first, or run this with -v bytes=lost, or with an :insert that moves them and -v bytes=moved.';
	END IF;
	SELECT sum(outbox_discard_messages('moved out of outbox', s, ids => ARRAY(SELECT m.id FROM unnest(messages) m)))
	INTO removed FROM unnest('{pending,failed}'::text[]) s;
	IF removed < cardinality(messages) THEN
		RAISE EXCEPTION USING ERRCODE = 'object_in_use',
			MESSAGE = format('%s messages of route "%s" are in flight', cardinality(messages) - removed, leave.route),
			HINT = 'Pause the route (outbox_pause), wait some seconds, and try again.';
	END IF;
	PERFORM outbox_leaving.put(messages);
	RETURN removed;
END
$$;
COMMIT;

SELECT format('SELECT outbox_leaving.leave(%L, %s, %L) AS moved', :'route', :'chunk', :'bytes')
FROM generate_series(0, (SELECT count(*) FROM :outbox_schema.outbox WHERE route = :'route') / :chunk) \gexec
SELECT count(*) AS left FROM :outbox_schema.outbox WHERE route = :'route';
DROP FUNCTION outbox_leaving.put, outbox_leaving.leave;
DROP SCHEMA outbox_leaving;
