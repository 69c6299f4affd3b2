CREATE FUNCTION outbox_internal.outbox_locked_claims(
	OUT worker integer, OUT id uuid, OUT seq bigint, OUT since timestamptz,
	OUT in_flight integer, OUT unsettled integer, OUT waits boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'outbox_locked_claims'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION outbox_internal.outbox_locked_claims() IS
'Rows that each worker of this database has found locked, now or a while ago: up to 8 that it would have taken, and of those in flight that it would have settled one for each transaction that has them, up to 8. in_flight: how many that one stands for, 0 where it is not sent; unsettled: how many of them the worker has; waits: so many that it publishes nothing. See outbox_locked_rows().';

CREATE FUNCTION outbox_internal.outbox_row_lockers(relation regclass, place tid)
RETURNS xid[]
AS 'MODULE_PATHNAME', 'outbox_row_lockers'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION outbox_internal.outbox_row_lockers(regclass, tid) IS
'Transactions that run, or are prepared, and have that row locked or changed; NULL if there is none. For outbox_locked_rows().';

CREATE FUNCTION @extschema@.outbox_locked_rows(
	OUT worker integer, OUT seq bigint, OUT id uuid, OUT route text,
	OUT aggregate_type text, OUT aggregate_id text, OUT since timestamptz,
	OUT pids integer[], OUT prepared text[])
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
AS $$
BEGIN
	PERFORM outbox_internal.outbox_act_as_owner();
	RETURN QUERY
	SELECT c.worker, o.seq, o.id, o.route, o.aggregate_type, o.aggregate_id, c.since,
		ARRAY(SELECT l.pid FROM pg_locks l
			WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock'
				AND l.granted AND l.pid IS NOT NULL
				AND l.transactionid = ANY (k.xids)
			ORDER BY l.pid),
		ARRAY(SELECT p.gid FROM pg_prepared_xacts p
			WHERE p.transaction = ANY (k.xids) ORDER BY p.gid)
	FROM outbox_internal.outbox_locked_claims() c
		JOIN outbox_internal.outbox o ON o.id = c.id,
		LATERAL (SELECT outbox_internal.outbox_row_lockers(o.tableoid::regclass, o.ctid) AS xids) k
	WHERE k.xids IS NOT NULL
	ORDER BY c.since, o.seq;
END
$$;

CREATE VIEW outbox_internal.outbox_locked_rows AS
	SELECT l.* FROM @extschema@.outbox_locked_rows() l;

COMMENT ON FUNCTION @extschema@.outbox_locked_rows() IS
'Messages that the relay would take or settle and that somebody has locked or changed, in a transaction that has not ended: since when the worker waits for the row, the processes of those transactions, and the names of the prepared ones among them. Up to 8 rows of each worker that are not sent, and of those in flight one for each such transaction, up to 8; later messages of their keys wait behind them.';

CREATE FUNCTION @extschema@.outbox_table_lockers(
	OUT relation regclass, OUT mode text, OUT granted boolean, OUT pid integer,
	OUT since timestamptz, OUT query_start timestamptz,
	OUT application_name text, OUT blocked_by integer[], OUT prepared text)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET outbox.as_owner = on
BEGIN ATOMIC
	SELECT outbox_internal.outbox_act_as_owner();
	SELECT l.relation::regclass, l.mode, l.granted, l.pid,
		CASE WHEN l.granted THEN coalesce(a.xact_start, p.prepared) ELSE l.waitstart END,
		a.query_start, a.application_name,
		CASE WHEN NOT l.granted THEN pg_blocking_pids(l.pid) END, p.gid
	FROM (SELECT DISTINCT ON (t.relation, k.virtualtransaction) t.relation, k.mode, k.granted, k.pid, k.waitstart, k.virtualtransaction
			FROM outbox_internal.outbox_tables t,
				LATERAL (SELECT t.relation UNION ALL
					SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = t.relation UNION ALL
					SELECT '@extschema@.outbox_seq_seq'::regclass WHERE t.name = 'outbox') r (oid)
				JOIN pg_locks k ON k.relation = r.oid
			WHERE k.locktype = 'relation'
				AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
				AND (k.mode = 'AccessExclusiveLock' OR t.name NOT IN ('outbox_route', 'outbox_control', 'outbox_job', 'outbox_history')
					AND k.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock'))
				/* Of the archive's days, today's is written to. */
				AND coalesce(substring(t.name FROM '^outbox_archive_(?:p|dropping_)([0-9]+)')
					= to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD'), true)
			ORDER BY t.relation, k.virtualtransaction, k.granted, k.mode) l
		LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		LEFT JOIN (pg_locks x JOIN pg_prepared_xacts p ON p.transaction = x.transactionid)
			ON l.pid IS NULL AND x.locktype = 'transactionid'
			AND x.virtualtransaction = l.virtualtransaction AND x.mode = 'ExclusiveLock'
	/* Not by backend_type, which not every owner may see. */
	WHERE NOT EXISTS (SELECT FROM outbox_internal.outbox_worker_stats() w WHERE w.pid = l.pid)
	ORDER BY 5 NULLS LAST, 1;
END;

CREATE VIEW outbox_internal.outbox_table_lockers AS
	SELECT l.* FROM @extschema@.outbox_table_lockers() l;

COMMENT ON FUNCTION @extschema@.outbox_table_lockers() IS
'Locks on tables of outbox, their indexes and the sequence that enqueue or the relay cannot work beside, and those that are waited for in the same mode, as both queue behind them. One row for a table and a transaction. since: when the transaction began or was prepared, or the wait; pid: NULL of a prepared transaction, whose name is in prepared; blocked_by: the processes that it waits for, if it waits.';

