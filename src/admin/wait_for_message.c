/*-------------------------------------------------------------------------
 *
 * wait_for_message.c
 *		outbox_wait(): what has become of a message.
 *
 * It registers with the workers (waiters.h), looks at the tables, and sleeps until
 * it is told or the time is over.  The look is with a new snapshot, whatever that of
 * the transaction is, and as the owner: the caller needs no right on the tables.
 *
 * The caller learns the state of messages on routes that they may enqueue to, and those
 * who have the rights of the tables' owner that of all.  A message of another route gets
 * the answer, and takes the time, of an id that no message has.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "clock.h"
#include "enqueue.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "message.h"
#include "miscadmin.h"
#include "own_relations.h"
#include "shared.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "wait_event.h"
#include "waiters.h"

PG_FUNCTION_INFO_V1(outbox_wait);

/* The statement's snapshot holds up vacuum for so long. */
#define MAX_WAIT_US		(USECS_PER_HOUR)

typedef enum State
{
	PENDING,
	PUBLISHED,
	FAILED,
	UNKNOWN
} State;

static const char *const names[] = {
	[PENDING] = "pending",
	[PUBLISHED] = "published",
	[FAILED] = "failed",
	[UNKNOWN] = "unknown",
};

/* Who asks, and of whose tables. */
typedef struct Asker
{
	Oid			user;			/* the current one, before the look as the
								 * owner */
	Oid			owner;			/* of the tables */
} Asker;

/* ------------------------------------------------------------- what there is */

#define TABLE_SQL \
	"SELECT route::pg_catalog.text, status OPERATOR(pg_catalog.=) 'failed', xmin" \
	" FROM outbox_internal.outbox WHERE id OPERATOR(pg_catalog.=) $1"
/* An id may be there more than once, on routes of different tenants. */
#define ARCHIVE_SQL \
	"SELECT DISTINCT route::pg_catalog.text FROM outbox_internal.outbox_archive" \
	" WHERE id OPERATOR(pg_catalog.=) $1"

static bool
may_know(const Asker *asker, const char *route)
{
	return has_privs_of_role(asker->user, asker->owner) ||
		outbox_route_allows(asker->owner, route, asker->user);
}

/* OutboxAskRoute */
static bool
may_know_hashed(uint64 hash, void *arg)
{
	const Asker *asker = arg;
	char	   *route = outbox_route_of_hash(asker->owner, hash);

	return route != NULL && may_know(asker, route);
}

/*
 * The first row of a query for the id whose route the asker may know of, or NULL; it is
 * valid until SPI_finish().
 */
static HeapTuple
find(const char *sql, const pg_uuid_t *id, const Asker *asker)
{
	Oid			types[1] = {UUIDOID};
	Datum		values[1] = {UUIDPGetDatum(id)};

	PushActiveSnapshot(GetLatestSnapshot());
	if (SPI_execute_with_args(sql, 1, types, values, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not look for a message");
	PopActiveSnapshot();
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		char	   *route = SPI_getvalue(row, SPI_tuptable->tupdesc, 1);

		if (route != NULL && may_know(asker, route))
			return row;
	}
	return NULL;
}

static Datum
column(HeapTuple row, int number)
{
	bool		isnull;

	return SPI_getbinval(row, SPI_tuptable->tupdesc, number, &isnull);
}

/* Nobody will see such a row before this transaction has ended. */
static void
refuse_own(HeapTuple row, const pg_uuid_t *id)
{
	if (!TransactionIdIsCurrentTransactionId(DatumGetTransactionId(column(row, 3))))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
			 errmsg("message \"%s\" was enqueued or changed in this transaction",
					outbox_id_text(id)),
			 errdetail("It is not published before the transaction has committed."),
			 errhint("COMMIT first, and call outbox_wait() then.")));
}

/*
 * The table before the ring, as a row overrides it; the ring before
 * the archive, where it may take long to find that nothing is there.
 */
static State
look_as_owner(const pg_uuid_t *id, Asker *asker)
{
	HeapTuple	row = find(TABLE_SQL, id, asker);
	OutboxRecentlySettled *recent;

	if (row != NULL)
	{
		refuse_own(row, id);
		return DatumGetBool(column(row, 2)) ? FAILED : PENDING;
	}
	recent = outbox_shared == NULL ? NULL : outbox_recent_find(MyDatabaseId);
	if (recent != NULL && outbox_recent_has(recent, id, may_know_hashed, asker))
		return PUBLISHED;
	return find(ARCHIVE_SQL, id, asker) != NULL ? PUBLISHED : UNKNOWN;
}

static State
look(const pg_uuid_t *id)
{
	Asker		asker = {GetUserId(), outbox_owner_of_relation(outbox_relation(OUTBOX_REL_OUTBOX))};
	OutboxActing acting;
	State		state;

	if (!OidIsValid(asker.owner))
		elog(ERROR, "table \"outbox\" has gone");
	/* What the statement itself has enqueued is to be seen, and refused. */
	CommandCounterIncrement();
	SPI_connect();
	outbox_act_begin(&acting, asker.owner, true);
	state = look_as_owner(id, &asker);
	outbox_act_end(&acting);
	SPI_finish();
	return state;
}

/* ------------------------------------------------------------------ waiting */

static State
wait_for(const pg_uuid_t *id, OutboxMonoTime deadline)
{
	State		state = look(id);

	/* A worker may have left the answer unread: it looks now who waits. */
	if (state == PENDING && !outbox_mono_reached(deadline, outbox_mono_now()))
		(void) outbox_shared_tell_workers(MyDatabaseId, 0);
	while (state == PENDING)
	{
		OutboxMonoTime now = outbox_mono_now();

		switch (outbox_waiter_verdict())
		{
			case OUTBOX_VERDICT_PUBLISHED:
				return PUBLISHED;
			case OUTBOX_VERDICT_FAILED:
				return FAILED;
			case OUTBOX_VERDICT_LOOK:
				state = look(id);
				if (state != PENDING || outbox_mono_reached(deadline, now))
					return state;
				continue;
			case OUTBOX_VERDICT_NONE:
				break;
		}
		/* Once more: a prepared transaction that commits tells nobody. */
		if (outbox_mono_reached(deadline, now))
			return look(id);
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 outbox_mono_ms_until(deadline, now),
						 outbox_wait_event(OUTBOX_WAIT_MESSAGE));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return state;
}

/* Also when this backend is told to end. */
static void
end_waiting(int code, Datum arg)
{
	(void) code;
	(void) arg;
	outbox_waiter_end();
}

static State
wait_registered(const pg_uuid_t *id, OutboxMonoTime deadline)
{
	State		state;

	outbox_waiter_begin(id);
	PG_ENSURE_ERROR_CLEANUP(end_waiting, (Datum) 0);
	{
		state = wait_for(id, deadline);
	}
	PG_END_ENSURE_ERROR_CLEANUP(end_waiting, (Datum) 0);
	outbox_waiter_end();
	return state;
}

static int64
timeout_us(FunctionCallInfo fcinfo)
{
	const Interval *span;

	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("timeout must not be null")));
	span = PG_GETARG_INTERVAL_P(1);
	/* An hour has neither days nor months; infinity has. */
	if (span->month != 0 || span->day != 0 ||
		span->time < 0 || span->time > MAX_WAIT_US)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("timeout must be from 0 to 1 hour"),
				 errdetail("While the statement waits, its snapshot keeps vacuum from removing rows."),
				 errhint("Call outbox_wait() again when it has returned 'pending'.")));
	return span->time;
}

Datum
outbox_wait(PG_FUNCTION_ARGS)
{
	OutboxMonoTime deadline;
	const pg_uuid_t *id;
	State		state;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("message_id must not be null")));
	id = PG_GETARG_UUID_P(0);
	deadline = outbox_mono_after((timeout_us(fcinfo) + 999) / 1000);
	/* Nobody here is told what the primary's relay does. */
	PreventCommandDuringRecovery("outbox_wait()");
	/* Without the library there is no relay that it could wait for. */
	state = outbox_shared == NULL ? look(id) :
		wait_registered(id, deadline);
	PG_RETURN_TEXT_P(cstring_to_text(names[state]));
}
