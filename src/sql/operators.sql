--
-- What operators have done
--

CREATE TABLE @extschema@.outbox_history (
	id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT outbox_history_pkey PRIMARY KEY,
	at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	role name NOT NULL,
	action text NOT NULL,
	subject text,
	messages bigint,
	reason text,
	detail jsonb,
	login name NOT NULL DEFAULT session_user
);

CREATE VIEW outbox_internal.outbox_history AS SELECT h.* FROM @extschema@.outbox_history h;

CREATE INDEX outbox_history_at ON @extschema@.outbox_history (at);

COMMENT ON TABLE @extschema@.outbox_history IS
'What operators have done to messages, routes and the relay of this database by the functions of the extension: one row for each call that has changed something, in its transaction. Kept for outbox.history_retention.';

/*
 * For functions that run as the owner of the extension, who is current_user
 * there.  What the session is stays visible: its login, and the role that SET
 * ROLE has given it.
 */
CREATE FUNCTION outbox_internal.outbox_remember(
	action text, subject text, messages bigint, reason text, detail jsonb)
RETURNS void
LANGUAGE sql
BEGIN ATOMIC
	INSERT INTO @extschema@.outbox_history (role, action, subject, messages, reason, detail)
	VALUES (outbox_internal.outbox_acting_role(),
		$1, $2, $3, $4, $5);
END;

COMMENT ON FUNCTION outbox_internal.outbox_remember(text, text, bigint, text, jsonb) IS
'Writes a row of outbox_history, in the name of the session''s role.';

CREATE FUNCTION outbox_internal.outbox_history_maintain(retention interval)
RETURNS bigint
LANGUAGE plpgsql STRICT
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	old_at constant timestamptz := clock_timestamp() - retention;
	removed bigint;
BEGIN
	DELETE FROM outbox_internal.outbox_history h
	WHERE h.id IN (
		SELECT old.id FROM outbox_internal.outbox_history old
		WHERE old.at < old_at
		ORDER BY old.at
		LIMIT 1000
		FOR UPDATE SKIP LOCKED);
	GET DIAGNOSTICS removed = ROW_COUNT;
	RETURN removed;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_history_maintain(interval) IS
'Removes rows of outbox_history that are older than the retention, at most 1000, and returns how many. The relay calls it; the owner of the extension may.';

--
-- Functions for operators.  They run as the owner of the extension, so EXECUTE
-- on them is all that an operator's role needs.
--

CREATE FUNCTION outbox_internal.outbox_requeue_rows(
	locked tid[], subject text, arguments jsonb)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
	requeued bigint;
BEGIN
	UPDATE outbox_internal.outbox o
	SET status = 'pending', attempts = 0, available_at = NULL
	WHERE o.ctid = ANY (locked);
	GET DIAGNOSTICS requeued = ROW_COUNT;
	IF requeued > 0 THEN
		PERFORM outbox_internal.outbox_remember('requeue', subject, requeued, NULL::text, arguments);
	END IF;
	RETURN requeued;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_requeue_rows(tid[], text, jsonb) IS
'Makes the failed messages at these places pending again, which the caller has locked, records that with subject and arguments, and returns how many.';

CREATE FUNCTION @extschema@.outbox_requeue(id uuid)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	place tid;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	/* Locked only if it failed: what is pending is the relay's to lock. */
	SELECT o.ctid INTO place
	FROM outbox_internal.outbox o WHERE o.id = outbox_requeue.id AND o.status = 'failed'
	FOR UPDATE;
	IF NOT FOUND THEN
		PERFORM FROM outbox_internal.outbox o WHERE o.id = outbox_requeue.id;
		IF NOT FOUND THEN
			RAISE EXCEPTION 'message "%" does not exist', outbox_requeue.id
				USING ERRCODE = 'no_data_found',
					DETAIL = 'It was published, discarded, or never enqueued.',
					HINT = 'The view outbox_failed lists the messages that can be requeued.';
		END IF;
		RETURN false;
	END IF;
	RETURN outbox_internal.outbox_requeue_rows(ARRAY[place]::tid[],
		'message "' || outbox_requeue.id || '"', NULL::jsonb) > 0;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_requeue(uuid) IS
'Makes a failed message pending again, with its attempts counted from 0. Returns false when it is pending already; an unknown id is an error (P0002).';

/* Messages can wait for a route that is gone, and be discarded. */
CREATE FUNCTION outbox_internal.outbox_check_route(route text, gone boolean)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF route IS NOT NULL
		AND NOT EXISTS (SELECT FROM outbox_internal.outbox_route r WHERE r.name = outbox_check_route.route)
		AND NOT (gone AND EXISTS (SELECT FROM outbox_internal.outbox o WHERE o.route = outbox_check_route.route)) THEN
		RAISE EXCEPTION 'route "%" does not exist', route
			USING ERRCODE = 'undefined_object',
				HINT = 'The table outbox_route lists the routes.';
	END IF;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_check_route(text, boolean) IS
'An error (42704) for a name that is neither NULL, nor a route, nor, if gone is true, that of a route that is gone and still has messages.';

/*
 * What an external relay or a worker has claimed, by the hash that outbox_taken() tells,
 * is asked again with the rows locked: a claim that is under way commits before we get
 * the lock, and is told from then on; no new one can take the row while we have it.
 */
CREATE FUNCTION outbox_internal.outbox_delete_unclaimed(locked tid[])
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
	claimed bigint[];
	deleted bigint;
BEGIN
	IF locked = '{}' THEN
		RETURN 0;
	END IF;
	claimed := ARRAY(SELECT c.id_hash FROM outbox_internal.outbox_taken(ARRAY(
		SELECT o.id FROM outbox_internal.outbox o WHERE o.ctid = ANY (locked))::uuid[]) c);
	DELETE FROM outbox_internal.outbox o
	WHERE o.ctid = ANY (locked)
		AND outbox_internal.outbox_claim_hash(o.id::uuid) <> ALL (claimed);
	GET DIAGNOSTICS deleted = ROW_COUNT;
	RETURN deleted;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_delete_unclaimed(tid[]) IS
'Deletes the messages at these places, which the caller has locked, but for those that a worker has claimed or an external relay has leased; returns how many.';

/*
 * Functions for many lock the rows by one statement and change them by another,
 * at their places.  The statistics of a queue that was just empty, or of one that
 * was just filled, are wrong, and a join of 100,000 rows by them took minutes
 * (measured); to look for the elements of a known array the server makes a hash.
 */
CREATE FUNCTION outbox_internal.outbox_lock_messages(
	status text, route text, event_type text, aggregate_type text, aggregate_id text,
	last_error_like text, created_before timestamptz, ids uuid[], max_messages integer,
	OUT locked tid[], OUT filter jsonb)
RETURNS record
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
	/* A claimed message is not even locked: its settling would have to wait for us. */
	claimed bigint[] := '{}';
BEGIN
	IF max_messages < 0 THEN
		RAISE EXCEPTION 'max_messages must not be negative'
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
	PERFORM outbox_internal.outbox_check_route(route, true);
	IF status = 'pending' THEN
		claimed := ARRAY(SELECT c.id_hash FROM outbox_internal.outbox_taken(NULL::uuid[]) c);
	END IF;
	locked := ARRAY(
		SELECT o.ctid FROM outbox_internal.outbox o
		WHERE o.status = outbox_lock_messages.status
			AND (outbox_lock_messages.route IS NULL OR o.route = outbox_lock_messages.route)
			AND (outbox_lock_messages.event_type IS NULL
				OR o.event_type = outbox_lock_messages.event_type)
			AND (outbox_lock_messages.aggregate_type IS NULL
				OR o.aggregate_type = outbox_lock_messages.aggregate_type)
			AND (outbox_lock_messages.aggregate_id IS NULL
				OR o.aggregate_id = outbox_lock_messages.aggregate_id)
			AND (last_error_like IS NULL OR o.last_error LIKE last_error_like)
			AND (created_before IS NULL OR o.created_at < created_before)
			AND (ids IS NULL OR o.id = ANY (ids))
			AND outbox_internal.outbox_claim_hash(o.id::uuid) <> ALL (claimed)
		ORDER BY o.seq
		LIMIT max_messages
		FOR UPDATE SKIP LOCKED);
	filter := jsonb_strip_nulls(jsonb_build_object('route', route, 'event_type', event_type,
		'aggregate_type', aggregate_type, 'aggregate_id', aggregate_id,
		'last_error_like', last_error_like, 'created_before', created_before,
		'ids', ids[1:100], 'max_messages', max_messages));
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_lock_messages(text, text, text, text, text, text, timestamptz, uuid[], integer) IS
'Locks the messages of that status that match all other arguments which are not NULL, the oldest first, at most max_messages; returns their places, and the arguments for outbox_history. Messages that a worker is publishing, or another session has locked, are left. Errors: 22023 max_messages, 42704 unknown route.';

CREATE FUNCTION @extschema@.outbox_requeue_ids(ids uuid[])
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	chosen record;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	IF ids IS NULL THEN
		RAISE EXCEPTION 'ids must not be null'
			USING ERRCODE = 'null_value_not_allowed';
	END IF;
	chosen := outbox_internal.outbox_lock_messages('failed'::text, NULL::text,
		NULL::text, NULL::text, NULL::text, NULL::text, NULL::timestamptz, ids, NULL::integer);
	RETURN outbox_internal.outbox_requeue_rows(chosen.locked, NULL::text, chosen.filter);
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_requeue_ids(uuid[]) IS
'Makes those of these messages pending again that have failed, with their attempts counted from 0, and returns how many these were; one that somebody else has locked is left. NULL is an error (22004).';

CREATE FUNCTION @extschema@.outbox_requeue_failed(
	route text DEFAULT NULL, event_type text DEFAULT NULL,
	aggregate_type text DEFAULT NULL, aggregate_id text DEFAULT NULL,
	last_error_like text DEFAULT NULL, created_before timestamptz DEFAULT NULL,
	max_messages integer DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	chosen record;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	chosen := outbox_internal.outbox_lock_messages('failed'::text, route,
		event_type, aggregate_type, aggregate_id, last_error_like, created_before, NULL::uuid[], max_messages);
	RETURN outbox_internal.outbox_requeue_rows(chosen.locked, NULL::text, chosen.filter);
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_requeue_failed(text, text, text, text, text, timestamptz, integer) IS
'Makes the failed messages pending again that match all arguments which are not NULL (last_error_like is a LIKE pattern), the oldest first, at most max_messages. Returns their number; one that somebody else has locked is left. An unknown route is an error (42704).';

/* To be asked with the row locked, as outbox_delete_unclaimed() says. */
CREATE FUNCTION outbox_internal.outbox_check_unclaimed(id uuid)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF EXISTS (SELECT FROM outbox_internal.outbox_taken(ARRAY[outbox_check_unclaimed.id]::uuid[]) c
			WHERE c.id_hash = outbox_internal.outbox_claim_hash(outbox_check_unclaimed.id)) THEN
		RAISE EXCEPTION 'message "%" is being published', outbox_check_unclaimed.id
			USING ERRCODE = 'object_in_use',
				HINT = 'Call outbox_pause() for its route first, or try again later.';
	END IF;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_check_unclaimed(uuid) IS
'An error (55006) while a worker has the message in its memory, or an external relay has leased it.';

CREATE FUNCTION @extschema@.outbox_discard(id uuid)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	PERFORM FROM outbox_internal.outbox o WHERE o.id = outbox_discard.id
	FOR UPDATE;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	PERFORM outbox_internal.outbox_check_unclaimed(outbox_discard.id);
	DELETE FROM outbox_internal.outbox o WHERE o.id = outbox_discard.id;
	PERFORM outbox_internal.outbox_remember('discard', 'message "' || outbox_discard.id || '"',
		1::bigint, NULL::text, NULL::jsonb);
	RETURN true;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_discard(uuid) IS
'Removes a failed or waiting message for good; it is never published. Returns false when there is none with that id; one that a worker or an external relay is publishing is an error (55006).';

CREATE FUNCTION @extschema@.outbox_discard_messages(
	reason text, status text DEFAULT 'failed',
	route text DEFAULT NULL, event_type text DEFAULT NULL,
	aggregate_type text DEFAULT NULL, aggregate_id text DEFAULT NULL,
	last_error_like text DEFAULT NULL, created_before timestamptz DEFAULT NULL,
	ids uuid[] DEFAULT array_fill(NULL::uuid, ARRAY[1], ARRAY[0]), max_messages integer DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	given boolean;
	chosen record;
	discarded bigint;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	given := outbox_internal.outbox_ids_given(ids);
	IF reason IS NULL OR reason = '' THEN
		RAISE EXCEPTION 'reason must not be null or empty'
			USING ERRCODE = 'invalid_parameter_value',
				HINT = 'It is kept in outbox_history.';
	END IF;
	IF status IS NULL OR status <> ALL ('{failed,pending}'::text[]) THEN
		RAISE EXCEPTION 'status must be ''failed'' or ''pending'''
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
	chosen := outbox_internal.outbox_lock_messages(status, route, event_type, aggregate_type,
		aggregate_id, last_error_like, created_before, (CASE WHEN given THEN ids END)::uuid[], max_messages);
	discarded := outbox_internal.outbox_delete_unclaimed(chosen.locked);
	IF discarded > 0 THEN
		PERFORM outbox_internal.outbox_remember('discard', NULL::text, discarded, reason,
			(jsonb_build_object('status', status) || chosen.filter)::jsonb);
	END IF;
	RETURN discarded;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_discard_messages(text, text, text, text, text, text, text, timestamptz, uuid[], integer) IS
'Removes for good the messages of that status (failed, or pending: waiting) that match all other arguments which are not NULL (last_error_like is a LIKE pattern), the oldest first, at most max_messages; they are never published. Returns their number; what a worker is publishing, or somebody else has locked, is left. The reason is kept in outbox_history. Errors: 22023 no reason, or another status; 22004 ids is NULL or contains NULL; 42704 unknown route.';

CREATE FUNCTION @extschema@.outbox_edit(
	id uuid, payload jsonb DEFAULT NULL, body bytea DEFAULT NULL,
	headers jsonb DEFAULT NULL, properties jsonb DEFAULT NULL,
	routing_key text DEFAULT NULL, route text DEFAULT NULL,
	clear text[] DEFAULT NULL, reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	before outbox_internal.outbox;
	after outbox_internal.outbox;
	old jsonb;
	wrong text := (SELECT c.name FROM unnest(clear) c(name)
		WHERE (c.name = ANY ('{headers,properties,routing_key}'::text[])) IS NOT TRUE LIMIT 1);
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	IF payload IS NOT NULL AND body IS NOT NULL THEN
		RAISE EXCEPTION 'payload and body must not both be given'
			USING ERRCODE = 'invalid_parameter_value',
				HINT = 'One of them replaces the other.';
	END IF;
	IF wrong IS NOT NULL OR EXISTS (SELECT FROM unnest(clear) c(name) WHERE c.name IS NULL) THEN
		RAISE EXCEPTION 'clear contains "%", which cannot be cleared', coalesce(wrong, 'NULL')
			USING ERRCODE = 'invalid_parameter_value',
				HINT = 'What can be: headers, properties, routing_key.';
	END IF;
	SELECT * INTO before FROM outbox_internal.outbox o WHERE o.id = outbox_edit.id
	FOR UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'message "%" does not exist', outbox_edit.id
			USING ERRCODE = 'no_data_found',
				DETAIL = 'It was published, discarded, or never enqueued.';
	END IF;
	/* It would go out as the worker has it. */
	PERFORM outbox_internal.outbox_check_unclaimed(outbox_edit.id);
	/*
	 * It becomes a message of this database, as one of another is not checked
	 * again.  So it has to be one that the relay may publish.
	 */
	IF before.origin <> outbox_internal.outbox_origin()
		AND before.origin <> ALL ((SELECT c.adopted_origins FROM outbox_internal.outbox_control c)::bigint[]) THEN
		RAISE EXCEPTION 'message "%" belongs to another database', outbox_edit.id
			USING ERRCODE = 'object_not_in_prerequisite_state',
				HINT = 'Look at what is pending, then call outbox_adopt().';
	END IF;
	UPDATE outbox_internal.outbox o SET
		payload = CASE WHEN outbox_edit.body IS NULL THEN coalesce(outbox_edit.payload, o.payload) END,
		body = CASE WHEN outbox_edit.payload IS NULL THEN coalesce(outbox_edit.body, o.body) END,
		headers = CASE WHEN 'headers' = ANY (clear) THEN NULL
			ELSE coalesce(outbox_edit.headers, o.headers) END,
		properties = CASE WHEN 'properties' = ANY (clear) THEN NULL
			ELSE coalesce(outbox_edit.properties, o.properties) END,
		routing_key = CASE WHEN 'routing_key' = ANY (clear) THEN NULL
			ELSE coalesce(outbox_edit.routing_key, o.routing_key) END,
		route = coalesce(outbox_edit.route, o.route),
		origin = outbox_internal.outbox_origin()
	WHERE o.id = outbox_edit.id
	RETURNING o.* INTO after;
	/* Of what is over 1 MB only size and hash: the history is no archive. */
	SELECT jsonb_object_agg(v.name,
		CASE WHEN octet_length(v.value::text) > 1048576
			THEN jsonb_build_object('bytes', octet_length(v.value::text), 'sha256',
				encode(sha256(convert_to(v.value::text, getdatabaseencoding())), 'hex'))
			ELSE v.value END)
	INTO old
	FROM (VALUES
		('route', to_jsonb(before.route), before.route IS DISTINCT FROM after.route),
		('routing_key', to_jsonb(before.routing_key), before.routing_key IS DISTINCT FROM after.routing_key),
		('payload', before.payload, before.payload IS DISTINCT FROM after.payload),
		('body', CASE WHEN octet_length(before.body) > 700000
				THEN jsonb_build_object('bytes', octet_length(before.body),
					'sha256', encode(sha256(before.body), 'hex'))
				ELSE to_jsonb(encode(before.body, 'base64')) END,
			before.body IS DISTINCT FROM after.body),
		('headers', before.headers, before.headers IS DISTINCT FROM after.headers),
		('properties', before.properties, before.properties IS DISTINCT FROM after.properties)
	) v(name, value, changed)
	WHERE v.changed;
	IF old IS NULL THEN
		RETURN false;
	END IF;
	PERFORM outbox_internal.outbox_remember('edit', 'message "' || outbox_edit.id || '"', 1::bigint, reason,
		jsonb_build_object('aggregate_type', before.aggregate_type,
			'aggregate_id', before.aggregate_id, 'old', old));
	RETURN true;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_edit(uuid, jsonb, bytea, jsonb, jsonb, text, text, text[], text) IS
'Changes a failed or waiting message: what is given replaces what it has (payload a body and the other way round), what clear names (headers, properties, routing_key) is taken away, all else stays, its status too: outbox_requeue() sends a failed one. It is checked as a new message is. The old values are kept in outbox_history. Returns false when nothing is different. Errors: P0002 unknown id; 55006 a worker is publishing it; 55000 it belongs to another database; 22023 payload and body, or something else in clear; those of outbox_enqueue().';

/*
 * What is in the memory of a worker is not waited for: it is out within a moment,
 * or not before somebody resumes its route, and waiting would hold what we have
 * locked.
 */
CREATE FUNCTION @extschema@.outbox_erase(
	aggregate_type text, aggregate_id text, reason text DEFAULT NULL,
	OUT live bigint, OUT archived bigint, OUT history bigint, OUT remaining bigint)
RETURNS record
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
SET lock_timeout = '3s' SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
	claimed bigint[];
	locked tid[];
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	IF aggregate_id IS NULL THEN
		RAISE EXCEPTION 'aggregate_id must not be null'
			USING ERRCODE = 'null_value_not_allowed';
	END IF;
	/* What leaves the live table meanwhile has to be seen in the archive. */
	IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
		RAISE EXCEPTION 'outbox_erase() must run under READ COMMITTED'
			USING ERRCODE = 'active_sql_transaction',
				DETAIL = 'Under a snapshot from before it would miss what is published meanwhile.';
	END IF;
	/*
	 * A chunk of a replay that has read the archive and not committed would put
	 * back what is removed here: wait for it, and let none begin before we commit.
	 */
	PERFORM outbox_internal.outbox_lock_table(outbox_internal.outbox_relation('outbox_job'), 'ExclusiveLock', true);
	claimed := ARRAY(SELECT c.id_hash FROM outbox_internal.outbox_taken(NULL::uuid[]) c);
	locked := ARRAY(
		SELECT o.ctid FROM outbox_internal.outbox o
		WHERE o.aggregate_id = outbox_erase.aggregate_id
			AND o.aggregate_type IS NOT DISTINCT FROM outbox_erase.aggregate_type
			AND outbox_internal.outbox_claim_hash(o.id::uuid) <> ALL (claimed)
		ORDER BY o.seq
		FOR UPDATE);
	live := outbox_internal.outbox_delete_unclaimed(locked);
	/*
	 * Before the archive is looked at, each with a snapshot of its own: what a
	 * worker moves there in between is counted and removed, too, and what it moves
	 * later is counted.  The other way round it would be neither.
	 */
	SELECT count(*) INTO remaining
	FROM outbox_internal.outbox o
	WHERE o.aggregate_id = outbox_erase.aggregate_id
		AND o.aggregate_type IS NOT DISTINCT FROM outbox_erase.aggregate_type;
	DELETE FROM outbox_internal.outbox_archive a
	WHERE a.aggregate_id = outbox_erase.aggregate_id
		AND a.aggregate_type IS NOT DISTINCT FROM outbox_erase.aggregate_type;
	GET DIAGNOSTICS archived = ROW_COUNT;
	/* A filter without aggregate_type was for all of them. */
	UPDATE outbox_internal.outbox_history h
	SET detail = h.detail - '{aggregate_type,aggregate_id,old}'::text[] || '{"erased": true}'::jsonb
	WHERE h.detail->>'aggregate_id' = outbox_erase.aggregate_id
		AND (NOT h.detail ? 'aggregate_type'
			OR h.detail->>'aggregate_type' IS NOT DISTINCT FROM outbox_erase.aggregate_type);
	GET DIAGNOSTICS history = ROW_COUNT;
	/* A job has its list of messages; what it was filed with is only shown. */
	UPDATE outbox_internal.outbox_job j
	SET arguments = j.arguments - '{aggregate_type,aggregate_id}'::text[] || '{"erased": true}'::jsonb
	WHERE j.arguments->>'aggregate_id' = outbox_erase.aggregate_id
		AND (NOT j.arguments ? 'aggregate_type'
			OR j.arguments->>'aggregate_type' IS NOT DISTINCT FROM outbox_erase.aggregate_type);
	/* By the hash: the name of what was erased must not be kept. */
	IF live + archived + history > 0 THEN
		PERFORM outbox_internal.outbox_remember('erase', 'key', live + archived, reason,
			jsonb_build_object(
				/* Of all routes, so of none. */
				'key_hash', outbox_internal.outbox_key_hash('', outbox_erase.aggregate_type, outbox_erase.aggregate_id),
				'live', live, 'archived', archived, 'history', history, 'remaining', remaining));
	END IF;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_erase(text, text, text) IS
'Removes all messages of one aggregate, on all routes and wherever they are: live ones (never published then), archived ones, and what outbox_history and arguments of jobs have kept of them. aggregate_type NULL: of messages without one. Returns how many of each, and how many live ones remain because a worker is publishing them or they were enqueued meanwhile: repeat it until that is 0. It reads the whole archive, and jobs wait until the caller commits; partitions that have left the archive to be dropped (outbox_archive_dropping_...), WAL, backups, standbys and consumers keep what they have. Errors: 22004 aggregate_id NULL; 25001 not under READ COMMITTED; 55P03 after 3 s behind a lock.';

CREATE FUNCTION outbox_internal.outbox_set_paused(route text, value boolean, reason text)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	changed boolean;
	captured text;
BEGIN
	/* Who and when: outbox_pause_trigger().  A pause of what is paused says so again. */
	IF route IS NULL THEN
		UPDATE outbox_internal.outbox_control c
		SET paused = value, paused_by = NULL, paused_at = NULL,
			pause_reason = outbox_set_paused.reason
		WHERE c.paused OR value;
		changed := FOUND;
	ELSE
		UPDATE outbox_internal.outbox_route r
		SET paused = value, paused_by = NULL, paused_at = NULL,
			pause_reason = outbox_set_paused.reason
		WHERE r.name = outbox_set_paused.route AND (r.paused OR value);
		changed := FOUND;
		PERFORM outbox_internal.outbox_check_route(route, false);
	END IF;
	IF changed THEN
		PERFORM outbox_internal.outbox_remember(
			(CASE WHEN value THEN 'pause' ELSE 'resume' END)::text,
			coalesce('route "' || route || '"', 'database'), NULL::bigint, reason, NULL::jsonb);
	END IF;
	IF value AND route IS NULL THEN
		SELECT array_to_string((array_agg(quote_ident(r.name) ORDER BY r.name))[1:3], ', ')
			|| CASE WHEN count(*) > 3 THEN format(' and %s more', count(*) - 3) ELSE '' END
		INTO captured
		FROM outbox_internal.outbox_route r
		WHERE r.relay = 'cdc';
		IF captured IS NOT NULL THEN
			RAISE NOTICE 'change data capture goes on publishing'
				USING DETAIL = format('Routes with relay = ''cdc'': %s.', captured),
					HINT = 'Stop the connector that reads them.';
		END IF;
	END IF;
	RETURN changed;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_set_paused(text, boolean, text) IS
'What outbox_pause() and outbox_resume() share.';

CREATE FUNCTION @extschema@.outbox_pause(route text DEFAULT NULL, reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
BEGIN ATOMIC
	SELECT outbox_internal.outbox_act_as_owner();
	SELECT outbox_internal.outbox_set_paused(route, true, reason);
END;

COMMENT ON FUNCTION @extschema@.outbox_pause(text, text) IS
'Stops publishing on a route, or with NULL in this whole database, from the commit on; what is in flight is still confirmed. Enqueue goes on, and so does change data capture, whose routes a NOTICE names. Who, when and the reason are in the columns beside paused, and in outbox_history. Returns true; an unknown route is an error (42704).';

CREATE FUNCTION @extschema@.outbox_resume(route text DEFAULT NULL, reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
BEGIN ATOMIC
	SELECT outbox_internal.outbox_act_as_owner();
	SELECT outbox_internal.outbox_set_paused(route, false, reason);
END;

COMMENT ON FUNCTION @extschema@.outbox_resume(text, text) IS
'Undoes outbox_pause() with the same route; the reason is kept in outbox_history. Returns false when it was not paused; an unknown route is an error (42704).';

CREATE FUNCTION @extschema@.outbox_adopt()
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	before outbox_internal.outbox_control;
	after outbox_internal.outbox_control;
	highest bigint;
	numbers regclass;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	numbers := outbox_internal.outbox_relation('outbox_seq_seq');
	SELECT * INTO before FROM outbox_internal.outbox_control FOR UPDATE;
	/*
	 * What came by logical replication has the numbers of its publisher, and what
	 * is enqueued from now on comes after it.  Nobody may draw a number meanwhile.
	 */
	SELECT max(o.seq) INTO highest FROM outbox_internal.outbox o;
	IF highest > coalesce(pg_sequence_last_value(numbers), 0) THEN
		PERFORM outbox_internal.outbox_lock_table(outbox_internal.outbox_relation('outbox'), 'ShareRowExclusiveLock', true);
		PERFORM setval(numbers, greatest(highest, pg_sequence_last_value(numbers)));
	END IF;
	/* In any case: that adopted_at changes makes the workers look again. */
	UPDATE outbox_internal.outbox_control c
	SET system_identifier = i.system_identifier, database_oid = i.database_oid,
		environment = i.environment, timeline = i.timeline,
		adopted_at = now(),
		adopted_origins = c.adopted_origins || ARRAY(
			SELECT DISTINCT o.origin FROM outbox_internal.outbox o
			WHERE o.origin <> outbox_internal.outbox_origin()
				AND o.origin <> ALL (c.adopted_origins))
	FROM outbox_internal.outbox_identity() i
	RETURNING c.* INTO after;
	IF (after.system_identifier, after.database_oid, after.adopted_origins,
			after.environment, after.timeline)
		IS NOT DISTINCT FROM
		(before.system_identifier, before.database_oid, before.adopted_origins,
		 before.environment, before.timeline) THEN
		RETURN false;
	END IF;
	PERFORM outbox_internal.outbox_remember('adopt', 'database', NULL::bigint, NULL::text,
		jsonb_build_object(
			'before', to_jsonb(before) - '{singleton,paused,paused_by,paused_at,pause_reason}'::text[],
			'after', to_jsonb(after) - '{singleton,paused,paused_by,paused_at,pause_reason}'::text[]));
	RETURN true;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_adopt() IS
'Lets the relay publish what a copy (restored dump, CREATE DATABASE ... TEMPLATE, server in another environment or restored to a point in time) or a subscriber of logical replication holds: records this database in outbox_control, and in adopted_origins where the messages that are there now come from, and lets seq go on behind theirs. Returns false when all of that was recorded already.';

CREATE FUNCTION outbox_internal.outbox_tell_workers()
RETURNS integer
AS 'MODULE_PATHNAME', 'outbox_worker_restart'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

COMMENT ON FUNCTION outbox_internal.outbox_tell_workers() IS
'What outbox_worker_restart() does, unremembered.';

/*
 * The workers are told at once, whatever becomes of the transaction.  It has to
 * work where nothing can be written, too: in a database that is read-only by
 * default.
 */
CREATE FUNCTION @extschema@.outbox_worker_restart()
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	told integer;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	told := outbox_internal.outbox_tell_workers();
	IF told > 0 AND NOT current_setting('transaction_read_only')::boolean THEN
		PERFORM outbox_internal.outbox_remember('restart workers', 'database', NULL::bigint, NULL::text,
			jsonb_build_object('workers', told));
	END IF;
	RETURN told;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_worker_restart() IS
'Makes the workers of this database settle, leave and start again (new connections, ALTER DATABASE SET read again), at once, not at commit. Returns how many were told.';

