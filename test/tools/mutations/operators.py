"""Mutations of operators: what operators call and set: repairs, retention, privileges, upgrades."""

MUTATIONS = (
    ("update-unheard", "src/session/ddl.c",
     "outbox_wake_news(OUTBOX_NEWS_EXTENSION);", ";",
     "the relay goes on when ALTER EXTENSION UPDATE commits",
     ["upgrade"]),
    ("versions-turned-round", "src/common/version.c",
     "return x < y ? -1 : 1;", "return x < y ? 1 : -1;",
     "the hint says whether to update the extension or the library",
     ["unit/test_version"]),
    ("rights-lost", "outbox--0.9--1.0.sql",
     "		IF item.given THEN", "		IF false THEN",
     "rights that an administrator has given outlive an update",
     ["upgrade"]),
    ("rights-made-initial", "outbox--0.9--1.0.sql",
     "	UPDATE pg_init_privs SET initprivs = made", "	UPDATE pg_init_privs SET initprivs = initprivs",
     "and a dump of what was updated",
     ["upgrade"]),
    ("whose-it-was", "outbox--0.9--1.0.sql",
     "		EXECUTE command;", "		NULL;",
     "what is new is of the owner of the tables",
     ["upgrade"]),
    ("replay-numbered-anew", "src/session/row_trigger.c",
     "		MySlot == NULL && (headers == NULL || JB_ROOT_IS_OBJECT(headers));", "		(headers == NULL || JB_ROOT_IS_OBJECT(headers));",
     "a replayed message has the number that it had",
     ["replay"]),
    ("discard-looks-once", "outbox--1.0.sql",
     "	/* Claimed between that look and the lock; see outbox_is_claimed(). */\n	claimed := ARRAY(SELECT c.id_hash FROM @extschema@.outbox_taken() c);\n",
     "",
     "what outbox_discard_messages() has removed is never published",
     ["isolation/operators-lease"]),
    ("longest-is-the-global", "outbox--1.0.sql",
     "	longest constant interval := greatest(retention,\n		(SELECT max(r.retention) FROM @extschema@.outbox_route r));",
     "	longest constant interval := retention;",
     "a route's longer retention holds in the default partition, and makes partitions",
     ["regress/retention"]),
    ("discard-unlocked", "outbox--1.0.sql",
     "	PERFORM FROM @extschema@.outbox o WHERE o.id = outbox_discard.id\n"
     "	FOR UPDATE;",
     "	PERFORM FROM @extschema@.outbox o WHERE o.id = outbox_discard.id;",
     "what outbox_discard() has removed is never published",
     ["isolation/operators-lease"]),
    ("discard-unasked", "outbox--1.0.sql",
     "	IF @extschema@.outbox_is_claimed(outbox_discard.id) THEN",
     "	IF false THEN",
     "what outbox_discard() has removed is never published",
     ["isolation/operators-lease"]),
    ("discard-asks-first", "outbox--1.0.sql",
     "	PERFORM FROM @extschema@.outbox o WHERE o.id = outbox_discard.id\n"
     "	FOR UPDATE;\n"
     "	IF NOT FOUND THEN\n"
     "		RETURN false;\n"
     "	END IF;\n"
     "	IF @extschema@.outbox_is_claimed(outbox_discard.id) THEN",
     "	PERFORM FROM @extschema@.outbox o WHERE o.id = outbox_discard.id\n"
     "		AND NOT @extschema@.outbox_is_claimed(outbox_discard.id)\n"
     "	FOR UPDATE;\n"
     "	IF NOT FOUND THEN\n"
     "		RETURN false;\n"
     "	END IF;\n"
     "	IF false THEN",
     "what outbox_discard() has removed is never published",
     ["isolation/operators-lease"]),
    ("discard-locks-leased", "outbox--1.0.sql",
     "			AND uuid_hash_extended(o.id, 0) & 4611686018427387903 <> ALL (claimed)\n"
     "		ORDER BY o.seq\n"
     "		LIMIT max_messages",
     "		ORDER BY o.seq\n"
     "		LIMIT max_messages",
     "whoever acknowledges does not wait for outbox_discard_messages()",
     ["isolation/operators-lease"]),
    ("discard-many-unlocked", "outbox--1.0.sql",
     "		LIMIT max_messages\n"
     "		FOR UPDATE SKIP LOCKED);\n"
     "	/* Claimed between",
     "		LIMIT max_messages);\n"
     "	/* Claimed between",
     "outbox_discard_messages() leaves what somebody has locked",
     ["isolation/operators"]),
    ("erase-looks-once", "outbox--1.0.sql",
     "		FOR UPDATE);\n"
     "	claimed := ARRAY(SELECT c.id_hash FROM @extschema@.outbox_taken() c);\n",
     "		FOR UPDATE);\n",
     "what outbox_erase() has removed is never published",
     ["isolation/operators-lease"]),
    ("erase-locks-leased", "outbox--1.0.sql",
     "			AND uuid_hash_extended(o.id, 0) & 4611686018427387903 <> ALL (claimed)\n"
     "		ORDER BY o.seq\n"
     "		FOR UPDATE);",
     "		ORDER BY o.seq\n"
     "		FOR UPDATE);",
     "whoever acknowledges does not wait for outbox_erase()",
     ["isolation/operators-lease"]),
    ("erase-unlocked", "outbox--1.0.sql",
     "		ORDER BY o.seq\n"
     "		FOR UPDATE);",
     "		ORDER BY o.seq);",
     "what outbox_erase() has removed is never published",
     ["isolation/operators-lease"]),
    ("erase-beside-chunk", "outbox--1.0.sql",
     "	LOCK TABLE @extschema@.outbox_job IN EXCLUSIVE MODE;\n",
     "",
     "a replay puts nothing back that was erased",
     ["isolation/erase"]),
    ("edit-unlocked", "outbox--1.0.sql",
     "	SELECT * INTO before FROM @extschema@.outbox o WHERE o.id = outbox_edit.id\n"
     "	FOR UPDATE;",
     "	SELECT * INTO before FROM @extschema@.outbox o WHERE o.id = outbox_edit.id;",
     "the history has what an edit replaced",
     ["isolation/operators-lease"]),
    ("edit-unasked", "outbox--1.0.sql",
     "	IF @extschema@.outbox_is_claimed(outbox_edit.id) THEN",
     "	IF false THEN",
     "what is being published is not changed",
     ["isolation/operators-lease"]),
    ("requeue-unlocked", "outbox--1.0.sql",
     "	FROM @extschema@.outbox o WHERE o.id = outbox_requeue.id AND o.status = 'failed'\n"
     "	FOR UPDATE;",
     "	FROM @extschema@.outbox o WHERE o.id = outbox_requeue.id AND o.status = 'failed';",
     "a message is requeued once",
     ["isolation/operators"]),
    ("requeue-ids-unlocked", "outbox--1.0.sql",
     "		WHERE o.id = ANY (ids) AND o.status = 'failed'\n"
     "		FOR UPDATE SKIP LOCKED);",
     "		WHERE o.id = ANY (ids) AND o.status = 'failed');",
     "outbox_requeue_ids() leaves what somebody has locked",
     ["isolation/operators"]),
    ("requeue-failed-unlocked", "outbox--1.0.sql",
     "		LIMIT max_messages\n"
     "		FOR UPDATE SKIP LOCKED);\n"
     "	UPDATE",
     "		LIMIT max_messages);\n"
     "	UPDATE",
     "outbox_requeue_failed() leaves what somebody has locked",
     ["isolation/operators"]),
    ("chunk-looks-once", "outbox--1.0.sql",
     "	WHERE o.id = j.id AND o.state IN ('waiting', 'running')\n"
     "	FOR UPDATE SKIP LOCKED;",
     "	WHERE o.id = j.id\n"
     "	FOR UPDATE SKIP LOCKED;",
     "a job that was cancelled puts nothing",
     ["isolation/jobs"]),
    ("chunk-unlocked", "outbox--1.0.sql",
     "	WHERE o.id = j.id AND o.state IN ('waiting', 'running')\n"
     "	FOR UPDATE SKIP LOCKED;",
     "	WHERE o.id = j.id AND o.state IN ('waiting', 'running');",
     "a job puts no message twice",
     ["isolation/jobs"]),
    ("cancel-unlocked", "outbox--1.0.sql",
     "	WHERE o.id = outbox_job_cancel.id FOR UPDATE;",
     "	WHERE o.id = outbox_job_cancel.id;",
     "a job that is done is not cancelled",
     ["isolation/jobs"]),
    ("retry-anything", "outbox--1.0.sql",
     "	WHERE o.id = outbox_job_retry.id AND o.state = 'failed';",
     "	WHERE o.id = outbox_job_retry.id;",
     "a job that was cancelled is not retried",
     ["isolation/jobs"]),
    ("ended-fails", "outbox--1.0.sql",
     "	WHERE id = job AND state IN ('waiting', 'running')",
     "	WHERE id = job",
     "a job that has ended does not fail",
     ["isolation/jobs"]),
    ("chunk-live-unseen", "outbox--1.0.sql",
     "				AND ($4 OR NOT EXISTS (SELECT FROM @extschema@.outbox o WHERE o.id = r.id))\n",
     "",
     "a replay leaves out what is live",
     ["isolation/jobs"]),
    ("workers-unasked", "outbox--1.0.sql",
     "	SELECT c.id_hash FROM @extschema@.outbox_claims() c\n"
     "	UNION ALL\n"
     "	SELECT uuid_hash_extended(i.id, 0)",
     "	SELECT uuid_hash_extended(i.id, 0)",
     "what a worker is publishing is neither discarded nor changed",
     ["in_flight"]),
)
