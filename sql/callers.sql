-- Whose right counts where others have our functions called: doc/dev/fault-cases.md, L3.  What the
-- server evaluates for a table's owner counts as his call, whoever maintains the table; what it
-- evaluates for who writes or reads is the call of that role.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
SET outbox.enabled = on;
\pset format unaligned
\pset tuples_only on
CREATE ROLE regress_outbox_thief;
CREATE ROLE regress_outbox_tenant;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO regress_outbox_thief;
INSERT INTO outbox_route (name, relay, enqueue_roles, relay_roles) VALUES
	('closed', 'internal', '{regress_outbox_tenant}', NULL), ('leased', 'external', NULL, '{regress_outbox_tenant}');
INSERT INTO outbox (id, event_type, payload, route) VALUES
	('00000000-0000-7000-8000-000000000001', 'e', '{}', 'leased'), ('00000000-0000-7000-8000-000000000002', 'e', '{}', 'closed');
INSERT INTO outbox_internal.outbox_lease (token, route, claimed_by, expires_at, ids, keys)
	VALUES (1, 'leased', current_user, 'infinity', '{00000000-0000-7000-8000-000000000001}', '{0}');

-- The functions that ask for a right to a route
CREATE SCHEMA regress_thief AUTHORIZATION regress_outbox_thief;
GRANT USAGE ON SCHEMA regress_thief TO PUBLIC;
CREATE TABLE outbox_regress.outcomes (place text, call text, outcome text);
GRANT INSERT ON outcomes TO PUBLIC;
GRANT USAGE ON SCHEMA outbox_regress TO PUBLIC;
SET ROLE regress_outbox_thief;
-- outbox_capture() asks for the right of the table's owner, whoever writes
CREATE TABLE regress_thief.captured (id integer PRIMARY KEY);
CREATE TRIGGER c AFTER INSERT ON regress_thief.captured FOR EACH ROW EXECUTE FUNCTION public.outbox_capture('route=closed');
CREATE FUNCTION regress_thief.capture() RETURNS boolean LANGUAGE plpgsql
	AS 'BEGIN INSERT INTO regress_thief.captured VALUES (1); RETURN true; END';
CREATE FUNCTION regress_thief.try(place text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	call text;
BEGIN
	FOREACH call IN ARRAY ARRAY[
		$q$public.outbox_enqueue('stolen', '{}', route => 'closed')$q$,
		$q$public.outbox_enqueue_bytes('stolen', '', route => 'closed')$q$,
		$q$public.outbox_enqueue_text('stolen', '{}', route => 'closed')$q$,
		$q$count(*) FROM public.outbox_enqueue_batch('[{"event_type": "stolen", "payload": 1, "route": "closed"}]')$q$,
		$q$public.outbox_enqueue_once('k', 'stolen', '{}', route => 'closed')$q$,
		$q$CASE public.outbox_wait('00000000-0000-7000-8000-000000000002', '0') WHEN 'unknown' THEN NULL ELSE 'known' END$q$,
		$q$count(*) FROM public.outbox_claim('leased')$q$, $q$public.outbox_extend(1)$q$, $q$public.outbox_ack(1)$q$,
		$q$public.outbox_nack(1, '00000000-0000-7000-8000-000000000001', 'no')$q$, $q$public.outbox_release(1)$q$,
		$q$regress_thief.capture()$q$]
	LOOP
		DECLARE
			result text;
			outcome text;
		BEGIN
			EXECUTE 'SELECT ' || call INTO result;
			outcome := CASE WHEN result IS NULL THEN 'told nothing' ELSE 'went' END;
			/* The next one finds all as it was. */
			RAISE EXCEPTION USING ERRCODE = 'RB000';
		EXCEPTION
			WHEN SQLSTATE 'RB000' THEN
				INSERT INTO outbox_regress.outcomes VALUES (place, call, outcome);
			WHEN insufficient_privilege THEN
				INSERT INTO outbox_regress.outcomes VALUES (place, call, 'refused');
		END;
	END LOOP;
	RETURN place;
END
$$;
CREATE FUNCTION regress_thief.steal(place text) RETURNS text IMMUTABLE LANGUAGE plpgsql
	AS 'BEGIN RETURN regress_thief.try(place); END';
CREATE FUNCTION regress_thief.fires() RETURNS trigger LANGUAGE plpgsql
	AS 'BEGIN PERFORM regress_thief.steal(TG_ARGV[0]); RETURN NEW; END';
CREATE TABLE regress_thief.bait (t text);
INSERT INTO regress_thief.bait VALUES ('index');
CREATE INDEX bait_index ON regress_thief.bait (regress_thief.steal(t));
CREATE TABLE regress_thief.partial AS SELECT 'index predicate'::text AS t;
CREATE INDEX partial_index ON regress_thief.partial (t) WHERE regress_thief.steal(t) > '';
CREATE TABLE regress_thief.counted AS SELECT 'statistics'::text AS t, 1 AS n;
CREATE STATISTICS regress_thief.s ON regress_thief.steal(t), n FROM regress_thief.counted;
CREATE MATERIALIZED VIEW regress_thief.m AS SELECT regress_thief.steal('materialized view') WITH NO DATA;
CREATE TABLE regress_thief.added (t text, g text GENERATED ALWAYS AS (regress_thief.steal(t)) STORED);
CREATE TABLE regress_thief.checked (t text);
INSERT INTO regress_thief.checked VALUES ('check, validated');
ALTER TABLE regress_thief.checked ADD CONSTRAINT c CHECK (regress_thief.steal(t) > '') NOT VALID;
CREATE DOMAIN regress_thief.d AS text CHECK (regress_thief.steal(VALUE) > '');
CREATE VIEW regress_thief.v AS SELECT regress_thief.steal('view') AS t;
CREATE TABLE regress_thief.fired (t text DEFAULT regress_thief.steal('default'));
CREATE TRIGGER t BEFORE INSERT ON regress_thief.fired FOR EACH ROW EXECUTE FUNCTION regress_thief.fires('trigger');
GRANT ALL ON ALL TABLES IN SCHEMA regress_thief TO PUBLIC;
RESET ROLE;

-- The superuser maintains the thief's objects: calls of the thief, nothing of which goes
TRUNCATE outcomes;
ANALYZE regress_thief.bait, regress_thief.counted;
REINDEX TABLE regress_thief.bait;
REINDEX TABLE regress_thief.partial;
VACUUM (FULL, ANALYZE) regress_thief.bait;
CLUSTER regress_thief.bait USING bait_index;
REFRESH MATERIALIZED VIEW regress_thief.m;
SELECT place, outcome, count(DISTINCT call) FROM outcomes GROUP BY place, outcome ORDER BY place COLLATE "C", outcome;
-- he writes and reads himself what the thief has made: his own calls, which may do all that he may
TRUNCATE outcomes;
INSERT INTO regress_thief.bait VALUES ('index, written');
INSERT INTO regress_thief.added VALUES ('generated column');
INSERT INTO regress_thief.checked VALUES ('check');
SELECT 'domain'::regress_thief.d;
SELECT t FROM regress_thief.v;
INSERT INTO regress_thief.fired DEFAULT VALUES;
SELECT place, outcome, count(DISTINCT call) FROM outcomes GROUP BY place, outcome ORDER BY place COLLATE "C", outcome;
-- and the other way round: the thief uses what the superuser has made with the same calls
TRUNCATE outcomes;
CREATE VIEW lent AS SELECT regress_thief.steal('view of the superuser') AS t;
CREATE TABLE lent_table (t text CHECK (regress_thief.steal(t) > ''));
GRANT ALL ON lent, lent_table TO regress_outbox_thief;
SET ROLE regress_outbox_thief;
SELECT t FROM lent;
INSERT INTO lent_table VALUES ('check of the superuser');
RESET ROLE;
SELECT place, outcome, count(DISTINCT call) FROM outcomes GROUP BY place, outcome ORDER BY place COLLATE "C", outcome;

DROP SCHEMA regress_thief CASCADE;
DROP TABLE outcomes, lent_table;
DELETE FROM outbox_internal.outbox_lease;
DELETE FROM outbox;
DELETE FROM outbox_internal.outbox_once;
DELETE FROM outbox_route WHERE name IN ('closed', 'leased');
DROP OWNED BY regress_outbox_thief, regress_outbox_tenant;
DROP ROLE regress_outbox_thief, regress_outbox_tenant;
RESET outbox.enabled;
RESET search_path;
