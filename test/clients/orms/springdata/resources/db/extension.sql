--liquibase formatted sql

--changeset shop:1
CREATE SCHEMA outbox;
CREATE EXTENSION outbox SCHEMA outbox;
--rollback DROP EXTENSION outbox; DROP SCHEMA outbox;
