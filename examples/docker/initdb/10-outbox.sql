-- Run once, in the database POSTGRES_DB, when the cluster is made.
CREATE EXTENSION outbox;
