/*-------------------------------------------------------------------------
 *
 * admin_internal.h
 *		What functions behind the views share: rows of their results, the slots of this
 *		database, what to do about each reason.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ADMIN_INTERNAL_H
#define OUTBOX_ADMIN_INTERNAL_H

#include "access/htup_details.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "shared.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

/* ---------------------------------------------------------- rows of a result */

#define RESULT_COLUMNS	32

/* Columns are put in their order, into a row that was {0}. */
typedef struct ResultRow
{
	int			n;
	Datum		values[RESULT_COLUMNS];
	bool		nulls[RESULT_COLUMNS];
} ResultRow;

static inline void
put(ResultRow *row, Datum value)
{
	row->values[row->n++] = value;
}

static inline void
put_null(ResultRow *row)
{
	row->nulls[row->n++] = true;
}

static inline void
put_int32(ResultRow *row, int32 number)
{
	put(row, Int32GetDatum(number));
}

static inline void
put_int64(ResultRow *row, int64 number)
{
	put(row, Int64GetDatum(number));
}

/* NULL and "" are null. */
static inline void
put_text(ResultRow *row, const char *str)
{
	if (str == NULL || str[0] == '\0')
		put_null(row);
	else
		put(row, CStringGetTextDatum(str));
}

/* 0 is null. */
static inline void
put_time(ResultRow *row, TimestampTz t)
{
	if (t == 0)
		put_null(row);
	else
		put(row, TimestampTzGetDatum(t));
}

/* A row of a set-returning function, after InitMaterializedSRF(). */
static inline void
return_next(FunctionCallInfo fcinfo, ResultRow *row)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	Assert(row->n == rsinfo->setDesc->natts);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row->values, row->nulls);
}

/* The row that a function returns. */
static inline Datum
return_row(FunctionCallInfo fcinfo, ResultRow *row)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	Assert(row->n == desc->natts);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), row->values, row->nulls));
}

/* --------------------------------------------------- slots of this database */

static inline int
slot_count(void)
{
	return outbox_shared == NULL ? 0 : outbox_shared->nslots;
}

/* With its mutex; NULL, without: it is none of this database. */
static inline OutboxSlot *
lock_slot(int i)
{
	OutboxSlot *slot = &outbox_shared->slots[i];

	SpinLockAcquire(&slot->mutex);
	if (slot->in_use && slot->dboid == MyDatabaseId)
		return slot;
	SpinLockRelease(&slot->mutex);
	return NULL;
}

/* --------------------------------------------------------------- monitor.c */

/* When the worker of a locked slot is late to look around; unset: never. */
extern OutboxMonoTime outbox_worker_late_at(OutboxSlot *slot);

/* Is a process silent that is late at that time? */
extern bool outbox_is_silent(OutboxMonoTime late);

/* -------------------------------------------------------- reason_advice.c */

typedef struct OutboxAdvice
{
	OutboxReason reason;
	const char *severity;		/* critical, warning, info */
	const char *hint;
	const char *command;		/* of a shell, or SQL; NULL: none */
} OutboxAdvice;

/* There is one for each reason but NONE. */
extern const OutboxAdvice *outbox_reason_advice(OutboxReason reason);

/* ------------------------------------------------------ advice_command.c */

/*
 * The command with what is known of its words in capital letters: the extension's
 * schema, and if fill is true settings of this session, where the caller may read
 * them, and broker ("host:port") and route unless they are NULL.  What is filled in
 * is quoted.
 */
extern const char *outbox_fill_command(const char *command, bool fill,
									   const char *broker, const char *route);

#endif							/* OUTBOX_ADMIN_INTERNAL_H */
