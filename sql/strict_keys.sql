-- How many keys one transaction may lock with outbox.strict_keys.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
\pset format unaligned
\pset tuples_only on
\set VERBOSITY terse
SET outbox.strict_keys = on;
TRUNCATE outbox;

CREATE FUNCTION lock_keys(prefix text, n bigint) RETURNS bigint LANGUAGE sql AS $$
	SELECT count(outbox_enqueue('e', '{}', aggregate_id => prefix || i)) FROM generate_series(1, n) i
$$;
-- in savepoints that are rolled back, with new keys in each; how many were refused
CREATE FUNCTION lock_in_vain(prefix text, n bigint, savepoints bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	refused int := 0;
BEGIN
	FOR i IN 1 .. savepoints LOOP
		BEGIN
			PERFORM lock_keys(format('%s %s ', prefix, i), n);
			RAISE division_by_zero;
		EXCEPTION
			WHEN configuration_limit_exceeded THEN refused := refused + 1;
			WHEN division_by_zero THEN NULL;
		END;
	END LOOP;
	RETURN refused;
END
$$;
CREATE VIEW locked AS
	SELECT count(*) AS keys FROM pg_locks
	WHERE locktype = 'advisory' AND objsubid = 3 AND pid = pg_backend_pid();

-- The limit depends on the server.  What is refused is undone, and no more.
DO $$
DECLARE
	done bigint := 0;
BEGIN
	LOOP
		PERFORM lock_keys('limit ' || done, 1);
		done := done + 1;
	END LOOP;
EXCEPTION WHEN configuration_limit_exceeded THEN
	PERFORM set_config('regress.allowed', done::text, false);
END
$$;
SELECT current_setting('regress.allowed')::bigint AS allowed \gset
SELECT :allowed > 100, keys FROM locked;
SELECT lock_keys('key', :allowed + 1);
SELECT count(*) FROM outbox;

-- Locks of savepoints that were rolled back do not count, however many
BEGIN;
SELECT lock_keys('first', :allowed / 2) = :allowed / 2;
SELECT lock_in_vain('half', :allowed / 2 - 1, 4);
SELECT keys = :allowed / 2 FROM locked;
-- nor do one or two in each of many, just below the limit
SELECT lock_keys('second', :allowed - :allowed / 2 - 2) > 0;
SELECT lock_in_vain('few', 2, :allowed / 16 + 2);
SELECT keys = :allowed - 2 FROM locked;
-- where more are refused, what there was before stays, and room for what is allowed
SELECT lock_in_vain('much', :allowed / 8, 2);
SELECT lock_keys('third', 2);
SAVEPOINT s;
SELECT lock_keys('key', :allowed / 8);
ROLLBACK TO s;
SELECT lock_keys('third', 2), keys = :allowed FROM locked;
COMMIT;
SELECT count(*) = :allowed + 2, count(DISTINCT aggregate_id) = :allowed FROM outbox;

-- A rollback may let a sixteenth more in, once
BEGIN;
SELECT lock_keys('first', :allowed - 2) > 0;
SELECT lock_in_vain('one', 1, 4);
DO $$
DECLARE
	n bigint := current_setting('regress.allowed')::bigint / 20;
BEGIN
	FOR i IN 1 .. 8 LOOP
		BEGIN
			PERFORM lock_keys(format('block %s ', i), n);
		EXCEPTION WHEN configuration_limit_exceeded THEN NULL;
		END;
	END LOOP;
END
$$;
SELECT keys <= :allowed * 17 / 16 FROM locked;
ROLLBACK;

-- and the next transaction begins with none
SELECT keys FROM locked;
BEGIN;
SELECT lock_keys('key', :allowed) = :allowed;
ROLLBACK;

TRUNCATE outbox;
DROP VIEW locked;
DROP FUNCTION lock_keys, lock_in_vain;
RESET outbox.strict_keys;
