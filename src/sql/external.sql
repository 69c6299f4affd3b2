--
-- External relays: programs that publish the messages of a route themselves
--

CREATE TABLE outbox_internal.outbox_lease (
	/* random, below 2^53 */
	token bigint PRIMARY KEY,
	route text NOT NULL,
	/* what the relay calls itself */
	worker text,
	claimed_by name NOT NULL,
	claimed_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	expires_at timestamptz NOT NULL,
	/* messages that are not acknowledged, in the order of seq */
	ids uuid[] NOT NULL,
	/* hashes of their keys, one for each; NULL: it has none */
	keys bigint[] NOT NULL
)
/* A row for each claim, which goes with its last acknowledgement. */
WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0,
	  autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

COMMENT ON TABLE outbox_internal.outbox_lease IS
'What external relays have claimed and not acknowledged: one row a claim. Whoever has locked the row decides what becomes of the lease. Not dumped: a copy has no relay at work.';

/*
 * Messages that can go now; retries and scheduled messages.  Each INSERT compiles each
 * predicate, and an operator in it costs 3000 instructions.  So failed_at IS NULL stands
 * for status = 'pending', and rows of other outlets are kept out only where they come:
 * change data capture has none that waits for a time.
 */
CREATE INDEX outbox_external ON @extschema@.outbox (route, seq)
	WHERE outlet = 'external' AND failed_at IS NULL AND available_at IS NULL;
CREATE INDEX outbox_external_waiting ON @extschema@.outbox (route, available_at)
	WHERE outlet IS NOT NULL AND failed_at IS NULL AND available_at IS NOT NULL;

/* The candidates of outbox_claim(). */
CREATE VIEW outbox_internal.outbox_external AS
	SELECT o.id, o.seq, o.route, o.available_at,
		outbox_internal.outbox_key_hash(o.route, o.aggregate_type, o.aggregate_id) AS key,
		coalesce(pg_catalog.pg_column_size(o.payload), 0) + coalesce(pg_catalog.octet_length(o.body), 0)
			+ coalesce(pg_catalog.pg_column_size(o.headers), 0) + 200::bigint AS bytes
	FROM @extschema@.outbox o
	WHERE o.outlet = 'external' AND o.status = 'pending' AND o.failed_at IS NULL;

/* Holders of keys, as the index outbox_holder has them. */
CREATE VIEW outbox_internal.outbox_external_holder AS
	SELECT h.seq, h.route, h.status, h.available_at,
		outbox_internal.outbox_key_hash(h.route, h.aggregate_type, h.aggregate_id) AS key
	FROM @extschema@.outbox h
	WHERE h.outlet = 'external' AND h.aggregate_id IS NOT NULL
		AND (h.status = 'failed' OR h.available_at IS NOT NULL AND h.attempts > 0);

CREATE FUNCTION outbox_internal.outbox_is_original(
	system_identifier bigint, database_oid oid, environment text, timeline bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_is_original'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION outbox_internal.outbox_is_original(bigint, oid, text, bigint) IS
'True if that record of outbox_control is of this database, and not of one that this is a copy of.';

CREATE FUNCTION outbox_internal.outbox_render_key(
	template text, event_type text, aggregate_type text, aggregate_id text)
RETURNS text
AS 'MODULE_PATHNAME', 'outbox_render_key'
LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION outbox_internal.outbox_render_key(text, text, text, text) IS
'Routing key of a message by a route''s template.';

/*
 * Changing who publishes a route.  It is locked against enqueue, and then the rows are
 * changed first: nobody claims them from then on, and what was claimed before is told
 * by outbox_claims(), or by a lease.  Who has locked a message may wait for the route:
 * messages are polled for, as outbox_lock_route() polls for a second route.
 */
CREATE FUNCTION outbox_internal.outbox_relay_trigger()
RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
SET lock_timeout = '3s'
AS $$
DECLARE
	/* As the trigger of each row writes it; 'cdc' has no rows. */
	publisher constant text := CASE NEW.relay WHEN 'external' THEN NEW.relay END;
	claimed bigint[];
	referrer text;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	/* Under a snapshot from before it would miss messages and leases. */
	IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
		RAISE EXCEPTION 'relay of route "%" must be changed under READ COMMITTED', NEW.name
			USING ERRCODE = 'active_sql_transaction';
	END IF;
	PERFORM outbox_internal.outbox_lock_route(OLD.name::text);
	IF NEW.relay = 'cdc' THEN
		/* What reads the log has not seen them, and would never see a change of them. */
		IF EXISTS (SELECT FROM outbox_internal.outbox o WHERE o.route = NEW.name) THEN
			RAISE EXCEPTION 'route "%" still has messages', NEW.name
				USING ERRCODE = 'object_in_use',
					DETAIL = 'Change data capture reads what is inserted from now on, and not what is in the table.',
					HINT = 'Let them be published, discard those that have failed, and try again; while enqueue_roles is {} nobody but the owner enqueues.';
		END IF;
		SELECT r.name INTO referrer FROM outbox_internal.outbox_route r
		WHERE r.failed_route = NEW.name ORDER BY r.name LIMIT 1;
		IF FOUND THEN
			RAISE EXCEPTION 'route "%" is the failed_route of route "%"', NEW.name, referrer
				USING ERRCODE = 'invalid_parameter_value',
					DETAIL = 'A message that is given up is changed in the table, and what reads the write-ahead log sees only what is inserted.';
		END IF;
	END IF;
	LOOP
		/*
		 * The trigger of each row writes the same, and tells the workers; where it does
		 * not fire (replicas), or leaves a restored row as it is, this alone does.
		 */
		UPDATE outbox_internal.outbox o SET outlet = publisher
		FROM (SELECT n.id FROM outbox_internal.outbox n
			WHERE n.route = NEW.name AND n.outlet IS DISTINCT FROM publisher
			FOR NO KEY UPDATE SKIP LOCKED) n
		WHERE o.id = n.id;
		EXIT WHEN NOT EXISTS (SELECT FROM outbox_internal.outbox o
			WHERE o.route = NEW.name AND o.outlet IS DISTINCT FROM publisher);
		IF NOT outbox_internal.outbox_poll_route_lock() THEN
			RAISE EXCEPTION 'messages of route "%" are locked', NEW.name
				USING ERRCODE = 'lock_not_available',
					DETAIL = 'Not ended after 3 s: ' || coalesce((
						SELECT string_agg(DISTINCT coalesce('prepared transaction "' || outbox_internal.outbox_printable(p.gid::text) || '"', 'process ' || l.pid, 'transaction ' || x.xid::text), ', ')
						FROM (SELECT o.tableoid, o.ctid FROM outbox_internal.outbox o
								WHERE o.route = NEW.name AND o.outlet IS DISTINCT FROM publisher LIMIT 10000) o,
							unnest(outbox_internal.outbox_row_lockers(o.tableoid::regclass, o.ctid)) x(xid)
							LEFT JOIN pg_prepared_xacts p ON p.transaction = x.xid
							LEFT JOIN pg_locks l ON l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock'
								AND l.granted AND l.pid IS NOT NULL AND l.transactionid = x.xid
						WHERE l.pid IS DISTINCT FROM pg_backend_pid()),
						'transactions that have just ended') || '.',
					HINT = 'Commit or roll back the transactions that have locked them, then try again.';
		END IF;
	END LOOP;
	claimed := ARRAY(SELECT c.id_hash FROM outbox_internal.outbox_claims() c);
	IF EXISTS (SELECT FROM outbox_internal.outbox o WHERE o.route = NEW.name
			AND outbox_internal.outbox_claim_hash(o.id::uuid) = ANY (claimed)) THEN
		RAISE EXCEPTION 'messages of route "%" are being published', NEW.name
			USING ERRCODE = 'object_in_use',
				HINT = 'Call outbox_pause() for the route first, and wait until outbox_workers has nothing in flight.';
	END IF;
	DELETE FROM outbox_internal.outbox_lease l
	WHERE l.token IN (SELECT e.token FROM outbox_internal.outbox_lease e
		WHERE e.route = NEW.name AND e.expires_at < clock_timestamp() FOR UPDATE SKIP LOCKED);
	IF EXISTS (SELECT FROM outbox_internal.outbox_lease l WHERE l.route = NEW.name) THEN
		RAISE EXCEPTION 'messages of route "%" are leased to an external relay', NEW.name
			USING ERRCODE = 'object_in_use',
				HINT = 'Stop the relays and let them release what they have, or wait until outbox_leases is empty or has expired.';
	END IF;
	RETURN NULL;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_relay_trigger() IS
'Converts the messages of a route whose relay changes; 55006 while some of them are in flight, and for ''cdc'' while there are any.';

/* By its name after outbox_route_changed, with which the route is read again. */
CREATE TRIGGER outbox_route_relay
	AFTER UPDATE OF relay ON @extschema@.outbox_route
	FOR EACH ROW WHEN (OLD.relay IS DISTINCT FROM NEW.relay)
	EXECUTE FUNCTION outbox_internal.outbox_relay_trigger();
ALTER TABLE @extschema@.outbox_route ENABLE ALWAYS TRIGGER outbox_route_relay;

CREATE FUNCTION outbox_internal.outbox_ids_given(ids uuid[])
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_ids_given'
LANGUAGE C IMMUTABLE PARALLEL SAFE;

COMMENT ON FUNCTION outbox_internal.outbox_ids_given(uuid[]) IS
'False for the default of an argument ids, which stands for all; NULL and arrays with NULL are errors (22004).';

/*
 * For functions that change messages.  To be asked with the rows locked, as
 * outbox_delete_unclaimed() says; leases of these messages whose time is over end here, so
 * that their late acknowledgement finds nothing.
 */
CREATE FUNCTION outbox_internal.outbox_taken(changed uuid[], OUT id_hash bigint)
RETURNS SETOF bigint
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	/* A claim does not write the rows, so that an older snapshot would go unnoticed. */
	IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
		AND EXISTS (SELECT FROM outbox_internal.outbox_route r WHERE r.relay = 'external') THEN
		RAISE EXCEPTION 'messages must be changed under READ COMMITTED where routes have external relays'
			USING ERRCODE = 'active_sql_transaction',
				DETAIL = 'Under a snapshot from before it would not be seen what is leased.';
	END IF;
	IF changed IS NOT NULL THEN
		DELETE FROM outbox_internal.outbox_lease l
		WHERE l.token IN (SELECT e.token FROM outbox_internal.outbox_lease e
			WHERE e.expires_at < clock_timestamp()
				AND EXISTS (SELECT FROM unnest(e.ids) i(id) WHERE i.id IN (SELECT unnest(changed)))
			FOR UPDATE SKIP LOCKED);
	END IF;
	RETURN QUERY
	SELECT c.id_hash FROM outbox_internal.outbox_claims() c
	UNION ALL
	SELECT outbox_internal.outbox_claim_hash(i.id::uuid)
	FROM outbox_internal.outbox_lease l, unnest(l.ids) i(id)
	WHERE changed IS NOT NULL OR l.expires_at >= clock_timestamp();
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_taken(uuid[]) IS
'Messages that a worker has claimed or an external relay has leased, as outbox_claims() tells them. Leases of the given messages that have expired are ended; NULL: expired leases are only passed over.';

/*
 * A claim locks rows as a worker's does, and writes down what it has in one row of
 * outbox_lease, which commits with the locks: whoever gets a row's lock afterwards
 * and looks at the leases then sees it.  Rows themselves are not written.
 *
 * A message goes only if every earlier one of its key that is there goes with it, or
 * holds nothing.  Of those that were seen and could not be locked it is not known, so
 * they hold.
 *
 * Each statement has a snapshot of its own, which is why it wants READ COMMITTED.
 * Indexes by what they were made for, as the statistics of a queue say nothing.
 * What is read without one costs too much then by the planner's count, and would be
 * compiled, for longer than it takes.  NOT IN, as that makes a hash of what is held.
 */
CREATE FUNCTION outbox_internal.outbox_claim(
	route text, max_messages integer,
	lease interval, worker text)
RETURNS TABLE (
	token bigint, @columns read types -route -available_at -origin@)
LANGUAGE plpgsql VOLATILE ROWS 100
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
	max_bytes constant bigint := 16777216;
	/* The last round reads at least so many: arrays and hashes of skipped keys are bounded. */
	max_look constant integer := 500000;
	its outbox_internal.outbox_route;
	control outbox_internal.outbox_control;
	moment constant timestamptz := clock_timestamp();
	held_ids uuid[];
	held_keys bigint[];
	/* Of skipped messages: their keys, and the ids of those without a key. */
	skipped_ids uuid[] := '{}';
	skipped_keys bigint[] := '{}';
	seen_ids uuid[];
	seen_keys bigint[];
	seen_bytes bigint[];
	locked uuid[];
	new_ids uuid[];
	new_bytes bigint;
	taken_ids uuid[] := '{}';
	taken_keys bigint[];
	taken_bytes bigint := 0;
	wanted integer := max_messages;
	/* Messages to read in this round. */
	look integer := max_messages;
	/* Messages locked so far that cannot go, as an earlier one of the key was skipped. */
	vain bigint := 0;
	/* Messages of this round that it has tried to lock: the first so many. */
	tried integer;
	/* From which status on a message can hold its key here. */
	holding text;
	given bigint;
BEGIN
	IF max_messages IS NULL OR max_messages NOT BETWEEN 1 AND 10000 THEN
		RAISE EXCEPTION 'max_messages must be from 1 to 10000'
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
	IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
		RAISE EXCEPTION 'outbox_claim() must run under READ COMMITTED'
			USING ERRCODE = 'active_sql_transaction',
				DETAIL = 'Under a snapshot from before it would not see what others have claimed meanwhile.';
	END IF;
	SELECT r.* INTO its FROM outbox_internal.outbox_route r WHERE r.name = outbox_claim.route;
	IF its.relay <> 'external' THEN
		RAISE EXCEPTION 'route "%" is %', route, CASE its.relay WHEN 'cdc'
				THEN 'read by change data capture' ELSE 'published by the workers' END
			USING ERRCODE = 'object_not_in_prerequisite_state',
				HINT = 'UPDATE outbox_route SET relay = ''external'' hands it to external relays.';
	END IF;

	holding := CASE its.on_failed WHEN 'block' THEN 'failed' ELSE 'pending' END;
	/* Those whose time is over are everybody's again; their tokens end with them. */
	DELETE FROM outbox_internal.outbox_lease l
	WHERE l.token IN (SELECT e.token FROM outbox_internal.outbox_lease e
		WHERE e.route = outbox_claim.route AND e.expires_at < moment
		FOR UPDATE SKIP LOCKED);

	LOOP
		SELECT coalesce(array_agg(m.id), '{}'), coalesce(array_agg(m.key) FILTER (WHERE m.key IS NOT NULL), '{}')
		INTO held_ids, held_keys
		FROM outbox_internal.outbox_lease l, unnest(l.ids, l.keys) m(id, key)
		WHERE l.route = outbox_claim.route;
		held_ids := held_ids || skipped_ids || taken_ids;
		held_keys := held_keys || skipped_keys;

		/*
		 * Without messages of held keys, which would leave no room for others.  One statement,
		 * so that both branches have one snapshot.  Each branch has the first by seq.
		 * A due message that did not fit has therefore a higher seq than all candidates,
		 * and none of them overtakes it.  Only a key's order needs that all due
		 * messages are read.  They are sorted before they are judged, so that no more
		 * are judged than are needed.
		 */
		WITH due AS MATERIALIZED (
			SELECT w.id
			FROM (
				SELECT d.*
				FROM (
					SELECT o.id, o.seq, o.route, k.key
					FROM outbox_internal.outbox_external o, LATERAL (SELECT CASE WHEN its.ordering <> 'none' THEN o.key END AS key OFFSET 0) k
					WHERE o.route = outbox_claim.route AND o.available_at <= moment
						AND o.id NOT IN (SELECT unnest(held_ids))
						AND (k.key IS NULL OR k.key NOT IN (SELECT unnest(held_keys)))
					ORDER BY o.available_at LIMIT CASE WHEN its.ordering = 'none' THEN look END) d
				ORDER BY d.seq OFFSET 0) w
			WHERE w.key IS NULL OR NOT EXISTS (SELECT FROM outbox_internal.outbox_external_holder h
				WHERE h.key = w.key AND h.status >= holding AND h.seq < w.seq AND h.route = w.route
					AND (h.status = 'failed' OR h.available_at > moment))
			ORDER BY w.seq LIMIT look)
		SELECT coalesce(array_agg(c.id ORDER BY c.seq), '{}'), array_agg(c.key ORDER BY c.seq),
			array_agg(c.bytes ORDER BY c.seq)
		INTO seen_ids, seen_keys, seen_bytes
		FROM (
			SELECT o.id, o.seq, o.key, o.bytes
			FROM (
				(SELECT o.id, o.seq, k.key, o.bytes
				 FROM outbox_internal.outbox_external o, LATERAL (SELECT CASE WHEN its.ordering <> 'none' THEN o.key END AS key OFFSET 0) k
				 WHERE o.route = outbox_claim.route AND o.available_at IS NULL
					AND o.id NOT IN (SELECT unnest(held_ids))
					AND (k.key IS NULL OR k.key NOT IN (SELECT unnest(held_keys))
						AND NOT EXISTS (SELECT FROM outbox_internal.outbox_external_holder h
							WHERE h.key = k.key AND h.status >= holding AND h.seq < o.seq AND h.route = o.route
								AND (h.status = 'failed' OR h.available_at > moment)))
				 ORDER BY o.seq LIMIT look)
				UNION ALL
				(SELECT o.id, o.seq, k.key, o.bytes
				 FROM outbox_internal.outbox_external o, LATERAL (SELECT CASE WHEN its.ordering <> 'none' THEN o.key END AS key OFFSET 0) k
				 WHERE o.id = ANY (ARRAY(SELECT d.id FROM due d)))
			) o
			ORDER BY o.seq LIMIT look) c;
		EXIT WHEN cardinality(seen_ids) = 0;

		/* In the order of seq, and not many more than wanted: other claims skip what is locked. */
		locked := ARRAY(
			SELECT o.id FROM unnest(seen_ids) WITH ORDINALITY s(id, n) JOIN outbox_internal.outbox o ON o.id = s.id
			WHERE o.outlet = 'external' AND o.status = 'pending'
				AND o.route = outbox_claim.route
				AND (o.available_at IS NULL OR o.available_at <= moment)
			ORDER BY s.n LIMIT wanted + vain
			FOR UPDATE OF o SKIP LOCKED);
		tried := CASE WHEN cardinality(locked) < wanted + vain THEN cardinality(seen_ids)
			ELSE array_position(seen_ids, locked[cardinality(locked)]) END;
		/* A claim that has committed since we looked first is seen now. */
		SELECT coalesce(array_agg(m.id), '{}'), coalesce(array_agg(m.key) FILTER (WHERE m.key IS NOT NULL), '{}')
		INTO held_ids, held_keys
		FROM outbox_internal.outbox_lease l, unnest(l.ids, l.keys) m(id, key)
		WHERE l.route = outbox_claim.route;
		WITH seen AS (
			SELECT m.id, m.key, m.bytes, m.n,
				m.id IN (SELECT unnest(locked)) AND m.id NOT IN (SELECT unnest(held_ids))
					AND (m.key IS NULL OR m.key NOT IN (SELECT unnest(held_keys))) AS ours
			FROM unnest(seen_ids, seen_keys, seen_bytes) WITH ORDINALITY m(id, key, bytes, n)
			WHERE m.n <= tried),
		judged AS (
			/* Behind one of its key that is not ours, none is. */
			SELECT s.*, s.ours AND (s.key IS NULL
					OR bool_and(s.ours) OVER (PARTITION BY s.key ORDER BY s.n)) AS goes
			FROM seen s),
		weighed AS (
			SELECT j.*, sum(j.bytes) FILTER (WHERE j.goes) OVER (ORDER BY j.n) - j.bytes AS before,
				count(*) FILTER (WHERE j.goes) OVER (ORDER BY j.n) <= wanted AS room
			FROM judged j)
		SELECT coalesce(array_agg(w.id ORDER BY w.n) FILTER (WHERE w.goes AND w.room AND w.before + taken_bytes < max_bytes), '{}'),
			coalesce(sum(w.bytes) FILTER (WHERE w.goes), 0),
			vain + cardinality(locked) - count(*) FILTER (WHERE w.goes),
			skipped_ids || coalesce(array_agg(w.id) FILTER (WHERE NOT w.goes AND w.key IS NULL), '{}'),
			skipped_keys || coalesce(array_agg(DISTINCT w.key) FILTER (WHERE NOT w.goes AND w.key IS NOT NULL), '{}')
		INTO new_ids, new_bytes, vain, skipped_ids, skipped_keys
		FROM weighed w;
		taken_ids := taken_ids || new_ids;
		taken_bytes := taken_bytes + new_bytes;
		wanted := max_messages - cardinality(taken_ids);
		EXIT WHEN taken_bytes >= max_bytes OR wanted = 0 OR look >= max_look
			OR tried = cardinality(seen_ids) AND tried < look;
		/*
		 * The next round reads from the beginning again: an earlier message of a key may
		 * have been committed meanwhile.  It reads twice as many, so that there are few
		 * rounds, and reading grows with what is locked, and not with its square.
		 */
		look := greatest(1000, 2 * look);
	END LOOP;
	IF cardinality(taken_ids) = 0 THEN
		RETURN;
	END IF;

	/*
	 * As for the workers: nothing goes out of what is paused, switched off or a copy.
	 * This is read after the messages, as it may have committed with them.
	 */
	SELECT c.* INTO control FROM outbox_internal.outbox_control c;
	IF control.paused IS DISTINCT FROM false
		OR (SELECT r.paused FROM outbox_internal.outbox_route r WHERE r.name = outbox_claim.route) IS DISTINCT FROM false
		OR NOT current_setting('outbox.enabled')::boolean
		OR NOT outbox_internal.outbox_is_original(control.system_identifier, control.database_oid,
			control.environment, control.timeline)
		OR EXISTS (SELECT FROM outbox_internal.outbox o
			WHERE o.id = ANY (taken_ids) AND o.origin <> outbox_internal.outbox_origin()
				AND o.origin <> ALL (control.adopted_origins)) THEN
		RETURN;
	END IF;

	/*
	 * In the order of seq, by which a nack takes the later ones of a key along.  With keys also
	 * where they do not count: ordering may change while they are leased.
	 */
	SELECT array_agg(o.id ORDER BY o.seq),
		array_agg(outbox_internal.outbox_key_hash(o.route, o.aggregate_type, o.aggregate_id) ORDER BY o.seq)
	INTO taken_ids, taken_keys
	FROM outbox_internal.outbox o WHERE o.id = ANY (taken_ids);
	/* Random: it must not come again after a restore, and nobody can guess another's. */
	INSERT INTO outbox_internal.outbox_lease (token, route, worker, claimed_by, expires_at, ids, keys)
	VALUES (uuid_hash_extended(gen_random_uuid(), 0) & 9007199254740991, outbox_claim.route,
		outbox_internal.outbox_printable(outbox_claim.worker),
		outbox_internal.outbox_acting_role(),
		clock_timestamp() + lease, taken_ids, taken_keys)
	RETURNING outbox_lease.token INTO given;
	RETURN QUERY
	SELECT given,
		@columns read o. -route -available_at -origin routing_key=k.rendered@
	FROM outbox_internal.outbox o, LATERAL (SELECT coalesce(o.routing_key,
			outbox_internal.outbox_render_key(its.routing_key, o.event_type, o.aggregate_type, o.aggregate_id))
		AS rendered) k
	WHERE o.id = ANY (taken_ids)
	ORDER BY o.seq;
END
$$;

CREATE FUNCTION @extschema@.outbox_claim(
	route text, max_messages integer DEFAULT 100,
	lease interval DEFAULT '30 seconds', worker text DEFAULT NULL)
RETURNS TABLE (
	token bigint, @columns read types -route -available_at -origin@)
AS 'MODULE_PATHNAME', 'outbox_claim'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;

COMMENT ON FUNCTION @extschema@.outbox_claim(text, integer, interval, text) IS
'For the relay of a route with relay = ''external'': leases up to max_messages (1 to 10000, and about 16 MB) of its messages that can go now for the time of lease (at most a day) and returns them in the order of seq, with one token for all; no rows: there is nothing to do now, or the route, the database or the relay is paused or off, or this is a copy. Messages of one key come in their order, and none while an earlier one of its key is leased, locked, waits for its next attempt, or has failed with on_failed = ''block''. Publish only once the transaction has committed. routing_key is rendered by the route''s template where the message has none. A claim skips locked messages, about a million at most. worker: a name for outbox_leases, its first 511 bytes, ? in place of every byte that is not printable. Errors: 42704 unknown route; 55000 the workers publish it, or change data capture reads it; 42501 not in relay_roles; 22023 max_messages or lease; 25001 not under READ COMMITTED.';

CREATE FUNCTION @extschema@.outbox_ack(token bigint, ids uuid[] DEFAULT array_fill(NULL::uuid, ARRAY[1], ARRAY[0]))
RETURNS integer
AS 'MODULE_PATHNAME', 'outbox_ack'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.outbox_ack(bigint, uuid[]) IS
'Published: moves messages of a lease (without ids all of them) to the archive, or removes them where nothing is kept, and returns how many. Ids that are not in the lease (any more) are ignored. Errors: 55000 the lease is not held any more, so that somebody else publishes its messages; 22004 ids is NULL or contains NULL; 42501 not in relay_roles.';

CREATE FUNCTION @extschema@.outbox_nack(
	token bigint, id uuid, error text, retry_in interval DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'outbox_nack'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.outbox_nack(bigint, uuid, text, interval) IS
'Could not be published: counts an attempt of a message of a lease, with the error as its last_error: its first 511 bytes, ? in place of every byte that is not printable. Returns pending (it is tried again after retry_in, or after a growing time by outbox.retry_initial and outbox.retry_max if that is NULL), failed (after max_attempts of its route), moved (to the failed_route of its route), or NULL if it was discarded meanwhile. It leaves the lease, and so do the later messages of its key. Errors: 55000 the lease is not held any more; P0002 the message is not in it; 22004 error is NULL; 22023 retry_in; 42501 not in relay_roles.';

CREATE FUNCTION @extschema@.outbox_extend(token bigint, lease interval DEFAULT '30 seconds')
RETURNS timestamptz
AS 'MODULE_PATHNAME', 'outbox_extend'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.outbox_extend(bigint, interval) IS
'Lets a lease end so long from now (at most a day), and returns when that is. One that has expired and was not taken over counts again. Errors: 55000 the lease is not held any more; 22023 lease; 42501 not in relay_roles.';

CREATE FUNCTION @extschema@.outbox_release(token bigint, ids uuid[] DEFAULT array_fill(NULL::uuid, ARRAY[1], ARRAY[0]))
RETURNS integer
AS 'MODULE_PATHNAME', 'outbox_release'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION @extschema@.outbox_release(bigint, uuid[]) IS
'Gives messages of a lease (without ids all of them) back unpublished, with the later ones of their keys, at once and without an attempt, as a relay does that is stopped; returns how many. Errors: 55000 the lease is not held any more; 22004 ids is NULL or contains NULL; 42501 not in relay_roles.';

CREATE VIEW @extschema@.outbox_leases AS
	SELECT l.token, l.route, l.worker, l.claimed_by, l.claimed_at, l.expires_at,
		l.expires_at < pg_catalog.clock_timestamp() AS expired,
		pg_catalog.cardinality(l.ids) AS messages
	FROM outbox_internal.outbox_lease l;

COMMENT ON VIEW @extschema@.outbox_leases IS 'What external relays have claimed and not acknowledged, one row a claim.';

