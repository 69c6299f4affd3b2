--
-- Nothing for everybody: the administrator grants what each role needs.
--

SELECT outbox_internal.outbox_revoke_all(d.classid::regclass, d.objid)
FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'outbox';

/*
 * Defaults of columns of outbox, the expression of an index, conditions of triggers,
 * the CHECK of outbox_route, and what is behind outboxevent and
 * outbox_messages: whoever may use these must be able to evaluate them.
 */
GRANT EXECUTE ON FUNCTION
	outbox_internal.outbox_origin(),
	outbox_internal.outbox_key_hash(text, text, text),
	outbox_internal.outbox_printable(text),
	outbox_internal.outbox_claim_hash(uuid),
	outbox_internal.outbox_restoring(),
	outbox_internal.outbox_route_allowed(text, text, text, text, integer, text, text, boolean, text, interval, text, text, text, integer, text, jsonb, name),
@list public@
	@extschema@.outbox_uuid7()
TO PUBLIC;

/*
 * Those who may monitor the server may see what the relay does.  Functions in a
 * view are checked against the caller, so the view alone would not do.
 */
GRANT SELECT ON @extschema@.outbox_status, @extschema@.outbox_routes_status, @extschema@.outbox_problems, @extschema@.outbox_metrics, @extschema@.outbox_workers, @extschema@.outbox_archive_status, @extschema@.outbox_versions, @extschema@.outbox_progress TO pg_monitor;
GRANT EXECUTE ON FUNCTION
	outbox_internal.outbox_relay_state(),
	outbox_internal.outbox_worker_stats(),
	outbox_internal.outbox_archive_state(),
	outbox_internal.outbox_problem_list(outbox_internal.outbox_route_count[]),
	outbox_internal.outbox_metric_list(),
	outbox_internal.outbox_backlog(),
	outbox_internal.outbox_route_stats(),
	@extschema@.outbox_database_stats(),
	@extschema@.outbox_quantile(double precision, double precision[], double precision[]),
	@extschema@.outbox_reason_hint(text),
	outbox_internal.outbox_reason_hint(text, boolean, text, text),
	@extschema@.outbox_locked_rows(),
	@extschema@.outbox_table_lockers(),
	@extschema@.outbox_version(),
	outbox_internal.outbox_library_versions(),
	outbox_internal.outbox_drain()
TO pg_monitor;
