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

#include "compat.h"
#include "overrides.h"
#include "utils/guc.h"

static const struct
{
	const char *name;
	const char *value;
	int			since;			/* server version that has it */
}			overrides[] =

{
	/* as whom, and what names mean */
	{"role", "none", 0},
	{"search_path", "pg_catalog, pg_temp", 0},
	{"row_security", "off", 0},
	{"session_replication_role", "origin", 0},
	/* Minor releases have added it: unknown is as good as empty. */
	{"restrict_nonsystem_relation_kind", "", 0},
	/* transactions */
	{"synchronous_commit", "on", 0},	/* unless it is stronger, see below */
	{"commit_delay", "0", 0},
	{"default_transaction_isolation", "read committed", 0},
	{"default_transaction_read_only", "off", 0},
	{"default_transaction_deferrable", "off", 0},
	/* what ends a statement or the process */
	{"statement_timeout", "60s", 0},
	{"lock_timeout", "500ms", 0},
	{"idle_in_transaction_session_timeout", "0", 0},
	{"idle_session_timeout", "0", 0},
	{"transaction_timeout", "0", 170000},
	{"exit_on_error", "off", 0},
	{"temp_file_limit", "-1", 0},
	/* a damaged page is an error, and no page without messages */
	{"zero_damaged_pages", "off", 0},
	{"ignore_checksum_failure", "off", 0},
	/* what texts mean, and how values are written */
	{"standard_conforming_strings", "on", 0},
	{"transform_null_equals", "off", 0},
	{"array_nulls", "on", 0},
	{"quote_all_identifiers", "off", 0},
	{"bytea_output", "hex", 0},
	{"extra_float_digits", "1", 0},
	{"DateStyle", "ISO", 0},
	{"IntervalStyle", "postgres", 0},
	{"TimeZone", "UTC", 0},
	{"check_function_bodies", "on", 0},
	{"plpgsql.extra_errors", "none", 0},
	/* where what is created goes */
	{"default_tablespace", "", 0},
	{"default_table_access_method", "heap", 0},
	{"temp_tablespaces", "", 0},
	/* or autovacuum never hears of the rows that were settled */
	{"track_counts", "on", 0},

	/*
	 * The planner is left with plans that stay right when the table grows:
	 * index and TID scans, nested loops, and the order of an index. Functions
	 * in SQL that sort a little (archive, jobs) have enable_sort on.
	 */
	{"enable_seqscan", "off", 0},
	{"enable_bitmapscan", "off", 0},
	{"enable_hashjoin", "off", 0},
	{"enable_mergejoin", "off", 0},
	{"enable_indexscan", "on", 0},
	{"enable_indexonlyscan", "on", 0},
	{"enable_tidscan", "on", 0},
	{"enable_nestloop", "on", 0},
	{"enable_sort", "off", 0},
	{"enable_partition_pruning", "on", 0},
	{"constraint_exclusion", "partition", 0},
	{"plan_cache_mode", "auto", 0},
	{"jit", "off", 0},
	{"debug_parallel_query", "off", 160000},
	{"force_parallel_mode", "off", -160000},
	{"max_parallel_workers_per_gather", "0", 0},
	{"geqo", "off", 0},
	{"from_collapse_limit", "8", 0},
	{"join_collapse_limit", "8", 0},
	{"work_mem", "4MB", 0},
	/* An index that costs more than what is switched off would not be used. */
	{"seq_page_cost", "1", 0},
	{"random_page_cost", "4", 0},
	{"cpu_tuple_cost", "0.01", 0},
	{"cpu_index_tuple_cost", "0.005", 0},
	{"cpu_operator_cost", "0.0025", 0},
	{"effective_cache_size", "4GB", 0},
};

void
outbox_override_settings(const char *library_path)
{
	const char *commit = GetConfigOption("synchronous_commit", false, false);

	if (library_path != NULL)
		SetConfigOption("dynamic_library_path", library_path, PGC_SUSET,
						PGC_S_OVERRIDE);
	for (int i = 0; i < (int) lengthof(overrides); i++)
	{
		if (!compat_server_has(overrides[i].since) ||
			(strchr(overrides[i].name, '.') == NULL &&
			 GetConfigOption(overrides[i].name, true, false) == NULL))
			continue;
		/* remote_apply is what the administrator asked for beyond "on" */
		if (strcmp(overrides[i].name, "synchronous_commit") == 0 &&
			strcmp(commit, "remote_apply") == 0)
			continue;
		SetConfigOption(overrides[i].name, overrides[i].value, PGC_SUSET,
						PGC_S_OVERRIDE);
	}
}
