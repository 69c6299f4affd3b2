-- First part of polling.sql and the like: a schema for what the migration needs. It is
-- dropped when the migration is over.

\set ON_ERROR_STOP on
SELECT quote_ident(n.nspname) AS outbox_schema
FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'outbox' \gset
\if :{?outbox_schema}
\else
	\warn the extension outbox is not in this database
	SELECT 1 / 0;
\endif

CREATE SCHEMA :migration;

-- The message_id of an old row: its own id where that is a UUID, else one that is made
-- of the row's id (a UUID of version 8, RFC 9562 appendix B.2), always the same.
CREATE FUNCTION :migration.message_id(source text, old_id text) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
	SELECT CASE
		WHEN old_id ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN old_id::uuid
		ELSE (substr(hash, 1, 12) || '8' || substr(hash, 14, 3) || '8' || substr(hash, 18, 15))::uuid
		END
	FROM encode(sha256(convert_to(source || '/' || old_id, 'UTF8')), 'hex') AS hash;
END;

-- What was moved, and as what: a row is moved once, whatever becomes of it in the old
-- table. old_row is kept where moving has removed it there.
CREATE TABLE :migration.moved (
	old_id :id_type PRIMARY KEY,
	message_id uuid NOT NULL UNIQUE,
	old_row jsonb,
	moved_at timestamptz NOT NULL DEFAULT now()
);
