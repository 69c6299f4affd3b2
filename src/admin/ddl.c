/*-------------------------------------------------------------------------
 *
 * ddl.c
 *		Commands that workers must make room for, or must hear of.
 *
 * DROP DATABASE, ALTER DATABASE ... RENAME and SET TABLESPACE, and CREATE
 * DATABASE ... TEMPLATE wait five seconds for other sessions of the database and
 * then fail; they end no background worker.  So its workers are sent home before
 * the command and come back after it, whether it succeeded or not.
 *
 * Who may not run the command cannot use it to stop a relay: the owner of the
 * database is checked here as well.
 *
 * ALTER EXTENSION UPDATE need not touch a table of ours, so nothing else tells the
 * workers that the extension has another version from its commit on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "admin.h"
#include "catalog/pg_database.h"
#include "clock.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "enqueue.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "shared.h"
#include "storage/latch.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/syscache.h"
#include "wait_event.h"

/* Shorter than the five seconds that the server waits afterwards. */
#define STOP_WAIT_MS	4500
#define STOP_POLL_MS	10

static ProcessUtility_hook_type prev_process_utility = NULL;

static const char *
option_string(List *options, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = lfirst(cell);

		if (strcmp(option->defname, name) == 0 && option->arg != NULL)
			return defGetString(option);
	}
	return NULL;
}

/* Name of the database that the statement needs empty, or NULL. */
static const char *
emptied_database(Node *stmt)
{
	if (IsA(stmt, DropdbStmt))
		return ((DropdbStmt *) stmt)->dbname;
	if (IsA(stmt, RenameStmt) &&
		((RenameStmt *) stmt)->renameType == OBJECT_DATABASE)
		return ((RenameStmt *) stmt)->subname;
	if (IsA(stmt, AlterDatabaseStmt) &&
		option_string(((AlterDatabaseStmt *) stmt)->options, "tablespace"))
		return ((AlterDatabaseStmt *) stmt)->dbname;
	if (IsA(stmt, CreatedbStmt))
		return option_string(((CreatedbStmt *) stmt)->options, "template");
	return NULL;
}

static bool
may_empty(Oid dboid)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(dboid));
	bool		allowed;

	if (!HeapTupleIsValid(tuple))
		return false;
	allowed = superuser() ||
		has_privs_of_role(GetUserId(),
						  ((Form_pg_database) GETSTRUCT(tuple))->datdba);
	ReleaseSysCache(tuple);
	return allowed;
}

/* The database whose workers must leave for this statement, or InvalidOid. */
static Oid
database_to_empty(Node *stmt)
{
	const char *name = emptied_database(stmt);
	Oid			dboid;

	if (name == NULL || outbox_shared == NULL)
		return InvalidOid;
	dboid = get_database_oid(name, true);
	if (!OidIsValid(dboid) || !may_empty(dboid))
		return InvalidOid;
	/* The session's own one can be a template, if nobody else is in it. */
	if (dboid == MyDatabaseId && !IsA(stmt, CreatedbStmt))
		return InvalidOid;
	return dboid;
}

/* Without those that have left, whose slots the launcher frees later. */
static bool
has_workers(Oid dboid)
{
	bool		found = false;

	for (int i = 0; i < outbox_shared->nslots && !found; i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];

		SpinLockAcquire(&slot->mutex);
		/* One that is only registered has no process either. */
		found = slot->in_use && slot->dboid == dboid &&
			(slot->pid != 0 || slot->state != OUTBOX_WORKER_STOPPED);
		SpinLockRelease(&slot->mutex);
	}
	return found;
}

static void
wait_until_empty(Oid dboid)
{
	OutboxMonoTime deadline = outbox_mono_after(STOP_WAIT_MS);

	while (has_workers(dboid) &&
		   !outbox_mono_reached(deadline, outbox_mono_now()))
	{
		/* Again and again: a worker may have taken it, and be in its commit. */
		(void) outbox_shared_tell_workers(dboid, OUTBOX_SIGNAL_STOP);
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 STOP_POLL_MS,
						 outbox_wait_event(OUTBOX_WAIT_WORKERS));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Databases that the launcher does not know: one made from a template that has
 * the extension has it, too; and one that did not take connections when the
 * launcher looked may take them from now on.
 *
 * The name is copied before the command runs, which may end its transaction, and
 * "" if there is none.
 */
static void
copy_new_database(Node *stmt, char *name)
{
	name[0] = '\0';
	if (outbox_shared == NULL)
		return;
	if (IsA(stmt, CreatedbStmt))
		strlcpy(name, ((CreatedbStmt *) stmt)->dbname, NAMEDATALEN);
	if (IsA(stmt, AlterDatabaseStmt))
		strlcpy(name, ((AlterDatabaseStmt *) stmt)->dbname, NAMEDATALEN);
}

/*
 * The launcher starts no workers in a template, which everybody with CREATEDB may
 * copy if nobody is connected to it.  Those that run leave as soon as it is one.
 */
static int
signals_for_workers(Node *stmt)
{
	if (IsA(stmt, AlterDatabaseStmt) &&
		option_string(((AlterDatabaseStmt *) stmt)->options, "is_template"))
		return OUTBOX_SIGNAL_STOP;
	return 0;
}

static void
note_database(const char *name, int signals)
{
	if (name[0] != '\0')
		outbox_wake_database(get_database_oid(name, true), signals);
}

static bool
alters_outbox(Node *stmt)
{
	return IsA(stmt, AlterExtensionStmt) &&
		strcmp(((AlterExtensionStmt *) stmt)->extname, "outbox") == 0;
}

static void
outbox_process_utility(PlannedStmt *pstmt, const char *query_string,
					   bool read_only_tree, ProcessUtilityContext context,
					   ParamListInfo params, QueryEnvironment *query_env,
					   DestReceiver *dest, QueryCompletion *qc)
{
	ProcessUtility_hook_type next = prev_process_utility ?
		prev_process_utility : standard_ProcessUtility;
	Oid			dboid;
	bool		had_workers;
	char		new_database[NAMEDATALEN];
	int			signals = signals_for_workers(pstmt->utilityStmt);
	bool		alters = alters_outbox(pstmt->utilityStmt);

	copy_new_database(pstmt->utilityStmt, new_database);

	/*
	 * Most of these commands refuse to run in a transaction block or a
	 * function themselves.  RENAME does not: its lock outlasts the hold, and
	 * a worker that starts in between waits in its start until the
	 * transaction ends.
	 */
	dboid = database_to_empty(pstmt->utilityStmt);
	if (!OidIsValid(dboid) || !outbox_hold_set(dboid))
	{
		next(pstmt, query_string, read_only_tree, context, params, query_env,
			 dest, qc);
		note_database(new_database, signals);
		if (alters)
			outbox_wake_signal(OUTBOX_SIGNAL_EXTENSION);
		return;
	}
	had_workers = outbox_shared_count_slots(dboid) > 0;
	PG_TRY();
	{
		wait_until_empty(dboid);
		next(pstmt, query_string, read_only_tree, context, params, query_env,
			 dest, qc);
		note_database(new_database, signals);
	}
	PG_FINALLY();
	{
		outbox_hold_release(dboid, had_workers);
	}
	PG_END_TRY();
}

void
outbox_ddl_install_hook(void)
{
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = outbox_process_utility;
}
