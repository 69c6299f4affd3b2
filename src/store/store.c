/*-------------------------------------------------------------------------
 *
 * store.c
 *		Transactions of the worker, the extension.
 *
 * Called by the relay only.  A process that dies inside a transaction leaves
 * nothing behind: claims are in its memory, and what it changed rolls back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "own_version.h"
#include "pgstat.h"
#include "replication/syncrep.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "store.h"
#include "store_internal.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "watchdog.h"

static struct
{
	bool		attached;
	bool		stale;			/* invalidated since */
	Oid			relid;			/* table outbox */
	Oid			route_relid;
	Oid			control_relid;
	Oid			owner;
	Oid			archive_relid;
	OutboxStatement *prepared;
} store;

static bool in_transaction = false;
static Oid	save_userid;
static int	save_context;
static int	save_nestlevel;		/* of settings; 0: not acting as the owner */
static MemoryContext save_memory;
static volatile sig_atomic_t cancellable = false;

static void
relation_changed(Datum arg, Oid relid)
{
	(void) arg;
	if (relid == InvalidOid || relid == store.relid ||
		relid == store.route_relid || relid == store.control_relid)
		store.stale = true;
}

Oid
outbox_store_relid(void)
{
	return store.relid;
}

bool
outbox_store_stale(void)
{
	return store.stale;
}

static void
forget_plans(void)
{
	while (store.prepared != NULL)
	{
		SPI_freeplan(store.prepared->plan);
		store.prepared->plan = NULL;
		store.prepared = store.prepared->next;
	}
}

/*
 * In a session, which does not look at each change of the tables: a rule has rewritten
 * the statement.  A plan of nothing depends on no table, and would never be
 * invalidated.  Its memory stays until the session ends: it may run further out.
 */
static void
forget_plan(SPIPlanPtr plan)
{
	for (OutboxStatement **link = &store.prepared; *link != NULL;
		 link = &(*link)->next)
		if ((*link)->plan == plan)
		{
			(*link)->plan = NULL;
			*link = (*link)->next;
			return;
		}
}

/*
 * Statements are planned once for any parameters: planning each time would
 * cost more than most of them take.  The worker's session allows only index
 * and TID scans, nested loops, and no sorting that an index can spare (see
 * overrides.c), so that a plan made while the table was empty is still right when
 * it is not.
 */
SPIPlanPtr
outbox_store_plan(OutboxStatement *statement, const char *sql, int nargs,
				  const Oid *types)
{
	if (statement->plan != NULL)
		return statement->plan;
	statement->plan = SPI_prepare_cursor(sql, nargs, unconstify(Oid *, types),
										 CURSOR_OPT_GENERIC_PLAN);
	if (statement->plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s",
			 SPI_result_code_string(SPI_result));
	if (SPI_keepplan(statement->plan) != 0)
		elog(ERROR, "SPI_keepplan failed");
	statement->next = store.prepared;
	store.prepared = statement;
	return statement->plan;
}

void
outbox_store_execute(SPIPlanPtr plan, Datum *values, const char *nulls,
					 int expected)
{
	int			result = SPI_execute_plan(plan, values, nulls, false, 0);

	if (result == expected)
		return;
	if (!in_transaction)
		forget_plan(plan);
	if (result == SPI_OK_REWRITTEN)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a rule replaces a statement of outbox"),
				 errhint("Drop the rules on the tables of the extension.")));
	elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(result));
}

/* ------------------------------------------------------------ transactions */

static void
begin_raw(const char *activity, bool guarded)
{
	Assert(!in_transaction);
	if (guarded)
		outbox_watchdog_guard_sql();
	in_transaction = true;
	/* else now() would stay at the start of the process */
	SetCurrentStatementStartTimestamp();
	save_memory = CurrentMemoryContext;
	StartTransactionCommand();
	GetUserIdAndSecContext(&save_userid, &save_context);
	save_nestlevel = 0;
	cancellable = true;
	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	pgstat_report_activity(STATE_RUNNING, activity);
}

static void
refuse_other_owners(void)
{
	char	   *different = outbox_owners_differ();

	if (different != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg_internal("%s", different),
				 errdetail_internal("%s", OUTBOX_OWNERS_DETAIL),
				 errhint(OUTBOX_OWNERS_HINT)));
}

bool
outbox_store_begin(const char *activity, bool guarded)
{
	if (!store.attached)
		return false;
	begin_raw(activity, guarded);

	/*
	 * The lock keeps DROP EXTENSION out until we commit, or waits for its
	 * end; with it comes the invalidation of what others have changed.
	 */
	LockRelationOid(store.relid, AccessShareLock);
	if (store.stale)
	{
		outbox_store_end(false);
		return false;
	}
	refuse_other_owners();
	/* Not superuser: triggers and expressions on the table run as its owner. */
	SetUserIdAndSecContext(store.owner,
						   save_context | SECURITY_RESTRICTED_OPERATION |
						   SECURITY_NOFORCE_RLS);
	/* What they SET is over with the transaction: see outbox_store_end(). */
	save_nestlevel = NewGUCNestLevel();
	return true;
}

void
outbox_store_sigint(SIGNAL_ARGS)
{
	int			save_errno = errno;

	if (cancellable)
	{
		QueryCancelPending = true;
		InterruptPending = true;
	}
	SetLatch(MyLatch);
	errno = save_errno;
}

/*
 * The commit's wait for a synchronous standby was ended so that other processes
 * need not wait for us.  Lets them go on, and waits again.
 */
static void
wait_for_standby(void)
{
	do
	{
		CHECK_FOR_INTERRUPTS();
		outbox_watchdog_guard_commit();
		HOLD_INTERRUPTS();		/* as in a commit */
		SyncRepWaitForLSN(XactLastCommitEnd, true);
		RESUME_INTERRUPTS();
	} while (outbox_watchdog_release());
}

void
outbox_store_end(bool durable)
{
	bool		gave_way;

	cancellable = false;
	CHECK_FOR_INTERRUPTS();
	PopActiveSnapshot();
	SPI_finish();

	/*
	 * The session is the superuser's again, and with a search_path of theirs
	 * its look at the catalogs would call their operators.
	 */
	if (save_nestlevel > 0)
		AtEOXact_GUC(false, save_nestlevel);
	save_nestlevel = 0;
	SetUserIdAndSecContext(save_userid, save_context);
	if (!durable)
		(void) set_config_option("synchronous_commit", "off", PGC_USERSET,
								 PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0,
								 false);
	else
		/* The wait for a standby may be a long one. */
		outbox_watchdog_guard_commit();
	CommitTransactionCommand();
	/* Older servers leave us in TopMemoryContext. */
	MemoryContextSwitchTo(save_memory);
	in_transaction = false;
	gave_way = outbox_watchdog_release();
	if (gave_way)
		wait_for_standby();
	pgstat_report_stat(false);

	/*
	 * The watchdog may have ended the wait for a synchronous standby, after
	 * which the commit returns as if all was well.  What the standby does not
	 * have must not be published: leave here.  So has the death of the
	 * postmaster, which sets ProcDiePending and not InterruptPending.
	 */
	if (ProcDiePending)
		InterruptPending = true;
	CHECK_FOR_INTERRUPTS();
}

void
outbox_store_abort(void)
{
	cancellable = false;
	QueryCancelPending = false;
	AbortCurrentTransaction();
	outbox_store_message_abort();

	/*
	 * ProcessInterrupts() unsets it before it throws, and what else was
	 * pending would be left to the next signal: everybody's DROP DATABASE
	 * waited for a worker whose lock timeout came together with a barrier
	 * (ddl.pl, B16).
	 */
	InterruptPending = true;
	if (in_transaction)
		MemoryContextSwitchTo(save_memory);
	in_transaction = false;
	(void) outbox_watchdog_release();
	pgstat_report_stat(true);
}

/* --------------------------------------------------------------- extension */

#define ATTACH_VERSION	1
#define ATTACH_RELID	2
#define ATTACH_OWNER	3
#define ATTACH_ROUTE	4
#define ATTACH_CONTROL	5
#define ATTACH_ARCHIVE	6
#define ATTACH_SQL \
	"SELECT e.extversion, c.oid, c.relowner, r.oid, t.oid, a.oid" \
	" FROM pg_catalog.pg_extension e" \
	" JOIN pg_catalog.pg_class c" \
	"  ON c.relnamespace = e.extnamespace AND c.relname = 'outbox'" \
	" JOIN pg_catalog.pg_class r" \
	"  ON r.relnamespace = e.extnamespace AND r.relname = 'outbox_route'" \
	" JOIN pg_catalog.pg_class t" \
	"  ON t.relnamespace = e.extnamespace AND t.relname = 'outbox_control'" \
	" JOIN pg_catalog.pg_class a" \
	"  ON a.relnamespace = e.extnamespace AND a.relname = 'outbox_archive'" \
	" WHERE e.extname = 'outbox'"

static Oid
get_oid_column(int column)
{
	bool		isnull;

	return DatumGetObjectId(SPI_getbinval(SPI_tuptable->vals[0],
										  SPI_tuptable->tupdesc, column,
										  &isnull));
}

/* Caller is in a transaction. */
static OutboxExtensionState
look_up_extension(char *version, size_t size)
{
	if (SPI_execute(ATTACH_SQL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not look up the extension");
	if (SPI_processed != 1)
		return OUTBOX_EXTENSION_ABSENT;

	strlcpy(version, SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
								  ATTACH_VERSION), size);
	/* Nothing invalidates one that a rule, gone since, had made empty. */
	forget_plans();
	store.relid = get_oid_column(ATTACH_RELID);
	store.owner = get_oid_column(ATTACH_OWNER);
	store.route_relid = get_oid_column(ATTACH_ROUTE);
	store.control_relid = get_oid_column(ATTACH_CONTROL);
	store.archive_relid = get_oid_column(ATTACH_ARCHIVE);
	return strcmp(version, outbox_library_version()) == 0 ?
		OUTBOX_EXTENSION_READY : OUTBOX_EXTENSION_VERSION;
}

OutboxExtensionState
outbox_store_attach(char *version, size_t size)
{
	static bool registered = false;
	OutboxExtensionState state;

	if (!registered)
	{
		CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
		registered = true;
	}
	store.attached = false;
	begin_raw("looking for the extension", false);
	/* Cleared first: what comes in from here on counts as new. */
	store.stale = false;
	state = look_up_extension(version, size);
	outbox_store_end(false);
	store.attached = state == OUTBOX_EXTENSION_READY;
	return state;
}

/* ---------------------------------------------------------------- the rest */

#define PREPARED_SQL \
	"SELECT transaction FROM pg_catalog.pg_prepared_xacts" \
	" WHERE database = pg_catalog.current_database()"

TransactionId *
outbox_store_prepared(int *n)
{
	static OutboxStatement statement;
	TransactionId *xids;

	outbox_store_execute(outbox_store_plan(&statement, PREPARED_SQL, 0, NULL),
						 NULL, NULL, SPI_OK_SELECT);
	*n = (int) SPI_processed;
	xids = palloc(sizeof(TransactionId) * Max(*n, 1));
	for (int row = 0; row < *n; row++)
	{
		bool		isnull;

		xids[row] = DatumGetTransactionId(SPI_getbinval(SPI_tuptable->vals[row],
														SPI_tuptable->tupdesc,
														1, &isnull));
	}
	return xids;
}

#define MAINTAIN_SQL \
	"SELECT outbox_internal.outbox_archive_maintain($1 * interval '1 second')"

char *
outbox_store_maintain_archive(int retention_s, MemoryContext cxt)
{
	static OutboxStatement statement;
	Oid			types[] = {INT4OID};
	Datum		values[] = {Int32GetDatum(retention_s)};
	char	   *done;

	outbox_store_execute(outbox_store_plan(&statement,
										   MAINTAIN_SQL,
										   1, types),
						 values, NULL, SPI_OK_SELECT);
	done = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	return done == NULL ? NULL : MemoryContextStrdup(cxt, done);
}

#define HISTORY_SQL \
	"SELECT outbox_internal.outbox_history_maintain($1 * interval '1 second')"

#define ONCE_SQL \
	"SELECT outbox_internal.outbox_once_maintain($1 * interval '1 second')"

static bool
forget_old(OutboxStatement *statement, const char *sql, int age_s)
{
	Oid			types[] = {INT4OID};
	Datum		values[] = {Int32GetDatum(age_s)};
	bool		isnull;

	outbox_store_execute(outbox_store_plan(statement,
										   sql, 1, types),
						 values, NULL, SPI_OK_SELECT);
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
									   SPI_tuptable->tupdesc, 1, &isnull)) > 0;
}

bool
outbox_store_maintain_history(int retention_s)
{
	static OutboxStatement statement;

	return forget_old(&statement, HISTORY_SQL, retention_s);
}

bool
outbox_store_maintain_once(int window_s)
{
	static OutboxStatement statement;

	return forget_old(&statement, ONCE_SQL, window_s);
}

/* Not pg_partition_tree(), which waits for whoever has one of them to itself. */
#define LOCKERS_SQL \
	"WITH RECURSIVE t(relid) AS (SELECT $1 UNION ALL" \
	" SELECT i.inhrelid FROM t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.relid)" \
	" SELECT pg_catalog.string_agg(DISTINCT l.pid::text, ', ')" \
	" FROM t JOIN pg_catalog.pg_locks l ON l.locktype = 'relation'" \
	" AND l.relation = t.relid" \
	" AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d" \
	" WHERE d.datname = pg_catalog.current_database())" \
	" WHERE l.granted AND l.pid <> pg_catalog.pg_backend_pid()"

char *
outbox_store_archive_lockers(MemoryContext cxt)
{
	static OutboxStatement statement;
	Oid			types[] = {OIDOID};
	Datum		values[] = {ObjectIdGetDatum(store.archive_relid)};
	char	   *pids;

	outbox_store_execute(outbox_store_plan(&statement, LOCKERS_SQL, 1, types),
						 values, NULL, SPI_OK_SELECT);
	pids = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	return pids == NULL ? NULL : MemoryContextStrdup(cxt, pids);
}

#define SETTINGS_SQL \
	"SELECT coalesce((SELECT setconfig::text" \
	" FROM pg_catalog.pg_db_role_setting s" \
	" JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase" \
	" WHERE d.datname = pg_catalog.current_database() AND s.setrole = 0), '')"

char *
outbox_store_database_settings(MemoryContext cxt)
{
	static OutboxStatement statement;

	outbox_store_execute(outbox_store_plan(&statement, SETTINGS_SQL, 0, NULL),
						 NULL, NULL, SPI_OK_SELECT);
	return MemoryContextStrdup(cxt,
							   SPI_getvalue(SPI_tuptable->vals[0],
											SPI_tuptable->tupdesc, 1));
}
