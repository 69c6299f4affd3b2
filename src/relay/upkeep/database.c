/*-------------------------------------------------------------------------
 *
 * database.c
 *		The worker's database: session, extension, settings, and its errors.
 *
 * An error of the database is an ERROR, which ends the round's transaction: the
 * round is tried again after a while, and nothing new is sent meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "backoff.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "own_version.h"
#include "postmaster/bgworker.h"
#include "settings.h"
#include "stats.h"
#include "upkeep.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/* A worker that waits for answers before it leaves does so for so long. */
#define LEAVE_MS		3000

#define RETRY_MS		100
#define RETRY_MAX_MS	5000

void
outbox_database_connect(Oid dboid)
{
	char	   *library_path =
		MemoryContextStrdup(TopMemoryContext,
							GetConfigOption("dynamic_library_path", false, false));

	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, 0);
	outbox_override_settings(library_path);
	pfree(library_path);

	/*
	 * Messages are encoded outside of any transaction, and only a conversion
	 * to the client's encoding needs no catalog look-up there.
	 */
	StartTransactionCommand();
	SetConfigOption("client_encoding", "UTF8", PGC_SUSET, PGC_S_OVERRIDE);
	/* An override, too, that looks a role up. */
	SetConfigOption("session_authorization", GetUserNameFromId(GetAuthenticatedUserId(), false),
					PGC_SUSET, PGC_S_OVERRIDE);
	CommitTransactionCommand();
}

void
outbox_database_leave(OutboxDatabase *database, OutboxExit reason)
{
	database->leave = true;
	MySlot->exit_reason = reason;
}

void
outbox_database_leave_answered(OutboxDatabase *database, OutboxExit reason)
{
	if (database->leaving == OUTBOX_EXIT_CRASHED)
		database->leave_by = outbox_mono_after(LEAVE_MS);
	database->leaving = reason;
}

/*
 * Extension and library are of different versions, and what the statements of the
 * one mean is not known to the other.  The log says so once, however many workers
 * there are, and what to do.
 */
static void
misfit(OutboxDatabase *database, const char *version)
{
	int			before = database->mismatch;
	char		text[OUTBOX_TEXT_SIZE];

	database->mismatch =
		outbox_version_compare(version, outbox_library_version()) > 0 ? 1 : -1;
	if (before == database->mismatch)
		return;
	snprintf(text, sizeof(text),
			 "the extension has version %s, the library %s",
			 version, outbox_library_version());
	outbox_slot_set_last_error(text);
	if (MySlot->worker > 0)
		return;
	ereport(LOG,
			(errmsg("outbox relay is paused: %s", text),
			 database->mismatch < 0 ?
			 errhint("Run ALTER EXTENSION outbox UPDATE in the database.") :
			 errhint("Install the package of version %s and restart the server.",
					 version)));
}

static bool
attach(OutboxDatabase *database)
{
	char		version[64] = "";

	database->attached = false;
	database->recheck &= ~OUTBOX_RECHECK_EXTENSION;
	switch (outbox_store_attach(version, sizeof(version)))
	{
		case OUTBOX_EXTENSION_ABSENT:
			outbox_database_leave(database, OUTBOX_EXIT_ABSENT);
			return false;
		case OUTBOX_EXTENSION_VERSION:
			misfit(database, version);
			outbox_slot_set_ready(MySlot->nworkers);
			return false;
		case OUTBOX_EXTENSION_READY:
			break;
	}
	database->mismatch = 0;

	/*
	 * Dropped and created again: what is in memory was in the old table, and
	 * the numbers of the new one start over.
	 */
	if (OidIsValid(database->relid) && database->relid != outbox_store_relid())
	{
		outbox_database_leave(database, OUTBOX_EXIT_RESTART);
		return false;
	}
	database->relid = outbox_store_relid();
	database->attached = true;
	outbox_slot_set_ready(outbox_workers);
	return true;
}

void
outbox_database_recheck(OutboxDatabase *database, int what)
{
	database->recheck |= what;
}

bool
outbox_database_wants_attach(const OutboxDatabase *database)
{
	return (database->recheck & OUTBOX_RECHECK_EXTENSION) != 0 || outbox_store_stale();
}

bool
outbox_database_wants_round(const OutboxDatabase *database)
{
	return !database->attached || !database->started || database->recheck != 0 ||
		outbox_store_stale();
}

bool
outbox_database_attach(OutboxDatabase *database)
{
	bool		same = database->attached && !outbox_store_stale();

	database->recheck &= ~OUTBOX_RECHECK_TABLES;
	if (database->attached && !outbox_database_wants_attach(database))
		return false;
	return attach(database) && !same;
}

/*
 * ALTER DATABASE SET is applied when a process starts, so a worker whose database has
 * got other settings leaves at the next reload, to be started again.
 */
void
outbox_database_check_settings(OutboxDatabase *database)
{
	if ((database->recheck & OUTBOX_RECHECK_SETTINGS) == 0)
		return;
	if (strcmp(outbox_store_database_settings(CurrentMemoryContext),
			   database->settings) != 0)
		outbox_database_leave_answered(database, OUTBOX_EXIT_RESTART);
	database->recheck &= ~OUTBOX_RECHECK_SETTINGS;
}

void
outbox_database_started(OutboxDatabase *database)
{
	database->started = true;
}

void
outbox_database_works(OutboxDatabase *database)
{
	if (database->failing)
		ereport(LOG, (errmsg("outbox relay can use the database again")));
	database->failing = false;
	database->failures = 0;
	outbox_slot_clear_current_error(OUTBOX_ERROR_DATABASE);
}

void
outbox_database_hide_row(void)
{
	int			sqlerrcode = geterrcode();
	int			class = ERRCODE_TO_CATEGORY(sqlerrcode);

	/*
	 * These are said of arguments, by triggers of the extension, and show no
	 * value.
	 */
	if (sqlerrcode == ERRCODE_NULL_VALUE_NOT_ALLOWED || sqlerrcode == ERRCODE_INVALID_PARAMETER_VALUE)
		return;
	if (class == ERRCODE_DATA_EXCEPTION)
	{
		errmsg("a value of a row is not valid (SQLSTATE %s)", unpack_sql_state(sqlerrcode));
		errhidecontext(true);
	}
	if (class == ERRCODE_DATA_EXCEPTION ||
		class == ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION ||
		class == ERRCODE_WITH_CHECK_OPTION_VIOLATION)
		errdetail_log("The row is not shown, as it has the content of a message.");
}

static const char *
unreadable_text(const OutboxUnreadableRow *row, const char *error)
{
	return psprintf("message %s, seq %lld: %s",
					outbox_id_text(&row->row.id), (long long) row->row.seq, error);
}

/*
 * The first error in a row is logged in full; what
 * follows only counts.
 */
void
outbox_database_failed(OutboxDatabase *database, const OutboxUnreadableRow *row,
					   MemoryContext scratch)
{
	ErrorData  *edata;
	const char *sqlstate;

	MemoryContextSwitchTo(scratch);
	if (row == NULL)
		outbox_database_hide_row();
	edata = CopyErrorData();
	if (!database->failing)
		EmitErrorReport();
	FlushErrorState();
	outbox_store_abort();
	outbox_slot_set_committing(false);
	outbox_slot_set_last_error(edata->message);
	outbox_stats_event(OUTBOX_EVENT_DATABASE_ERROR);
	sqlstate = unpack_sql_state(edata->sqlerrcode);
	outbox_slot_set_current_error(OUTBOX_ERROR_DATABASE,
								  row != NULL ? OUTBOX_REASON_DB_UNREADABLE :
								  outbox_reason_of_sqlstate(sqlstate),
								  row != NULL ? unreadable_text(row, edata->message) :
								  edata->message, sqlstate);

	database->failing = true;
	database->failures++;
	database->retry_at =
		outbox_mono_after(outbox_backoff_ms(RETRY_MS,
											RETRY_MAX_MS,
											database->failures,
											pg_prng_uint32(&pg_global_prng_state)));
	if (edata->sqlerrcode == ERRCODE_UNDEFINED_TABLE ||
		edata->sqlerrcode == ERRCODE_INVALID_SCHEMA_NAME)
		database->attached = false;
	FreeErrorData(edata);
}

bool
outbox_database_touched(const OutboxDatabase *database)
{
	return (database->recheck & OUTBOX_RECHECK_TABLES) != 0 || outbox_store_stale();
}
