-- A build without src/debezium: there is no outlet 'cdc', and an error says which ones there are
SET search_path = public, outbox_regress;
\set SHOW_CONTEXT never
INSERT INTO outbox_route (name, relay) VALUES ('r', 'cdc');
\echo :LAST_ERROR_SQLSTATE
