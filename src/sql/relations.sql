--
-- Tables by their OIDs
--

/*
 * For what cannot go through a view: locks, partitions, a sequence, statistics.
 * Bound now, so that the name is not looked up again.
 */
CREATE FUNCTION outbox_internal.outbox_relation(name text)
RETURNS oid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
	SELECT CASE name
		WHEN 'outbox' THEN '@extschema@.outbox'::regclass
		WHEN 'outbox_seq_seq' THEN '@extschema@.outbox_seq_seq'::regclass
		WHEN 'outbox_route' THEN '@extschema@.outbox_route'::regclass
		WHEN 'outbox_control' THEN '@extschema@.outbox_control'::regclass
		WHEN 'outbox_archive' THEN '@extschema@.outbox_archive'::regclass
		WHEN 'outbox_job' THEN '@extschema@.outbox_job'::regclass
@list relations@
		WHEN 'outbox_new' THEN '@extschema@.outbox_new'::regclass END::oid;
END;

COMMENT ON FUNCTION outbox_internal.outbox_relation(text) IS
'OID of a table or view of the extension, or of the sequence outbox_seq_seq; NULL for other names.';

