--
-- Jobs: what takes the relay more than one transaction
--

CREATE TABLE @extschema@.outbox_job (
	id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT outbox_job_pkey PRIMARY KEY,
	kind text NOT NULL CHECK (kind IN ('replay')),
	state text NOT NULL DEFAULT 'waiting'
		CHECK (state IN ('waiting', 'running', 'done', 'cancelled', 'failed')),
	arguments jsonb NOT NULL,
	created_by name NOT NULL,
	created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	started_at timestamptz,
	ended_at timestamptz,
	total bigint NOT NULL DEFAULT 0,
	done bigint NOT NULL DEFAULT 0,
	skipped bigint NOT NULL DEFAULT 0,
	position bigint NOT NULL GENERATED ALWAYS AS (done + skipped) STORED,
	last_error text,
	last_error_at timestamptz
);

/*
 * What a job has still to do, 1000 messages a row: where they are in the archive,
 * and their seq, by which it is seen that they still are.  Ten bytes a message, and
 * no index of the archive that each published message would have to pay for.
 */
CREATE TABLE outbox_internal.outbox_job_list (
	/* no foreign key, whose check would name the chosen schema when it runs: outbox_replay() deletes */
	job bigint,
	/* how many of the job's messages come before these */
	first bigint,
	/* each one's partition, place there, and seq, by which a moved row is noticed */
	parts oid[] NOT NULL,
	tids tid[] NOT NULL,
	seqs bigint[] NOT NULL,
	/* and the file of the partition: another one has other places */
	files oid[] NOT NULL,
	PRIMARY KEY (job, first)
);

CREATE TRIGGER outbox_job_changed
	AFTER INSERT OR UPDATE ON @extschema@.outbox_job
	FOR EACH STATEMENT EXECUTE FUNCTION outbox_internal.outbox_change_trigger();

COMMENT ON TABLE @extschema@.outbox_job IS
'Jobs that worker 0 of this database runs one after the other, in chunks between which it publishes; filed by outbox_replay(). One that has ended stays for 30 days.';
CREATE VIEW outbox_internal.outbox_job AS SELECT j.* FROM @extschema@.outbox_job j;

COMMENT ON TABLE outbox_internal.outbox_job_list IS
'Internal: the messages that jobs have still to do, by their places in the archive.';

--
-- Replay: published messages once more, out of the archive
--

CREATE FUNCTION @extschema@.outbox_replay(
	published_from timestamptz, published_to timestamptz DEFAULT NULL,
	route text DEFAULT NULL, aggregate_type text DEFAULT NULL,
	aggregate_id text DEFAULT NULL, new_ids boolean DEFAULT false,
	max_messages bigint DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	filed_at timestamptz := clock_timestamp();
	upto timestamptz := coalesce(published_to, filed_at);
	filed bigint;
	what jsonb;
	listed bigint;
	bodiless bigint;
	their_route text;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	IF published_from IS NULL OR new_ids IS NULL THEN
		RAISE EXCEPTION '% must not be null',
			CASE WHEN published_from IS NULL THEN 'published_from' ELSE 'new_ids' END
			USING ERRCODE = 'null_value_not_allowed',
				HINT = CASE WHEN published_from IS NULL
					THEN 'With ''-infinity'' it is all that the archive has.' ELSE 'Give true or false.' END;
	END IF;
	IF upto > filed_at THEN
		RAISE EXCEPTION 'published_to must not be in the future'
			USING ERRCODE = 'invalid_parameter_value',
				DETAIL = 'A replay is of messages that are published when it is filed.',
				HINT = 'Leave it out for all until now.';
	END IF;
	IF published_from >= upto THEN
		RAISE EXCEPTION 'published_from must be before published_to'
			USING ERRCODE = 'invalid_parameter_value',
				DETAIL = format('The time is from %s up to %s, which itself is not in it.',
					published_from, upto);
	END IF;
	IF max_messages <= 0 THEN
		RAISE EXCEPTION 'max_messages must be positive'
			USING ERRCODE = 'invalid_parameter_value';
	END IF;
	PERFORM outbox_internal.outbox_check_route(route, false);

	DELETE FROM outbox_internal.outbox_job j
	WHERE j.ended_at < filed_at - interval '30 days';
	DELETE FROM outbox_internal.outbox_job_list l
	WHERE NOT EXISTS (SELECT FROM outbox_internal.outbox_job j WHERE j.id = l.job);
	INSERT INTO outbox_internal.outbox_job (kind, created_by, created_at, arguments)
	VALUES ('replay', outbox_internal.outbox_acting_role(),
		filed_at, jsonb_strip_nulls(jsonb_build_object(
			'published_from', published_from, 'published_to', upto,
			'route', outbox_replay.route,
			'aggregate_type', outbox_replay.aggregate_type,
			'aggregate_id', outbox_replay.aggregate_id,
			'new_ids', new_ids, 'max_messages', max_messages)))
	RETURNING id, arguments INTO filed, what;

	/*
	 * In the order of enqueue, which published_at is not: a clock may go back, and
	 * a failed message may be published long after the next ones of its key.  To
	 * read the archive once, here, is what lets the relay read it by places only.
	 */
	WITH l AS MATERIALIZED (
		SELECT row_number() OVER (ORDER BY a.seq, a.published_at) - 1 AS n,
			a.tableoid AS part, a.ctid AS tid, a.seq,
			CASE WHEN num_nonnulls(@columns body a.@) = 0 THEN a.route END AS bodiless_on
		FROM outbox_internal.outbox_archive a
		WHERE a.published_at >= published_from AND a.published_at < upto
			AND (outbox_replay.route IS NULL OR a.route = outbox_replay.route)
			AND (outbox_replay.aggregate_type IS NULL
				OR a.aggregate_type = outbox_replay.aggregate_type)
			AND (outbox_replay.aggregate_id IS NULL
				OR a.aggregate_id = outbox_replay.aggregate_id)
		ORDER BY a.seq, a.published_at
		LIMIT max_messages),
	put AS (
		INSERT INTO outbox_internal.outbox_job_list (job, first, parts, tids, seqs, files)
		SELECT filed, min(l.n), array_agg(l.part ORDER BY l.n),
			array_agg(l.tid ORDER BY l.n), array_agg(l.seq ORDER BY l.n),
			array_agg(pg_relation_filenode(l.part) ORDER BY l.n)
		FROM l
		GROUP BY l.n / 1000)
	SELECT count(*), count(l.bodiless_on), min(l.bodiless_on)
	INTO listed, bodiless, their_route
	FROM l;
	IF bodiless > 0 THEN
		RAISE EXCEPTION 'messages that were archived without their body cannot be replayed'
			USING ERRCODE = 'object_not_in_prerequisite_state',
				DETAIL = format('Without payload and body in the archive: %s of %s selected messages, for example on route "%s". outbox_route.archive was ''metadata'' when they were published.',
					bodiless, listed, their_route),
				HINT = format('Replay another route or another time. SELECT route, min(published_at), max(published_at) FROM %s.outbox_archive WHERE payload IS NULL AND body IS NULL GROUP BY route shows which messages have no body.',
					outbox_internal.outbox_schema());
	END IF;
	UPDATE outbox_internal.outbox_job j
	SET total = listed, state = CASE WHEN listed = 0 THEN 'done' ELSE j.state END,
		ended_at = CASE WHEN listed = 0 THEN clock_timestamp() END
	WHERE j.id = filed;
	PERFORM outbox_internal.outbox_remember('replay', 'job ' || filed, listed, NULL::text, what);
	RETURN filed;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_replay(timestamptz, timestamptz, text, text, text, boolean, bigint) IS
'Files a job that publishes archived messages once more, in the order of their enqueue: those that were published from published_from until before published_to (NULL: until now) and match all other arguments that are not NULL, the oldest max_messages of them. They keep their ids, or with new_ids get new ones. Returns the id of the job: see outbox_job, outbox_progress and outbox_job_cancel(). Reads the archive of that time once. Errors: 22004 and 22023 name the argument, 42704 unknown route, 55000 some of the messages were archived without their body.';

CREATE FUNCTION @extschema@.outbox_job_cancel(id bigint)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
DECLARE
	j outbox_internal.outbox_job;
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	SELECT * INTO j FROM outbox_internal.outbox_job o
	WHERE o.id = outbox_job_cancel.id FOR UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'job % does not exist', outbox_job_cancel.id
			USING ERRCODE = 'no_data_found',
				HINT = 'The table outbox_job lists the jobs.';
	END IF;
	IF j.state IN ('done', 'cancelled') THEN
		RETURN false;
	END IF;
	DELETE FROM outbox_internal.outbox_job_list l WHERE l.job = j.id;
	UPDATE outbox_internal.outbox_job o SET state = 'cancelled', ended_at = clock_timestamp()
	WHERE o.id = j.id;
	PERFORM outbox_internal.outbox_remember('cancel', 'job ' || j.id, j.done, NULL::text,
		jsonb_build_object('total', j.total, 'skipped', j.skipped));
	RETURN true;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_job_cancel(bigint) IS
'Ends a job that waits, runs or has failed; what it has put into outbox until then is published. Returns false when it was done or cancelled already; an unknown id is an error (P0002).';

CREATE FUNCTION @extschema@.outbox_job_retry(id bigint)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	UPDATE outbox_internal.outbox_job o SET state = 'waiting', ended_at = NULL
	WHERE o.id = outbox_job_retry.id AND o.state = 'failed';
	IF FOUND THEN
		PERFORM outbox_internal.outbox_remember('retry', 'job ' || outbox_job_retry.id,
			NULL::bigint, NULL::text, NULL::jsonb);
		RETURN true;
	END IF;
	PERFORM FROM outbox_internal.outbox_job o WHERE o.id = outbox_job_retry.id;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'job % does not exist', outbox_job_retry.id
			USING ERRCODE = 'no_data_found',
				HINT = 'The table outbox_job lists the jobs.';
	END IF;
	RETURN false;
END
$$;

COMMENT ON FUNCTION @extschema@.outbox_job_retry(bigint) IS
'Lets a failed job go on where it was. Returns false when it has not failed; an unknown id is an error (P0002).';

/*
 * Which job is next; the relay runs one at a time, in the order in which they were
 * filed.
 */
CREATE FUNCTION outbox_internal.outbox_job_next()
RETURNS bigint
LANGUAGE sql STABLE
BEGIN ATOMIC
	SELECT min(j.id) FROM @extschema@.outbox_job j WHERE j.state IN ('waiting', 'running');
END;

COMMENT ON FUNCTION outbox_internal.outbox_job_next() IS
'Internal: the job that the relay works at, or NULL.';

CREATE FUNCTION outbox_internal.outbox_may_pass(sqlstate text)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN sqlstate ~ '^(08|25|40|53|55(?!000)|57|58|XX)';

COMMENT ON FUNCTION outbox_internal.outbox_may_pass(text) IS
'True of errors that a later attempt may not meet: they come neither from the message nor from its route. 55000 is none of them: a route lacks its slot.';

CREATE FUNCTION outbox_internal.outbox_job_step(
	max_messages integer, max_bytes bigint, earlier uuid[], tell boolean DEFAULT false,
	OUT outcome text, OUT ids uuid[])
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
/* It runs in the process that publishes: it waits for nobody. */
SET lock_timeout = '10ms'
/* The worker's session has it off, for statements of src/store only. */
SET enable_sort = on
AS $$
DECLARE
	j outbox_internal.outbox_job;
	l outbox_internal.outbox_job_list;
	skip bigint;				/* what of the list's row is done */
	n integer;				/* messages that this chunk has */
	cut bigint;				/* the first that is too much */
	listed bigint;			/* where the list's row ends */
	there bigint;
	missing text;
	rewritten text;
	messages text;
	put text;
	one uuid[];
	problem text;
	waits text;
	/* Behind an error that is older, and as long as it waits. */
	told constant text := '(; )?waits for messages of route ".*$';
BEGIN
	j.id := outbox_internal.outbox_job_next();
	IF j.id IS NULL THEN
		outcome := 'none';
		RETURN;
	END IF;
	/*
	 * Not faster than it is published: of an earlier chunk nearly all has to be.
	 * A tenth may wait, for another attempt, say, and does not hold up the rest.  Neither
	 * do dead letters on a failed_route that is paused: they have an error, which a message
	 * that the job put on that route itself does not have.
	 */
	SELECT CASE WHEN count(*) <= cardinality(earlier) / 10 THEN NULL
		WHEN bool_or(w.paused) THEN format('waits for messages of route "%s", which is paused',
			min(w.route) FILTER (WHERE w.paused))
		ELSE format('waits for messages of route "%s" to be published', min(w.route)) END
	INTO waits
	FROM (SELECT r.name AS route, r.paused FROM unnest(earlier) e(id)
			JOIN outbox_internal.outbox o ON o.id = e.id AND o.status = 'pending'
			JOIN outbox_internal.outbox_route r ON r.name = o.route
		  WHERE NOT r.paused OR o.last_error IS NULL OR NOT EXISTS (
			SELECT FROM outbox_internal.outbox_route f WHERE f.failed_route = r.name)
		  LIMIT cardinality(earlier) / 10 + 1) w;
	IF waits IS NOT NULL THEN
		/* Once: each UPDATE wakes the workers. */
		IF tell AND NOT EXISTS (SELECT FROM outbox_internal.outbox_job o
				WHERE o.id = j.id AND right(o.last_error, length(waits)) = waits) THEN
			UPDATE outbox_internal.outbox_job o SET last_error_at = clock_timestamp(),
				last_error = concat_ws('; ', nullif(regexp_replace(o.last_error, told, ''), ''), waits)
			WHERE o.id = j.id AND o.state IN ('waiting', 'running');
		END IF;
		outcome := 'busy';
		RETURN;
	END IF;
	SELECT * INTO j FROM outbox_internal.outbox_job o
	WHERE o.id = j.id AND o.state IN ('waiting', 'running')
	FOR UPDATE SKIP LOCKED;
	IF NOT FOUND THEN
		outcome := 'locked';
		RETURN;
	END IF;
	SELECT * INTO l FROM outbox_internal.outbox_job_list o
	WHERE o.job = j.id AND o.first <= j.position
	ORDER BY o.first DESC LIMIT 1;
	skip := j.position - l.first;
	IF l.job IS NULL OR skip >= cardinality(l.tids) THEN
		RAISE EXCEPTION 'what job % has still to do is not in outbox_job_list', j.id
			USING ERRCODE = 'data_corrupted';
	END IF;
	n := least(max_messages, cardinality(l.tids) - skip);
	listed := l.first + cardinality(l.tids);
	l.parts := l.parts[skip + 1 : skip + n];
	l.tids := l.tids[skip + 1 : skip + n];
	l.seqs := l.seqs[skip + 1 : skip + n];
	l.files := l.files[skip + 1 : skip + n];

	/* By partition, as a place is one in its partition; it may have been dropped. */
	SELECT string_agg(format(
		'SELECT u.n, a.id, a.created_at,
			@columns content a.@
		 FROM unnest($1, $2, $3) WITH ORDINALITY u(part, tid, seq, n)
			JOIN %s a ON a.tableoid = u.part AND a.ctid = u.tid AND a.seq = u.seq WHERE u.part = %s',
		/* An administrator's own partition is found through the archive. */
		CASE c.relnamespace WHEN 'outbox_internal'::regnamespace THEN p.part::regclass::text
			ELSE 'outbox_internal.outbox_archive' END, p.part), ' UNION ALL ')
	INTO messages
	FROM (SELECT DISTINCT u.part FROM unnest(l.parts) u(part)) p
		JOIN pg_class c ON c.oid = p.part AND c.relkind = 'r';
	messages := coalesce(messages,
		'SELECT 0::bigint AS n, a.* FROM outbox_internal.outbox_archive a WHERE false');
	EXECUTE format(
		'SELECT min(s.n) FROM (
			SELECT r.n, sum(coalesce(pg_column_size(r.payload), 0)
					+ coalesce(pg_column_size(r.body), 0))
				OVER (ORDER BY r.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS size
			FROM (%s) r) s WHERE s.size >= $4', messages)
	INTO cut USING l.parts, l.tids, l.seqs, max_bytes;
	n := coalesce(cut - 1, n);

	put := format(
		'WITH put AS (
			INSERT INTO outbox_internal.outbox (id,
				@columns content -headers@, headers)
			SELECT CASE WHEN NOT $4 THEN r.id END,
				@columns content r. -headers@,
				jsonb_build_object(''x-outbox-replayed-timestamp'',
					floor(extract(epoch FROM r.created_at))::bigint)
				|| CASE WHEN $4 THEN jsonb_build_object(''x-outbox-replayed-from'', r.id)
						ELSE ''{}'' END
				|| CASE WHEN $4 THEN coalesce(r.headers, ''{}''::jsonb) - ''{x-outbox-seq,x-outbox-key-seq}''::text[]
						ELSE coalesce(r.headers, ''{}''::jsonb) END
				|| jsonb_build_object(''x-outbox-replay'', $5)
			FROM (%s) r
			WHERE EXISTS (SELECT FROM outbox_internal.outbox_route t WHERE t.name = r.route)
				AND ($4 OR NOT EXISTS (SELECT FROM outbox_internal.outbox o WHERE o.id = r.id))
			ORDER BY r.n
			RETURNING id, seq)
		SELECT coalesce(array_agg(put.id ORDER BY put.seq DESC), ''{}'') FROM put', messages);
	BEGIN
		EXECUTE put INTO ids
		USING l.parts[1:n], l.tids[1:n], l.seqs[1:n],
			(j.arguments->>'new_ids')::boolean, j.id;
	EXCEPTION WHEN OTHERS THEN
		IF outbox_internal.outbox_may_pass(SQLSTATE) THEN
			RAISE;
		END IF;
		/* One of them is refused: not many one by one, as that takes longer. */
		n := least(n, 50);
		ids := '{}';
		FOR i IN 1 .. n LOOP
			BEGIN
				EXECUTE put INTO one
				USING l.parts[i:i], l.tids[i:i], l.seqs[i:i],
					(j.arguments->>'new_ids')::boolean, j.id;
				ids := one || ids;
			EXCEPTION WHEN OTHERS THEN
				IF outbox_internal.outbox_may_pass(SQLSTATE) THEN
					RAISE;
				END IF;
				problem := format('the message of seq %s was skipped: %s', l.seqs[i], SQLERRM);
			END;
		END LOOP;
	END;

	IF cardinality(ids) < n THEN
		EXECUTE format(
			'SELECT count(*), min(r.route) FILTER (WHERE NOT EXISTS (
				SELECT FROM outbox_internal.outbox_route t WHERE t.name = r.route))
			 FROM (%s) r', messages)
		INTO there, missing USING l.parts[1:n], l.tids[1:n], l.seqs[1:n];
		SELECT min(u.part::regclass::text) INTO rewritten
		FROM unnest(l.parts[1:n], l.files[1:n]) u(part, file)
		WHERE there < n AND pg_relation_filenode(u.part) <> u.file;
		IF rewritten IS NOT NULL THEN
			RAISE EXCEPTION '% was rewritten (VACUUM FULL, CLUSTER, TRUNCATE) after job % was filed: call outbox_job_cancel(%), and outbox_replay() again',
				rewritten, j.id, j.id
				USING ERRCODE = 'object_not_in_prerequisite_state';
		END IF;
		problem := coalesce(problem, format('of %s messages, %s were skipped: %s', n, n - cardinality(ids),
			CASE WHEN missing IS NOT NULL THEN format('route "%s" does not exist', missing)
				WHEN there < n THEN 'they are not in the archive any more'
				ELSE 'their ids are in outbox' END));
	END IF;
	j.last_error := nullif(regexp_replace(j.last_error, told, ''), '');
	UPDATE outbox_internal.outbox_job o SET
		state = CASE WHEN j.position + n < j.total THEN 'running' ELSE 'done' END,
		started_at = coalesce(o.started_at, clock_timestamp()),
		ended_at = CASE WHEN j.position + n >= j.total THEN clock_timestamp() END,
		done = o.done + cardinality(ids),
		skipped = o.skipped + n - cardinality(ids),
		last_error = coalesce(problem, j.last_error),
		last_error_at = CASE WHEN problem IS NOT NULL THEN clock_timestamp()
			WHEN j.last_error IS NOT NULL THEN o.last_error_at END
	WHERE o.id = j.id
	RETURNING * INTO j;
	IF j.position >= listed THEN
		DELETE FROM outbox_internal.outbox_job_list o WHERE o.job = j.id AND o.first = l.first;
	END IF;
	/* In the name of who filed it. */
	IF j.state = 'done' THEN
		INSERT INTO outbox_internal.outbox_history (role, action, subject, messages, detail)
		VALUES (j.created_by, 'replay done', 'job ' || j.id, j.done,
			jsonb_build_object('total', j.total, 'skipped', j.skipped));
	END IF;
	outcome := 'put';
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_job_step(integer, bigint, uuid[], boolean) IS
'Internal, the relay calls it: does the next chunk of the next job, at most so many messages and bytes, and says what came of it: ''put'' with the ids that are in outbox now, the latest first; ''none'': there is no job; ''busy'': too many of the messages in earlier are not published yet, which with tell becomes the job''s last_error; ''locked'': somebody has locked the job.';

CREATE FUNCTION outbox_internal.outbox_job_error(job bigint, error text, final boolean)
RETURNS void
LANGUAGE sql
SET lock_timeout = '10ms'
SET enable_sort = on
BEGIN ATOMIC
	UPDATE @extschema@.outbox_job
	SET last_error = error, last_error_at = clock_timestamp(),
		state = CASE WHEN final THEN 'failed' ELSE state END,
		ended_at = CASE WHEN final THEN clock_timestamp() END
	/* Unless it has ended meanwhile. */
	WHERE id = job AND state IN ('waiting', 'running');
END;

COMMENT ON FUNCTION outbox_internal.outbox_job_error(bigint, text, boolean) IS
'Internal, the relay calls it: notes what stands in the way of a job that waits or runs; final: the job has failed.';

CREATE FUNCTION outbox_internal.outbox_drain(OUT since timestamptz, OUT published bigint)
RETURNS record
AS 'MODULE_PATHNAME', 'outbox_drain'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION outbox_internal.outbox_drain() IS
'Since when workers of this database have published without a pause, and how many messages; NULL and 0 when none does. See the view outbox_progress.';

CREATE VIEW @extschema@.outbox_progress WITH (security_barrier = true) AS
	SELECT p.kind, p.subject, p.state, p.started_at, p.total, p.estimated, p.done,
		round(100.0 * p.done / nullif(p.total, 0), 1)::double precision AS percent,
		round(p.rate::numeric, 1)::double precision AS rate,
		clock_timestamp() + (p.total - p.done) / nullif(p.rate, 0) * interval '1 second'
			AS estimated_end
	FROM (SELECT j.kind, 'job ' || j.id AS subject, j.state, j.started_at, j.total,
			false AS estimated, j.position AS done,
			j.position / nullif(extract(epoch FROM clock_timestamp() - j.started_at), 0)::double precision AS rate
		  FROM @extschema@.outbox_job j
		  WHERE j.state IN ('waiting', 'running')
		  UNION ALL
		  SELECT 'drain', 'backlog', 'running', d.since, d.published + s.backlog,
			s.estimated, d.published, s.rate
		  FROM @extschema@.outbox_status s, outbox_internal.outbox_drain() d
		  WHERE d.since IS NOT NULL AND s.time_to_drain >= interval '5 seconds') p;

COMMENT ON VIEW @extschema@.outbox_progress IS 'What the relay is working off, one row each: jobs that wait or run, and a backlog that takes another 5 s or more.';
