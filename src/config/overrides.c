/*-------------------------------------------------------------------------
 *
 * overrides.c
 *		Settings that processes of ours have whatever somebody has set.
 *
 * ALTER DATABASE and ALTER ROLE reach background workers, too, and for most settings
 * the owner of a database is enough.  What could be turned against the
 * launcher and the workers is overridden as autovacuum does it.  Settings of the
 * server's log are not: they are the administrator's.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settings.h"
#include "utils/guc.h"

/* One that this server does not have is passed over. */
static const struct
{
	const char *name;
	const char *value;
}			overrides[] =

{
	/* as whom, and what names mean */
	{"role", "none"},
	{"search_path", "pg_catalog, pg_temp"},
	{"row_security", "off"},
	{"session_replication_role", "origin"},
	{"restrict_nonsystem_relation_kind", ""},
	/* transactions */
	{"commit_delay", "0"},
	{"default_transaction_isolation", "read committed"},
	{"default_transaction_read_only", "off"},
	{"default_transaction_deferrable", "off"},
	/* what ends a statement or the process */
	{"statement_timeout", "60s"},
	{"lock_timeout", "500ms"},
	{"idle_in_transaction_session_timeout", "0"},
	{"idle_session_timeout", "0"},
	{"transaction_timeout", "0"},
	{"exit_on_error", "off"},
	{"temp_file_limit", "-1"},
	/* a damaged page is an error, and no page without messages */
	{"zero_damaged_pages", "off"},
	{"ignore_checksum_failure", "off"},
	/* what texts mean, and how values are written */
	{"standard_conforming_strings", "on"},
	{"transform_null_equals", "off"},
	{"array_nulls", "on"},
	{"quote_all_identifiers", "off"},
	{"bytea_output", "hex"},
	{"extra_float_digits", "1"},
	{"DateStyle", "ISO"},
	{"IntervalStyle", "postgres"},
	{"TimeZone", "UTC"},
	{"check_function_bodies", "on"},
	{"plpgsql.extra_errors", "none"},
	/* where what is created goes */
	{"default_tablespace", ""},
	{"default_table_access_method", "heap"},
	{"temp_tablespaces", ""},
	/* or what was looked at once stays as it was, in memory */
	{"stats_fetch_consistency", "none"},
	/* or autovacuum never hears of the rows that were settled */
	{"track_counts", "on"},

	/*
	 * The planner is left with plans that stay right when the table grows:
	 * index and TID scans, nested loops, and the order of an index. Functions
	 * in SQL that sort a little (archive, jobs) have enable_sort on.
	 */
	{"enable_seqscan", "off"},
	{"enable_bitmapscan", "off"},
	{"enable_hashjoin", "off"},
	{"enable_mergejoin", "off"},
	{"enable_indexscan", "on"},
	{"enable_indexonlyscan", "on"},
	{"enable_tidscan", "on"},
	{"enable_nestloop", "on"},
	{"enable_sort", "off"},
	{"enable_partition_pruning", "on"},
	{"constraint_exclusion", "partition"},
	{"plan_cache_mode", "auto"},
	{"jit", "off"},
	{"debug_parallel_query", "off"},
	{"force_parallel_mode", "off"}, /* the same until 15 */
	{"max_parallel_workers_per_gather", "0"},
	{"geqo", "off"},
	{"from_collapse_limit", "8"},
	{"join_collapse_limit", "8"},
	{"work_mem", "4MB"},
	/* An index that costs more than what is switched off would not be used. */
	{"seq_page_cost", "1"},
	{"random_page_cost", "4"},
	{"cpu_tuple_cost", "0.01"},
	{"cpu_index_tuple_cost", "0.005"},
	{"cpu_operator_cost", "0.0025"},
	{"effective_cache_size", "4GB"},
};

void
outbox_override_commit(void)
{
	/* remote_apply is what the administrator asked for beyond "on" */
	bool		apply =
		strcmp(GetConfigOptionResetString("synchronous_commit"), "remote_apply") == 0;

	/* Not an override, which would replace the value that a reload changes. */
	SetConfigOption("synchronous_commit", apply ? "remote_apply" : "off", PGC_SUSET,
					PGC_S_SESSION);
}

void
outbox_override_settings(const char *library_path)
{
	outbox_override_commit();
	if (library_path != NULL)
		SetConfigOption("dynamic_library_path", library_path, PGC_SUSET,
						PGC_S_OVERRIDE);
	for (int i = 0; i < (int) lengthof(overrides); i++)
	{
		if (strchr(overrides[i].name, '.') == NULL &&
			GetConfigOption(overrides[i].name, true, false) == NULL)
			continue;
		SetConfigOption(overrides[i].name, overrides[i].value, PGC_SUSET,
						PGC_S_OVERRIDE);
	}
}
