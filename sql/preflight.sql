-- outbox_preflight() where there is no broker; the rest is in test/t/preflight.pl.
-- What may differ between servers (processes, outbox.enabled, partitions) is left out.
SET outbox.broker_uri = 'amqp://guest@127.0.0.1:1';

CREATE FUNCTION pg_temp.broker_rows(route text DEFAULT NULL)
RETURNS TABLE ("check" text, ok boolean, detail text, hint text)
LANGUAGE sql AS $$
	SELECT p.* FROM outbox_preflight(route) p
	WHERE p."check" IN ('settings', 'password file', 'name', 'TCP', 'TLS', 'login',
			'virtual host', 'exchange', 'write', 'binding')
		AND p.detail NOT LIKE 'outbox.enabled%'
$$;

SELECT "check", ok, detail FROM pg_temp.broker_rows('default');
SELECT "check" FROM pg_temp.broker_rows('default') WHERE NOT ok AND hint <> '';

-- several hosts, with TLS; a user without a password; a name that is none
SET outbox.broker_uri = 'amqps://guest@127.0.0.1:1,[::1]:1/shop';
SELECT "check", ok FROM pg_temp.broker_rows('default') WHERE "check" IN ('TCP', 'TLS');
SET outbox.broker_uri = 'amqp://relay@127.0.0.1:1';
SELECT "check", ok, detail FROM pg_temp.broker_rows('default') WHERE "check" IN ('password file', 'TCP');
SET outbox.passfile = '/nowhere/passfile';
SELECT "check", ok, detail FROM pg_temp.broker_rows('default') WHERE "check" = 'password file';
RESET outbox.passfile;
SET outbox.broker_uri = 'amqp://guest@127.0.0.1:1';

-- arguments
\set SHOW_CONTEXT never
SELECT outbox_preflight('nobody');
SELECT outbox_preflight(routing_key => 'k');
SELECT outbox_preflight('default', publish => true);
SELECT outbox_preflight('default', repeat('k', 256));
SELECT outbox_internal.outbox_preflight_broker('{NULL}', '{NULL}', '{x}', NULL, false);
SELECT outbox_internal.outbox_preflight_broker('{outbox}', '{NULL}', '{NULL}', NULL, false);
SELECT outbox_internal.outbox_preflight_broker('{outbox}', '{}', '{x}', NULL, false);
SELECT outbox_internal.outbox_preflight_broker('{outbox}', NULL, '{x}', NULL, false);
SELECT outbox_internal.outbox_preflight_broker('{outbox}', '{NULL}', '{x}', NULL, true);
SELECT DISTINCT "check" FROM outbox_preflight('default', 'k', true) WHERE "check" = 'binding' AND ok IS NULL;

-- it does what it is called for in a read-only transaction, and in one that has failed parts
BEGIN READ ONLY;
SELECT count(*) > 10 FROM outbox_preflight();
SAVEPOINT s;
SET LOCAL statement_timeout = 1;
SELECT count(*) FROM outbox_preflight();
ROLLBACK TO s;
SELECT count(*) > 10 FROM outbox_preflight();
COMMIT;

-- each grant, and each role that a route wants and that is not there
CREATE ROLE regress_outbox_preflight;
SELECT detail !~ 'regress_outbox_preflight' FROM outbox_preflight() WHERE "check" = 'grants';
GRANT INSERT (event_type) ON outbox TO regress_outbox_preflight;
UPDATE outbox_route SET enqueue_roles = '{regress_outbox_preflight}' WHERE name = 'default';
SELECT detail ~ 'regress_outbox_preflight' FROM outbox_preflight() WHERE "check" = 'grants';

-- who may enqueue, and cannot use the schema
BEGIN;
REVOKE USAGE ON SCHEMA public FROM PUBLIC;
SELECT ok, detail, hint FROM outbox_preflight() WHERE "check" = 'grants' AND detail ~ 'schema';
GRANT USAGE ON SCHEMA public TO regress_outbox_preflight;
SELECT ok, detail, hint FROM outbox_preflight() WHERE "check" = 'grants' AND detail ~ 'schema';
ROLLBACK;

-- nobody but those who were granted it, and those need nothing else
SET ROLE regress_outbox_preflight;
SELECT count(*) FROM outbox_preflight();
RESET ROLE;
GRANT EXECUTE ON FUNCTION outbox_preflight TO regress_outbox_preflight;
SET ROLE regress_outbox_preflight;
SELECT count(*) > 10 FROM outbox_preflight();
SELECT outbox_internal.outbox_preflight_server();
SELECT outbox_internal.outbox_preflight_broker('{outbox}', '{NULL}', '{x}', NULL, false);
SELECT outbox_internal.outbox_preflight_database();
RESET ROLE;

REVOKE INSERT (event_type) ON outbox FROM regress_outbox_preflight;
REVOKE EXECUTE ON FUNCTION outbox_preflight FROM regress_outbox_preflight;
DROP ROLE regress_outbox_preflight;
SELECT ok, detail, hint FROM outbox_preflight() WHERE "check" = 'grants' AND NOT ok;
UPDATE outbox_route SET enqueue_roles = NULL WHERE name = 'default';

-- a table that a tool has made of the model of outbox_new, and that takes its messages
CREATE SCHEMA regress_outbox_tool;
SELECT count(*) FROM outbox_preflight() WHERE "check" = 'names';
CREATE TABLE regress_outbox_tool.outbox_new (id uuid);
SELECT ok, detail, hint FROM outbox_preflight() WHERE "check" = 'names';
DROP SCHEMA regress_outbox_tool CASCADE;

-- one line about all routes on which a failed message does not stop its key
SELECT ok, detail, hint FROM outbox_preflight() WHERE "check" = 'order';
INSERT INTO outbox_route (name, exchange, ordering) VALUES ('b', 'x', 'pipelined'), ('c', 'x', 'key'), ('e', 'x', 'key'), ('n', 'x', 'none');
SELECT ok, detail, hint FROM outbox_preflight() WHERE "check" = 'order';
UPDATE outbox_route SET on_failed = 'block' WHERE ordering <> 'none';
SELECT count(*) FROM outbox_preflight() WHERE "check" = 'order';
DELETE FROM outbox_route WHERE name <> 'default';
UPDATE outbox_route SET on_failed = 'skip';

-- a copy in another environment, also where no relay runs that would notice
SELECT ok, detail FROM outbox_preflight() WHERE "check" = 'replication' AND detail ~ 'messages';
BEGIN;
UPDATE outbox_control SET environment = 'elsewhere';
SELECT ok, detail, hint FROM outbox_preflight() WHERE "check" = 'replication' AND detail ~ 'messages';
ROLLBACK;
