/*-------------------------------------------------------------------------
 *
 * store.c
 *		Transactions of the worker, the extension.
 *
 * The transactions are the relay's.  Functions for external relays run statements of the
 * store in those of their callers.  A process that dies inside a transaction leaves
 * nothing behind: claims are in its memory, and what it changed rolls back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog.h"
#include "miscadmin.h"
#include "own_relations.h"
#include "own_version.h"
#include "pgstat.h"
#include "replication/syncrep.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "store.h"
#include "store_internal.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "watchdog.h"

static struct
{
	bool		attached;
	bool		stale;			/* invalidated since */
	Oid			relids[OUTBOX_RELAY_RELATIONS]; /* OutboxRelation */
	Oid			owner;			/* of the table outbox */
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
	for (int i = 0; i < OUTBOX_RELAY_RELATIONS; i++)
		if (relid == InvalidOid || relid == store.relids[i])
			store.stale = true;
}

Oid
outbox_store_relid(void)
{
	return store.relids[OUTBOX_REL_OUTBOX];
}

Oid
outbox_store_control_relid(void)
{
	return store.relids[OUTBOX_REL_CONTROL];
}

bool
outbox_store_stale(void)
{
	return store.stale;
}

/* ------------------------------------------------------------ transactions */

bool
outbox_store_in_transaction(void)
{
	return in_transaction;
}

void
outbox_store_begin_catalogs(const char *activity, bool guarded)
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
refuse_unsafe_objects(void)
{
	const char *detail;
	const char *hint;
	char	   *unsafe = outbox_unsafe_object(&detail, &hint);

	if (unsafe != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg_internal("%s", unsafe),
				 errdetail_internal("%s", detail),
				 errhint("%s", hint)));
}

bool
outbox_store_begin(const char *activity, bool guarded)
{
	if (!store.attached)
		return false;
	outbox_store_begin_catalogs(activity, guarded);

	/*
	 * The lock keeps DROP EXTENSION out until we commit, or waits for its
	 * end; with it comes the invalidation of what others have changed.
	 */
	LockRelationOid(outbox_store_relid(), AccessShareLock);
	if (store.stale)
	{
		outbox_store_end(false);
		return false;
	}
	refuse_unsafe_objects();
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
	bool		off = synchronous_commit == SYNCHRONOUS_COMMIT_OFF;

	/* The commit took its own value along, and with "off" there is no wait. */
	if (off)
		SetConfigOption("synchronous_commit", "on", PGC_SUSET, PGC_S_SESSION);
	do
	{
		CHECK_FOR_INTERRUPTS();
		outbox_watchdog_guard_commit();
		HOLD_INTERRUPTS();		/* as in a commit */
		SyncRepWaitForLSN(XactLastCommitEnd, true);
		RESUME_INTERRUPTS();
	} while (outbox_watchdog_release());
	if (off)
		SetConfigOption("synchronous_commit", "off", PGC_SUSET, PGC_S_SESSION);
}

/* For this transaction; the session's value is for most of them (overrides.c). */
static void
set_commit(bool durable)
{
	if (durable != (synchronous_commit == SYNCHRONOUS_COMMIT_OFF))
		return;
	(void) set_config_option("synchronous_commit", durable ? "on" : "off", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
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
	set_commit(durable);
	/* The wait for a standby may be a long one. */
	if (durable)
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

#define VERSION_SQL \
	"SELECT e.extversion FROM pg_catalog.pg_extension e WHERE e.extname = 'outbox'"

/* Caller is in a transaction. */
static OutboxExtensionState
look_up_extension(char *version, size_t size)
{
	/* Nothing invalidates one that a rule, gone since, had made empty. */
	outbox_store_forget_plans();
	outbox_store_forget_control();
	for (int i = 0; i < OUTBOX_RELAY_RELATIONS; i++)
		store.relids[i] = outbox_find_relation(i);
	store.owner = outbox_owner_of_relation(outbox_store_relid());

	/*
	 * Last, and by a new snapshot: of one that is being dropped no table is
	 * missed.
	 */
	if (SPI_execute(VERSION_SQL, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not look up the extension");
	if (SPI_processed != 1)
		return OUTBOX_EXTENSION_ABSENT;
	strlcpy(version, outbox_store_get_text(1), size);
	if (strcmp(version, outbox_library_version()) != 0)
		return OUTBOX_EXTENSION_VERSION;
	for (int i = 0; i < OUTBOX_RELAY_RELATIONS; i++)
		if (!OidIsValid(store.relids[i]))
			outbox_fail_relation(i);
	return OUTBOX_EXTENSION_READY;
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
	outbox_store_fence_forget();
	outbox_store_begin_catalogs("looking for the extension", false);
	/* Cleared first: what comes in from here on counts as new. */
	store.stale = false;
	state = look_up_extension(version, size);
	outbox_store_end(false);
	store.attached = state == OUTBOX_EXTENSION_READY;
	return state;
}
