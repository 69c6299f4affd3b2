/* outbox_test--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION outbox_test" to load this file. \quit

/* The planner as a worker has it; see overrides.c. */
CREATE FUNCTION outbox_test_worker_session() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_catalog.set_config(name, setting, false)
	FROM (VALUES
		('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'),
		('enable_hashjoin', 'off'), ('enable_mergejoin', 'off'),
		('enable_indexscan', 'on'), ('enable_tidscan', 'on'),
		('enable_nestloop', 'on'), ('plan_cache_mode', 'auto'),
		('jit', 'off'), ('max_parallel_workers_per_gather', '0'),
		('lock_timeout', '500ms')) AS s(name, setting);
END
$$;

CREATE FUNCTION outbox_test_claim(
	after bigint DEFAULT 0, upto bigint DEFAULT 9223372036854775807,
	max_rows integer DEFAULT 1000, excluded_routes text[] DEFAULT NULL,
	excluded_keys bigint[] DEFAULT NULL, worker integer DEFAULT 0,
	nworkers integer DEFAULT 1, only_key bigint DEFAULT NULL,
	stop_after integer DEFAULT NULL, key_routes text[] DEFAULT NULL,
	OUT seq bigint, OUT id uuid, OUT tid tid, OUT key_hash bigint,
	OUT attempts integer, OUT created_at timestamptz,
	OUT available_at timestamptz, OUT route text, OUT event_type text,
	OUT aggregate_type text, OUT aggregate_id text, OUT routing_key text,
	OUT payload jsonb, OUT body bytea, OUT headers jsonb, OUT properties jsonb,
	OUT origin bigint)
RETURNS SETOF record AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE;

/* 'direct' with the index, or 'executor': how a claim without filters is run. */
CREATE FUNCTION outbox_test_claim_way() RETURNS text AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE;

/* after is the seq of the last one, after_due its available_at. */
CREATE FUNCTION outbox_test_claim_due(
	after bigint DEFAULT 0, upto bigint DEFAULT 9223372036854775807,
	max_rows integer DEFAULT 1000, excluded_routes text[] DEFAULT NULL,
	excluded_keys bigint[] DEFAULT NULL, worker integer DEFAULT 0,
	nworkers integer DEFAULT 1, only_key bigint DEFAULT NULL,
	stop_after integer DEFAULT NULL,
	after_due timestamptz DEFAULT '-infinity', key_routes text[] DEFAULT NULL,
	OUT seq bigint, OUT id uuid, OUT tid tid, OUT key_hash bigint,
	OUT attempts integer, OUT created_at timestamptz,
	OUT available_at timestamptz, OUT route text, OUT event_type text,
	OUT aggregate_type text, OUT aggregate_id text, OUT routing_key text,
	OUT payload jsonb, OUT body bytea, OUT headers jsonb, OUT properties jsonb,
	OUT origin bigint)
RETURNS SETOF record AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE;

CREATE FUNCTION outbox_test_fence_is_commit()
RETURNS boolean AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

CREATE FUNCTION outbox_test_list(
	after bigint DEFAULT 0, upto bigint DEFAULT 9223372036854775807,
	max_rows integer DEFAULT 1000, excluded_routes text[] DEFAULT NULL,
	excluded_keys bigint[] DEFAULT NULL, worker integer DEFAULT 0,
	nworkers integer DEFAULT 1, only_key bigint DEFAULT NULL,
	stop_after integer DEFAULT NULL, key_routes text[] DEFAULT NULL,
	OUT seq bigint, OUT id uuid, OUT keyed boolean,
	OUT key_hash bigint, OUT route text)
RETURNS SETOF record AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE;

CREATE FUNCTION outbox_test_list_retries(
	worker integer DEFAULT 0, nworkers integer DEFAULT 1,
	OUT seq bigint, OUT id uuid, OUT keyed boolean,
	OUT key_hash bigint, OUT route text)
RETURNS SETOF record AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

CREATE FUNCTION outbox_test_visit_failed(hashes bigint[], key_routes text[] DEFAULT NULL,
	OUT seq bigint, OUT id uuid, OUT keyed boolean,
	OUT key_hash bigint, OUT route text)
RETURNS SETOF record AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE;

CREATE FUNCTION outbox_test_check_holders(ids uuid[], hashes bigint[], key_routes text[] DEFAULT NULL) RETURNS boolean[]
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE;

CREATE FUNCTION outbox_test_next_due(after_due timestamptz DEFAULT '-infinity',
	after_seq bigint DEFAULT 9223372036854775807)
RETURNS timestamptz AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

CREATE FUNCTION outbox_test_reach(lo bigint, hi bigint, n integer)
RETURNS text AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

CREATE FUNCTION outbox_test_last_entry()
RETURNS bigint AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

CREATE FUNCTION outbox_test_settle(tids tid[], ids uuid[],
	archive text DEFAULT 'message')
RETURNS boolean[] AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

CREATE FUNCTION outbox_test_fail(ids uuid[], error bytea,
	retry_ms bigint DEFAULT 1000, final boolean DEFAULT false, target text DEFAULT '',
	reason text DEFAULT 'queue refuses')
RETURNS boolean[] AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

CREATE FUNCTION outbox_test_routes(
	OUT name text, OUT exchange text, OUT exchange_type text,
	OUT routing_key text, OUT max_attempts integer, OUT ordered boolean,
	OUT block_on_failed boolean, OUT paused boolean, OUT failed_route text,
	OUT retention_s integer, OUT outlet text, OUT numbering integer,
	OUT max_pending integer, OUT slot text, OUT archive text)
RETURNS SETOF record AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

/* version is another one when the row has changed. */
CREATE FUNCTION outbox_test_route_versions(OUT name text, OUT version bigint)
RETURNS SETOF record AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

/* Loads them into a context that stays; how many there are. */
CREATE FUNCTION outbox_test_keep_routes()
RETURNS integer AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

CREATE FUNCTION outbox_test_route_columns(
	OUT number integer, OUT name text, OUT type oid, OUT checked boolean)
RETURNS SETOF record AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

CREATE FUNCTION outbox_test_paused() RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

CREATE FUNCTION outbox_test_copy() RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

CREATE FUNCTION outbox_test_accepts(origin bigint) RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

CREATE FUNCTION outbox_test_prepared() RETURNS integer
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

CREATE FUNCTION outbox_test_maintain(retention_s integer) RETURNS text
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

/* Another worker process for the slot of worker 0 of this database, with its
 * generation plus an offset. True if it has left again by itself. */
CREATE FUNCTION outbox_test_second_worker(generation_offset integer)
RETURNS boolean AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

/* Gives the slot of worker 0 of this database to a new process, behind the
 * launcher's back, and returns the process's id. */
CREATE FUNCTION outbox_test_replace_worker() RETURNS integer
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

CREATE FUNCTION outbox_test_json(payload jsonb) RETURNS text
AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT;

CREATE FUNCTION outbox_test_json_size(payload jsonb, size_limit bigint DEFAULT 1000000000)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT;

/* Words and lines are explained in queue_steps.c. */
CREATE FUNCTION outbox_test_queue(steps text) RETURNS SETOF text
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;
