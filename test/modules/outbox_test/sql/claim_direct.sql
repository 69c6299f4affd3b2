-- A claim without an executor: only of the plan that it knows, whatever somebody adds.
SELECT outbox_test_worker_session();
INSERT INTO outbox_route (name) VALUES ('a'), ('b');
TRUNCATE outbox RESTART IDENTITY;
INSERT INTO outbox (event_type, payload, route, available_at)
	SELECT 'e', to_jsonb(i), CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END,
		CASE WHEN i = 5 THEN now() + interval '1 day' END
	FROM generate_series(1, 6) i;
UPDATE outbox SET status = 'failed', attempts = 10, last_error = 'x' WHERE seq = 6;
CREATE FUNCTION pg_temp.seqs() RETURNS text LANGUAGE sql
	AS $$ SELECT string_agg(seq::text, ' ') FROM outbox_test_claim(after => 1, max_rows => 10) $$;
-- The way, and rows 2 to 4, which are ready
SELECT outbox_test_claim_way(), pg_temp.seqs();

-- Another index, with fewer rows, more rows, another order
BEGIN;
DROP INDEX outbox_ready;
CREATE INDEX narrow ON outbox (seq) WHERE status = 'pending' AND available_at IS NULL AND outlet IS NULL AND route = 'a';
SELECT outbox_test_claim_way(), pg_temp.seqs();
CREATE INDEX wide ON outbox (seq) WHERE outlet IS NULL;
SELECT outbox_test_claim_way(), pg_temp.seqs();
ROLLBACK;
BEGIN;
ALTER TABLE outbox DROP CONSTRAINT outbox_pkey CASCADE;
DROP INDEX outbox_ready;
CREATE INDEX backward ON outbox (seq DESC);
SELECT outbox_test_claim_way(), pg_temp.seqs();
ROLLBACK;

-- Rows of another table are rows of this one
BEGIN;
CREATE TABLE child () INHERITS (outbox);
INSERT INTO child (seq, event_type, payload, route) VALUES (3, 'e', '1', 'a');
SELECT outbox_test_claim_way(), pg_temp.seqs();
ROLLBACK;

-- A policy is part of the plan where it applies
CREATE ROLE outbox_regress_owner;
BEGIN;
GRANT SELECT, UPDATE ON outbox TO outbox_regress_owner;
ALTER VIEW outbox_internal.outbox SET (security_invoker = true);
GRANT USAGE ON SCHEMA outbox_internal TO outbox_regress_owner;
GRANT SELECT, UPDATE ON outbox_internal.outbox TO outbox_regress_owner;
ALTER TABLE outbox ENABLE ROW LEVEL SECURITY;
CREATE POLICY not_three ON outbox USING (seq <> 3);
SET LOCAL row_security = on;
SET LOCAL ROLE outbox_regress_owner;
SELECT outbox_test_claim_way(), pg_temp.seqs();
ROLLBACK;
-- Rights are asked for: here those of the view's owner
BEGIN;
GRANT CREATE ON SCHEMA outbox_internal TO outbox_regress_owner;
ALTER VIEW outbox_internal.outbox OWNER TO outbox_regress_owner;
SELECT outbox_test_claim_way();
SELECT pg_temp.seqs();
ROLLBACK;
DROP ROLE outbox_regress_owner;

-- A row is locked: the lock itself
BEGIN;
SELECT pg_temp.seqs();
SELECT seq, xmax::text = pg_current_xact_id()::text AS locked FROM outbox ORDER BY seq;
COMMIT;
TRUNCATE outbox;
DELETE FROM outbox_route WHERE name IN ('a', 'b');
