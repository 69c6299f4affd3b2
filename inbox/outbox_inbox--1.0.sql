/* outbox_inbox--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION outbox_inbox" to load this file. \quit

/*
 * This script is also the text of outbox_inbox.sql, for databases that can have no
 * extension (inbox/single-file makes it).  So it is plain SQL, and what only an
 * extension can do stands between two lines "extension only".
 *
 * As in the script of outbox, the target schema is not in the path.
 */
SET LOCAL search_path = pg_catalog, pg_temp;

-- extension only
/* CREATE EXTENSION does not ask for it, and a superuser runs this script. */
DO $$
BEGIN
	IF NOT has_schema_privilege((SELECT e.extowner FROM pg_extension e WHERE e.extname = 'outbox_inbox'),
			'@extschema@'::regnamespace::oid, 'CREATE') THEN
		RAISE EXCEPTION 'permission denied for schema %', '@extschema@' USING ERRCODE = 'insufficient_privilege';
	END IF;
END
$$;
-- end of extension only

/*
 * Nothing here looks a name up in the target schema when it runs: that schema may belong
 * to anybody, who may rename it and make another one of its name.  PL/pgSQL names
 * objects of pg_catalog and of this schema only; views and SQL functions are bound when
 * they are created.  The single file makes a schema with the name of the target schema
 * and "_internal" instead.
 *
 * TRUNCATE and LOCK TABLE take names.  So each slot is a partitioned table in this
 * schema, and its one partition, with the rows, is in the target schema, as all tables
 * with rows are.
 */
CREATE SCHEMA outbox_inbox_internal;
COMMENT ON SCHEMA outbox_inbox_internal IS
'What only outbox_inbox uses: nothing here is for users, and any of it may change.';

/*
 * How a message is accepted once, although what is old goes by TRUNCATE
 *
 * A row is a message that a consumer has accepted.  It lies in the partition of its
 * day; there are 35, used round and round, so that none has ever to be made, and a
 * whole one is emptied when its day is older than what is kept.
 *
 * Two transactions with the same message and day meet in that partition's primary key:
 * the second one waits for the first.  Rows of other days are looked up.  What neither
 * finds is a row of another day whose transaction is still running, and this is where
 * the two sequences come in.  They are used for being outside of transactions: everybody
 * sees the newest value at once, also with an old snapshot.
 *
 *	outbox_inbox_day		the day that rows are written with.  It follows the clock (UTC)
 *							and never goes back.  Who inserts reads it again afterwards,
 *							and moves on if it has changed, so a row of an earlier day was
 *							there before the day changed.
 *	outbox_inbox_settled	no running transaction has rows of this day or an earlier one.
 *							Found out by locks on the partitions, without waiting.
 *
 * For the days between them, and with REPEATABLE READ for all that are kept, the row is
 * inserted there, too, and taken back: that meets the other in the primary key as well.
 *
 * Days are counted from 2000-01-01.
 */
CREATE TABLE @extschema@.outbox_inbox (
	message_id uuid NOT NULL,
	consumer text NOT NULL,
	day integer NOT NULL,
	slot smallint NOT NULL CHECK (slot = day % 35),
	accepted_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	PRIMARY KEY (message_id, consumer, day, slot)
) PARTITION BY LIST (slot);

COMMENT ON TABLE @extschema@.outbox_inbox IS
'Messages that consumers have accepted; written by outbox_inbox_accept(). One partition for each day that is kept, used round and round.';
COMMENT ON COLUMN @extschema@.outbox_inbox.message_id IS 'Id of the message, as its producer gave it.';
COMMENT ON COLUMN @extschema@.outbox_inbox.consumer IS 'Name of the consumer that accepted it.';
COMMENT ON COLUMN @extschema@.outbox_inbox.day IS 'Day of its acceptance, in UTC: days since 2000-01-01.';
COMMENT ON COLUMN @extschema@.outbox_inbox.slot IS 'Number of the partition: day % 35.';
COMMENT ON COLUMN @extschema@.outbox_inbox.accepted_at IS 'When it was accepted.';

CREATE SEQUENCE outbox_inbox_internal.outbox_inbox_day MINVALUE 0;
CREATE SEQUENCE outbox_inbox_internal.outbox_inbox_settled MINVALUE 0;
COMMENT ON SEQUENCE outbox_inbox_internal.outbox_inbox_day IS
'The day that is being written, since 2000-01-01. For outbox_inbox_accept() only.';
COMMENT ON SEQUENCE outbox_inbox_internal.outbox_inbox_settled IS
'The last day of which no running transaction has rows. For outbox_inbox_accept() only.';

CREATE TABLE @extschema@.outbox_inbox_key (
	consumer text NOT NULL,
	key text NOT NULL,
	last_seq bigint,
	last_at timestamptz NOT NULL,
	PRIMARY KEY (consumer, key)
) WITH (fillfactor = 70);

COMMENT ON TABLE @extschema@.outbox_inbox_key IS
'The newest message of each key that a consumer has accepted; written by outbox_inbox_accept_in_order().';
COMMENT ON COLUMN @extschema@.outbox_inbox_key.consumer IS 'Name of the consumer.';
COMMENT ON COLUMN @extschema@.outbox_inbox_key.key IS 'The key, such as the aggregate_id.';
COMMENT ON COLUMN @extschema@.outbox_inbox_key.last_seq IS 'Number of the newest message that was accepted.';
COMMENT ON COLUMN @extschema@.outbox_inbox_key.last_at IS 'When that was.';

-- No row means the default: one that CREATE EXTENSION made would be in the way of the
-- one of a dump.
CREATE TABLE @extschema@.outbox_inbox_control (
	singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
	retention interval NOT NULL
		CHECK (retention >= interval '1 day' AND retention <= interval '31 days')
);

COMMENT ON TABLE @extschema@.outbox_inbox_control IS 'One row or none: how long the inbox keeps what was accepted.';
COMMENT ON COLUMN @extschema@.outbox_inbox_control.singleton IS 'Always true.';
COMMENT ON COLUMN @extschema@.outbox_inbox_control.retention IS
'How long accepted messages are remembered, at least; set by outbox_inbox_set_retention(). 7 days without a row.';

CREATE VIEW outbox_inbox_internal.outbox_inbox AS
	SELECT i.message_id, i.consumer, i.day, i.slot FROM @extschema@.outbox_inbox i;
CREATE VIEW outbox_inbox_internal.outbox_inbox_key AS
	SELECT k.consumer, k.key, k.last_seq, k.last_at FROM @extschema@.outbox_inbox_key k;
CREATE VIEW outbox_inbox_internal.outbox_inbox_control AS
	SELECT c.singleton, c.retention FROM @extschema@.outbox_inbox_control c;

CREATE FUNCTION outbox_inbox_internal.outbox_inbox_retention() RETURNS interval
LANGUAGE sql STABLE
RETURN coalesce((SELECT c.retention FROM outbox_inbox_internal.outbox_inbox_control c), interval '7 days');

-- The day of a time, in UTC.
CREATE FUNCTION outbox_inbox_internal.outbox_inbox_day_of(moment timestamptz) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (moment AT TIME ZONE 'UTC')::date - date '2000-01-01';

-- The time, as far as it can be trusted: not beyond the end of the day that was on, as the
-- clock may have leapt.
CREATE FUNCTION outbox_inbox_internal.outbox_inbox_trusted(moment timestamptz, last_day integer) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN least(moment, (date '2000-01-01' + last_day + 1)::timestamp AT TIME ZONE 'UTC');

/*
 * The partitions, and who looks into them: each by a plan of its own, since a plan over
 * all of them would lock them all, and one that is being emptied is nobody else's concern.
 */
DO $$
DECLARE
	number text;
	slot_table text;
	branches text := '';
BEGIN
	FOR i IN 0 .. 34 LOOP
		number := to_char(i, 'FM00');
		slot_table := 'outbox_inbox_internal.outbox_inbox_' || number;
		EXECUTE 'CREATE TABLE ' || slot_table || ' PARTITION OF @extschema@.outbox_inbox FOR VALUES IN (' || i
			|| ') PARTITION BY LIST (slot)';
		EXECUTE 'CREATE TABLE @extschema@.outbox_inbox_' || number || ' PARTITION OF ' || slot_table
			|| ' FOR VALUES IN (' || i || ')';
		branches := branches || '
		WHEN ' || i || ' THEN PERFORM FROM ' || slot_table || ' i
			WHERE i.message_id = $2 AND i.consumer = $1 AND i.day BETWEEN $3 AND $4 AND i.slot = ' || i || ';';
	END LOOP;
	EXECUTE '
CREATE FUNCTION outbox_inbox_internal.outbox_inbox_seen(for_consumer text, id uuid, first_day integer, last_day integer)
RETURNS boolean
LANGUAGE plpgsql
AS $body$
BEGIN
	-- each slot once, of however many days, as after a clock that was ahead
	FOR d IN REVERSE last_day .. greatest(first_day, last_day - 34) LOOP
		CASE d % 35' || branches || '
		END CASE;
		IF FOUND THEN
			RETURN true;
		END IF;
	END LOOP;
	RETURN false;
END
$body$';
END
$$;

-- Whether rows of these days are there that are not committed yet, or not visible to
-- an old snapshot.  Waits for the former; the latter are an error (40001).
CREATE FUNCTION outbox_inbox_internal.outbox_inbox_probe(for_consumer text, id uuid, first_day integer, last_day integer)
RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
	inserted integer;
BEGIN
	INSERT INTO outbox_inbox_internal.outbox_inbox (message_id, consumer, day, slot)
		SELECT id, for_consumer, d, d % 35 FROM generate_series(first_day, last_day) d
		ON CONFLICT DO NOTHING;
	GET DIAGNOSTICS inserted = ROW_COUNT;
	-- only to take it back
	RAISE EXCEPTION USING ERRCODE = 'OI001', MESSAGE = 'outbox_inbox_probe() has looked';
EXCEPTION
	WHEN SQLSTATE 'OI001' THEN
		RETURN inserted < last_day - first_day + 1;
END
$$;

-- Finds out for which days before this one no transaction has rows any more, without
-- waiting for any.  The locks are given back at once, with the block.
CREATE FUNCTION outbox_inbox_internal.outbox_inbox_settle(settled integer, today integer) RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
	found_settled integer := settled;
	slot_table text;
BEGIN
	FOR d IN greatest(settled + 1, today - 34) .. today - 1 LOOP
		slot_table := 'outbox_inbox_internal.outbox_inbox_' || to_char(d % 35, 'FM00');
		EXECUTE 'LOCK TABLE ' || slot_table || ' IN SHARE MODE NOWAIT';
		-- one's own do not conflict
		EXIT WHEN EXISTS (SELECT FROM pg_locks l
			WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.relation = slot_table::regclass
				AND l.database = (SELECT b.oid FROM pg_database b WHERE b.datname = current_database())
				AND l.mode = 'RowExclusiveLock');
		found_settled := d;
	END LOOP;
	RAISE EXCEPTION USING ERRCODE = 'OI001', MESSAGE = 'outbox_inbox_settle() has looked';
EXCEPTION
	WHEN SQLSTATE 'OI001' OR lock_not_available THEN
		IF found_settled > settled THEN
			PERFORM setval('outbox_inbox_internal.outbox_inbox_settled', found_settled);
		END IF;
		RETURN found_settled;
END
$$;

-- Empties the partitions of days that are not kept, unless another transaction uses them.
-- last_day: the day that was on, up to which rows are there, besides those of today.
CREATE FUNCTION outbox_inbox_internal.outbox_inbox_empty(moment timestamptz, last_day integer) RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
	today integer;
	-- a day more, for who has found out the time and not yet looked
	oldest integer;
	emptied integer := 0;
	slot_table text;
	filled boolean;
BEGIN
	SELECT d.last_value, outbox_inbox_internal.outbox_inbox_day_of(outbox_inbox_internal.outbox_inbox_trusted(moment, last_day)
				- outbox_inbox_internal.outbox_inbox_retention()) - 1
		INTO STRICT today, oldest
		FROM outbox_inbox_internal.outbox_inbox_day d;
	FOR d IN last_day - 33 .. oldest - 1 LOOP
		CONTINUE WHEN d % 35 IN (today % 35, (today + 1) % 35);		-- being written, or soon
		slot_table := 'outbox_inbox_internal.outbox_inbox_' || to_char(d % 35, 'FM00');
		BEGIN
			EXECUTE 'LOCK TABLE ' || slot_table || ' IN ACCESS EXCLUSIVE MODE NOWAIT';
			EXECUTE 'SELECT EXISTS (SELECT FROM ' || slot_table || ')' INTO filled;
			IF filled THEN
				EXECUTE 'TRUNCATE ' || slot_table;
				emptied := emptied + 1;
			ELSE
				RAISE EXCEPTION USING ERRCODE = 'OI001', MESSAGE = 'outbox_inbox_empty() has looked';
			END IF;
		EXCEPTION
			WHEN SQLSTATE 'OI001' OR lock_not_available THEN
				NULL;	-- empty, or for the next one
		END;
	END LOOP;
	RETURN emptied;
END
$$;

-- The first one of a day: the day is on, for everybody, and what is no longer kept goes.
CREATE FUNCTION outbox_inbox_internal.outbox_inbox_begin_day(new_day integer, moment timestamptz) RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
	current_day integer;
BEGIN
	-- One after the other, or the day might go back; the lock goes with the block, and lets
	-- outbox_inbox_set_retention() pass.
	BEGIN
		LOCK TABLE outbox_inbox_internal.outbox_inbox_control IN SHARE UPDATE EXCLUSIVE MODE;
		SELECT d.last_value INTO STRICT current_day FROM outbox_inbox_internal.outbox_inbox_day d;
		IF current_day < new_day THEN
			PERFORM setval('outbox_inbox_internal.outbox_inbox_day', new_day);
		END IF;
		RAISE EXCEPTION USING ERRCODE = 'OI001', MESSAGE = 'outbox_inbox_begin_day() is done';
	EXCEPTION
		WHEN SQLSTATE 'OI001' THEN
			NULL;
	END;
	IF current_day >= new_day THEN
		RETURN 0;				-- somebody else was the first
	END IF;
	RETURN outbox_inbox_internal.outbox_inbox_empty(moment, current_day);
END
$$;

-- Checks what outbox_inbox_accept() is called with; returns the first day to look at.
CREATE FUNCTION outbox_inbox_internal.outbox_inbox_first_day(for_consumer text, id uuid, ttl interval, retention interval, moment timestamptz)
RETURNS integer
LANGUAGE plpgsql
AS $$
BEGIN
	IF for_consumer IS NULL OR id IS NULL THEN
		RAISE EXCEPTION '% must not be null', CASE WHEN for_consumer IS NULL THEN 'consumer' ELSE 'message_id' END
			USING ERRCODE = 'null_value_not_allowed',
			HINT = CASE WHEN for_consumer IS NULL THEN 'Name the consumer: it is what the message is accepted for.'
				ELSE 'A message without an id cannot be told from another one. Of an id that is no uuid outbox_inbox_uuid() makes one.' END;
	END IF;
	IF for_consumer = '' OR octet_length(for_consumer) > 255 THEN
		RAISE EXCEPTION 'consumer must have 1 to 255 bytes'
			USING ERRCODE = 'invalid_parameter_value', DETAIL = format('It has %s.', octet_length(for_consumer));
	END IF;
	IF ttl <= interval '0' THEN
		RAISE EXCEPTION 'ttl must be positive'
			USING ERRCODE = 'invalid_parameter_value', DETAIL = format('It is %s.', ttl);
	END IF;
	IF ttl > retention THEN
		RAISE EXCEPTION 'ttl must not be longer than the inbox remembers'
			USING ERRCODE = 'invalid_parameter_value',
			DETAIL = format('It is %s, and the inbox keeps %s.', ttl, retention),
			HINT = 'SELECT outbox_inbox_set_retention(...) as the owner of the inbox, up to 31 days.';
	END IF;
	RETURN outbox_inbox_internal.outbox_inbox_day_of(moment - coalesce(ttl, retention));
END
$$;

-- outbox_inbox_accept(), at a time.
CREATE FUNCTION outbox_inbox_internal.outbox_inbox_accept_at(for_consumer text, id uuid, ttl interval, moment timestamptz)
RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
	clock_day integer := outbox_inbox_internal.outbox_inbox_day_of(moment);
	old_snapshot boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
	today integer;
	today_now integer;
	settled integer;
	retention interval;
	first_day integer;
BEGIN
	LOOP
		SELECT d.last_value, s.last_value, coalesce(c.retention, interval '7 days') INTO STRICT today, settled, retention
			FROM outbox_inbox_internal.outbox_inbox_day d CROSS JOIN outbox_inbox_internal.outbox_inbox_settled s
				LEFT JOIN outbox_inbox_internal.outbox_inbox_control c ON true;
		first_day := outbox_inbox_internal.outbox_inbox_first_day(for_consumer, id, ttl, retention, moment);
		IF today < clock_day THEN
			PERFORM outbox_inbox_internal.outbox_inbox_begin_day(clock_day, moment);
			CONTINUE;
		END IF;
		-- Waits for another transaction with this message.
		INSERT INTO outbox_inbox_internal.outbox_inbox (message_id, consumer, day, slot)
			VALUES (id, for_consumer, today, today % 35) ON CONFLICT DO NOTHING;
		IF NOT FOUND THEN
			RETURN false;
		END IF;
		SELECT d.last_value INTO STRICT today_now FROM outbox_inbox_internal.outbox_inbox_day d;
		EXIT WHEN today_now = today;
		PERFORM outbox_inbox_internal.outbox_inbox_forget(for_consumer, id, today);
	END LOOP;

	-- In this order: what is running now is looked for after it was found to be running.
	IF settled < today - 1 THEN
		settled := outbox_inbox_internal.outbox_inbox_settle(settled, today);
	END IF;
	IF old_snapshot THEN
		settled := first_day - 1;
	END IF;
	IF outbox_inbox_internal.outbox_inbox_seen(for_consumer, id, first_day, today - 1) OR
			settled < today - 1 AND
			outbox_inbox_internal.outbox_inbox_probe(for_consumer, id, greatest(first_day, settled + 1), today - 1) THEN
		PERFORM outbox_inbox_internal.outbox_inbox_forget(for_consumer, id, today);
		RETURN false;
	END IF;
	RETURN true;
END
$$;

CREATE FUNCTION outbox_inbox_internal.outbox_inbox_forget(for_consumer text, id uuid, of_day integer) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
	EXECUTE 'DELETE FROM outbox_inbox_internal.outbox_inbox_' || to_char(of_day % 35, 'FM00')
		|| ' WHERE message_id = $1 AND consumer = $2 AND day = $3' USING id, for_consumer, of_day;
END
$$;

-- The settings are for those below: each row is found by its index, also in a partition
-- that was small when it was analyzed; and what that costs on paper is not for the JIT.
CREATE FUNCTION @extschema@.outbox_inbox_accept(consumer text, message_id uuid, ttl interval DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
BEGIN
	RETURN outbox_inbox_internal.outbox_inbox_accept_at($1, $2, $3, clock_timestamp());
END
$$;

-- outbox_inbox_accept_in_order(), at a time.
CREATE FUNCTION outbox_inbox_internal.outbox_inbox_accept_in_order_at(for_consumer text, id uuid, of_key text, seq bigint,
	gapless boolean, ttl interval, moment timestamptz)
RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
	newest bigint;
	first_day integer;
BEGIN
	first_day := outbox_inbox_internal.outbox_inbox_first_day(for_consumer, id, ttl, outbox_inbox_internal.outbox_inbox_retention(), moment);
	IF of_key IS NULL OR seq IS NULL THEN
		RAISE EXCEPTION '% must not be null', CASE WHEN of_key IS NULL THEN 'key' ELSE 'key_seq' END
			USING ERRCODE = 'null_value_not_allowed',
			HINT = 'A message without a key or a number has no order: outbox_inbox_accept() takes it.';
	END IF;
	IF of_key = '' OR octet_length(of_key) > 1024 THEN
		RAISE EXCEPTION 'key must have 1 to 1024 bytes'
			USING ERRCODE = 'invalid_parameter_value', DETAIL = format('It has %s.', octet_length(of_key));
	END IF;

	-- Others with this key wait here.
	LOOP
		SELECT k.last_seq INTO newest FROM outbox_inbox_internal.outbox_inbox_key k
			WHERE k.consumer = for_consumer AND k.key = of_key FOR UPDATE;
		EXIT WHEN FOUND;
		INSERT INTO outbox_inbox_internal.outbox_inbox_key (consumer, key, last_at) VALUES (for_consumer, of_key, moment)
			ON CONFLICT DO NOTHING;
	END LOOP;
	IF seq <= newest THEN
		RETURN CASE WHEN outbox_inbox_internal.outbox_inbox_seen(for_consumer, id, first_day, d.last_value::integer)
				THEN 'duplicate' ELSE 'stale' END
			FROM outbox_inbox_internal.outbox_inbox_day d;
	END IF;
	IF gapless AND seq > newest + 1 THEN
		RETURN 'gap';
	END IF;
	-- Also a message that was accepted with an earlier number: it takes this one.
	UPDATE outbox_inbox_internal.outbox_inbox_key k SET last_seq = seq, last_at = moment
		WHERE k.consumer = for_consumer AND k.key = of_key;
	RETURN CASE WHEN outbox_inbox_internal.outbox_inbox_accept_at(for_consumer, id, ttl, moment) THEN 'accepted' ELSE 'duplicate' END;
END
$$;

CREATE FUNCTION @extschema@.outbox_inbox_accept_in_order(consumer text, message_id uuid, key text, key_seq bigint,
	gapless boolean DEFAULT false, ttl interval DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
BEGIN
	RETURN outbox_inbox_internal.outbox_inbox_accept_in_order_at($1, $2, $3, $4, $5, $6, clock_timestamp());
END
$$;

-- The id itself where it is a uuid, as a consumer may pass all ids through here; else the
-- first 128 bits of its SHA-256: nobody can make two texts of the same one.
CREATE FUNCTION @extschema@.outbox_inbox_uuid(message_id text) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN message_id ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN message_id::uuid
	ELSE encode(substr(sha256(convert_to(message_id, 'UTF8')), 1, 16), 'hex')::uuid END;

CREATE FUNCTION @extschema@.outbox_inbox_maintain() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	moment timestamptz := clock_timestamp();
	last_day integer := (SELECT d.last_value FROM outbox_inbox_internal.outbox_inbox_day d);
	emptied integer;
	today integer;
	settled integer;
BEGIN
	emptied := outbox_inbox_internal.outbox_inbox_begin_day(outbox_inbox_internal.outbox_inbox_day_of(moment), moment)
		+ outbox_inbox_internal.outbox_inbox_empty(moment, last_day);
	SELECT d.last_value, s.last_value INTO STRICT today, settled
		FROM outbox_inbox_internal.outbox_inbox_day d, outbox_inbox_internal.outbox_inbox_settled s;
	PERFORM outbox_inbox_internal.outbox_inbox_settle(settled, today);
	DELETE FROM outbox_inbox_internal.outbox_inbox_key k
		USING (SELECT o.consumer, o.key FROM outbox_inbox_internal.outbox_inbox_key o
			WHERE o.last_at < outbox_inbox_internal.outbox_inbox_trusted(moment, last_day)
				- outbox_inbox_internal.outbox_inbox_retention() FOR UPDATE OF o SKIP LOCKED) idle
		WHERE k.consumer = idle.consumer AND k.key = idle.key;
	RETURN emptied;
END
$$;

CREATE FUNCTION @extschema@.outbox_inbox_set_retention(retention interval) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF $1 IS NULL THEN
		RAISE EXCEPTION 'retention must not be null' USING ERRCODE = 'null_value_not_allowed';
	END IF;
	IF $1 < interval '1 day' OR $1 > interval '31 days' THEN
		RAISE EXCEPTION 'retention must be between 1 day and 31 days'
			USING ERRCODE = 'invalid_parameter_value', DETAIL = format('It is %s.', $1);
	END IF;
	INSERT INTO outbox_inbox_internal.outbox_inbox_control AS c (retention) VALUES ($1)
		ON CONFLICT (singleton) DO UPDATE SET retention = EXCLUDED.retention;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_inbox_accept(text, uuid, interval) IS
'Accepts a message for a consumer, in its transaction: true the first time, so the effect is due; false if it was accepted before. Waits for another transaction with the same message. A rollback forgets. ttl: for how long it has to know, at least; by default as long as the inbox remembers. 22004: consumer or message_id is null; 22023: the other arguments; 40001 with REPEATABLE READ and SERIALIZABLE: somebody else has accepted it meanwhile.';
COMMENT ON FUNCTION @extschema@.outbox_inbox_accept_in_order(text, uuid, text, bigint, boolean, interval) IS
'As outbox_inbox_accept(), and in the order of key_seq for each key: accepted, duplicate, stale (a newer message of the key was accepted before), or, if gapless, gap (the one before it has not been accepted yet). Only with accepted the effect is due; a duplicate with the next number also moves its key on. Transactions with the same key wait for each other.';
COMMENT ON FUNCTION @extschema@.outbox_inbox_uuid(text) IS
'A uuid for the id of a message that is any text: that of the text if it is a uuid, else the first 128 bits of its SHA-256.';
COMMENT ON FUNCTION @extschema@.outbox_inbox_maintain() IS
'Empties the partitions of days that are no longer kept, and forgets keys without messages for as long; returns how many partitions. Waits for nobody. For a daily job; outbox_inbox_accept() empties partitions by itself, once a day.';
COMMENT ON FUNCTION @extschema@.outbox_inbox_set_retention(interval) IS
'How long the inbox remembers what was accepted, at least: 1 to 31 days, 7 at first. It is also the longest ttl. 22023, 22004: not such a time.';

/* Nothing for everybody, nor for those to whom ALTER DEFAULT PRIVILEGES grants what is created. */
DO $$
DECLARE
	granted record;
BEGIN
	FOR granted IN
		SELECT DISTINCT o.kind, o.name, a.grantee
		FROM (SELECT 'ROUTINE' AS kind, p.oid::regprocedure::text AS name, p.pronamespace AS schema,
				p.proname AS object, p.proowner AS owner, coalesce(p.proacl, acldefault('f'::"char", p.proowner)) AS acl
			FROM pg_proc p
			UNION ALL
			SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass::text,
				c.relnamespace, c.relname, c.relowner, c.relacl
			FROM pg_class c
			UNION ALL
			SELECT 'SCHEMA', n.oid::regnamespace::text, n.oid, n.nspname, n.nspowner, n.nspacl
			FROM pg_namespace n WHERE n.oid = 'outbox_inbox_internal'::regnamespace) o,
			aclexplode(o.acl) a
		WHERE o.owner = (SELECT oid FROM pg_roles WHERE rolname = current_user) AND a.grantee <> o.owner
			AND (o.schema = 'outbox_inbox_internal'::regnamespace
				OR o.schema = '@extschema@'::regnamespace AND starts_with(o.object::text, 'outbox_inbox'))
	LOOP
		EXECUTE format('REVOKE ALL ON %s %s FROM %s', granted.kind, granted.name,
			CASE granted.grantee WHEN 0 THEN 'PUBLIC' ELSE granted.grantee::regrole::text END);
	END LOOP;
END
$$;

SELECT setval('outbox_inbox_internal.outbox_inbox_day', outbox_inbox_internal.outbox_inbox_day_of(clock_timestamp())),
	setval('outbox_inbox_internal.outbox_inbox_settled', outbox_inbox_internal.outbox_inbox_day_of(clock_timestamp()) - 1);

-- extension only
/*
 * What a trusted extension makes belongs to the superuser that PostgreSQL lends to the
 * script: it is given to the one who installs it, as whom the functions then run.
 */
DO $$
DECLARE
	relation record;
	routine regprocedure;
BEGIN
	FOR relation IN SELECT c.oid::regclass AS name, c.relkind
			FROM pg_depend d JOIN pg_class c ON c.oid = d.objid
			WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
				AND d.refobjid = (SELECT e.oid FROM pg_extension e WHERE e.extname = 'outbox_inbox')
				AND c.relkind IN ('r', 'p', 'v', 'S')
			ORDER BY c.relname LOOP
		EXECUTE format('ALTER %s %s OWNER TO %s',
			CASE relation.relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, relation.name, '@extowner@');
		IF relation.relkind IN ('r', 'S') THEN
			PERFORM pg_extension_config_dump(relation.name, '');
		END IF;
	END LOOP;
	FOR routine IN SELECT d.objid::regprocedure
			FROM pg_depend d
			WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
				AND d.refobjid = (SELECT e.oid FROM pg_extension e WHERE e.extname = 'outbox_inbox') LOOP
		EXECUTE format('ALTER FUNCTION %s OWNER TO %s', routine, '@extowner@');
	END LOOP;
	ALTER SCHEMA outbox_inbox_internal OWNER TO @extowner@;
END
$$;
-- end of extension only
