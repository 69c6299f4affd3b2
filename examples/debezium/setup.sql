-- What Debezium needs in the database: run by a superuser, or by the owner of the
-- extension with CREATE on the database and REPLICATION. wal_level must be logical.
-- [setup]
CREATE ROLE debezium LOGIN REPLICATION;
CREATE PUBLICATION outbox_cdc
    FOR TABLE outbox (id, event_type, aggregate_type, aggregate_id, payload, headers)
    WHERE (outlet = 'cdc') WITH (publish = 'insert');
SELECT pg_create_logical_replication_slot('outbox_cdc', 'pgoutput');
INSERT INTO outbox_route (name, exchange, relay, slot) VALUES ('cdc', '', 'cdc', 'outbox_cdc');
-- [/setup]
