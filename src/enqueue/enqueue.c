/*-------------------------------------------------------------------------
 *
 * enqueue.c
 *		outbox_enqueue(), outbox_enqueue_bytes() and outbox_enqueue_text(), and the
 *		INSERT that they share with the other functions that make messages.
 *
 * They make a row of their arguments.  One prepared INSERT stores it, as the owner of the
 * table (act_as_owner.c): the caller has EXECUTE on the function and needs no right on
 * the table.  It goes through the executor, so that what an administrator has added to
 * the table counts: triggers, constraints, defaults, policies, indexes.
 *
 * What every message needs (checks, locks of keys, the wake-up) is in the row trigger, so
 * that INSERT and COPY are equal to them.  Here is what the trigger comes too late for or
 * cannot see: whether the caller may use the route, since the trigger sees the owner;
 * with outbox.strict_keys the lock of the key before seq is drawn; the id, which is the
 * result; and content_type, which is an argument here and a property in the row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "compat.h"
#include "encode_json.h"
#include "enqueue_internal.h"
#include "executor/spi.h"
#include "message.h"
#include "miscadmin.h"
#include "own_relations.h"
#include "settings.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(outbox_enqueue);
PG_FUNCTION_INFO_V1(outbox_enqueue_bytes);
PG_FUNCTION_INFO_V1(outbox_enqueue_text);
PG_FUNCTION_INFO_V1(outbox_key_hash);
PG_FUNCTION_INFO_V1(outbox_uuid7);

/* ---------------------------------------------------------------------- ids */

/*
 * For servers before 18: 48 bits of Unix milliseconds, 12 bits of fraction of it,
 * 62 random bits.  So values of one backend grow from one microsecond to the next, while
 * the clock does.  Random bytes are drawn many at a time, as each draw is a system call.
 */
static void
make_uuid7(pg_uuid_t *uuid)
{
	static uint8 pool[1024];
	static int	pool_pid = 0;
	static size_t used = sizeof(pool);
	TimestampTz now = GetCurrentTimestamp();
	uint64		us = (uint64) (now + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY);
	uint64		ms = us / 1000;
	uint16		fraction = (uint16) ((us % 1000) * 4096 / 1000);

	/* A forked child must not repeat what its parent drew. */
	if (used + 8 > sizeof(pool) || pool_pid != MyProcPid)
	{
		if (!pg_strong_random(pool, sizeof(pool)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate random values")));
		used = 0;
		pool_pid = MyProcPid;
	}
	for (int i = 0; i < 6; i++)
		uuid->data[i] = (uint8) (ms >> (8 * (5 - i)));
	uuid->data[6] = 0x70 | (uint8) (fraction >> 8);
	uuid->data[7] = (uint8) fraction;
	memcpy(&uuid->data[8], pool + used, 8);
	used += 8;
	uuid->data[8] = (uuid->data[8] & 0x3f) | 0x80;
}

void
outbox_make_uuid7(pg_uuid_t *uuid)
{
	if (COMPAT_HAVE_UUIDV7)
		*uuid = *compat_uuidv7();
	else
		make_uuid7(uuid);
}

Datum
outbox_uuid7(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *uuid = palloc(sizeof(pg_uuid_t));

	(void) fcinfo;
	outbox_make_uuid7(uuid);
	PG_RETURN_UUID_P(uuid);
}

/* -------------------------------------------------------- before the INSERT */

Relation
outbox_open_table(void)
{
	PreventCommandIfReadOnly("INSERT");
	return table_open(outbox_relation(OUTBOX_REL_OUTBOX), RowExclusiveLock);
}

const OutboxRoute *
outbox_enqueue_check_route(Relation rel, Oid role, const Datum *values,
						   const bool *isnull)
{
	if (isnull[COL_ROUTE - 1])
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("route must not be null")));
	return outbox_usable_route(rel->rd_rel->relowner,
							   TextDatumGetCString(values[COL_ROUTE - 1]), role);
}

int64
outbox_key_of(const Datum *values, const bool *isnull)
{
	return outbox_hash_key(DatumGetTextPP(values[COL_ROUTE - 1]),
						   isnull[COL_AGGREGATE_TYPE - 1] ? NULL :
						   DatumGetTextPP(values[COL_AGGREGATE_TYPE - 1]),
						   DatumGetTextPP(values[COL_AGGREGATE_ID - 1]));
}

void
outbox_enqueue_prepare(Relation rel, Oid role, Datum *values, bool *isnull)
{
	const OutboxRoute *route = outbox_enqueue_check_route(rel, role, values, isnull);

	/* Before the INSERT draws seq. */
	if (outbox_strict_keys && route->ordered && !isnull[COL_AGGREGATE_ID - 1])
		outbox_lock_key(values, isnull);
	if (isnull[COL_ID - 1])
	{
		pg_uuid_t  *id = palloc(sizeof(pg_uuid_t));

		outbox_make_uuid7(id);
		values[COL_ID - 1] = UUIDPGetDatum(id);
		isnull[COL_ID - 1] = false;
	}
}

/* --------------------------------------------------------------- the INSERT */

/* dated: with created_at.  The columns that it does not name have defaults. */
static char *
insert_sql(bool dated)
{
	StringInfoData names;
	StringInfoData params;
	int			n = 0;

	initStringInfo(&names);
	initStringInfo(&params);
	for (int col = 1; col <= OUTBOX_COLUMNS; col++)
		if (outbox_is_inserted(col, dated))
		{
			const char *comma = n > 0 ? ", " : "";

			appendStringInfo(&names, "%s%s", comma, outbox_columns[col - 1].name);
			appendStringInfo(&params, "%s$%d", comma, ++n);
		}
	return psprintf("INSERT INTO outbox_internal.outbox (%s) VALUES (%s)",
					names.data, params.data);
}

void
outbox_fail_rewritten(OutboxKeptPlan *plan, Relation rel, int result)
{
	outbox_kept_plan_forget(plan);
	if (result != SPI_OK_REWRITTEN)
		elog(ERROR, "could not insert into outbox: %s",
			 SPI_result_code_string(result));
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("a rule on table \"%s\" replaces the INSERT of messages",
					RelationGetRelationName(rel)),
			 errhint("Drop the rule, or use a trigger instead.")));
}

bool
outbox_enqueue_row(Relation rel, Oid role, Datum *values, bool *isnull)
{
	static OutboxKeptPlan kept[2];	/* without created_at, and with it */
	bool		dated = !isnull[COL_CREATED_AT - 1];
	OutboxKeptPlan *plan = &kept[dated];
	Oid			types[OUTBOX_COLUMNS];
	Datum		params[OUTBOX_COLUMNS];
	char		nulls[OUTBOX_COLUMNS];
	int			n = 0;
	OutboxActing acting;
	int			result;
	bool		stored;

	outbox_enqueue_prepare(rel, role, values, isnull);
	for (int i = 0; i < OUTBOX_COLUMNS; i++)
		if (outbox_is_inserted(i + 1, dated))
		{
			types[n] = outbox_column_types[i];
			params[n] = values[i];
			nulls[n++] = isnull[i] ? 'n' : ' ';
		}
	SPI_connect();
	outbox_act_begin(&acting, rel->rd_rel->relowner, false);
	result = outbox_kept_plan_execute(plan,
									  plan->plan == NULL ? insert_sql(dated) : NULL,
									  n, types, params, nulls, false);
	if (result != SPI_OK_INSERT)
		outbox_fail_rewritten(plan, rel, result);
	stored = SPI_processed > 0;
	outbox_act_end(&acting);
	SPI_finish();
	return stored;
}

/* ------------------------------------------------------------ the functions */

Relation
outbox_enqueue_arguments(FunctionCallInfo fcinfo, int first, Datum *values, bool *isnull)
{
	Relation	rel = outbox_open_table();

	memset(isnull, true, sizeof(bool) * OUTBOX_COLUMNS);
	for (int i = 0; i < OUTBOX_ENQUEUE_ARGUMENTS; i++)
	{
		int			col = outbox_arguments[i].column;

		isnull[col - 1] = PG_ARGISNULL(first + i);
		values[col - 1] = PG_GETARG_DATUM(first + i);
	}
	return rel;
}

static Datum
enqueue(FunctionCallInfo fcinfo, Relation rel, Datum *values, bool *isnull)
{
	bool		stored = outbox_enqueue_row(rel, GetUserId(), values, isnull);

	table_close(rel, NoLock);
	/* A trigger of the administrator's may have left it out. */
	if (!stored)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(values[COL_ID - 1]);
}

Datum
outbox_enqueue(PG_FUNCTION_ARGS)
{
	Datum		values[OUTBOX_COLUMNS];
	bool		isnull[OUTBOX_COLUMNS];
	Relation	rel = outbox_enqueue_arguments(fcinfo, 0, values, isnull);

	return enqueue(fcinfo, rel, values, isnull);
}

Datum
outbox_add_content_type(const text *type, Datum properties, bool *isnull)
{
	static const char octets[] = "application/octet-stream";
	StringInfoData json;
	Datum		object;

	/* The default needs no storing: it is what bytes are sent as. */
	if (VARSIZE_ANY_EXHDR(type) == strlen(octets) &&
		memcmp(VARDATA_ANY(type), octets, strlen(octets)) == 0)
		return properties;
	initStringInfo(&json);
	appendStringInfoString(&json, "{\"content_type\": ");
	escape_json(&json, text_to_cstring(type));
	appendStringInfoChar(&json, '}');
	object = outbox_json_object(json.data);
	/* Of JSON null the row trigger makes NULL, but what is here is an object. */
	if (*isnull || outbox_is_json_null(DatumGetJsonbP(properties)))
	{
		*isnull = false;
		return object;
	}
	return DirectFunctionCall2(jsonb_concat, object, properties);
}

/* The second argument is the body, and there is a content_type behind the others. */
Datum
outbox_enqueue_bytes(PG_FUNCTION_ARGS)
{
	Datum		values[OUTBOX_COLUMNS];
	bool		isnull[OUTBOX_COLUMNS];
	Relation	rel = outbox_enqueue_arguments(fcinfo, 0, values, isnull);

	values[COL_BODY - 1] = values[COL_PAYLOAD - 1];
	isnull[COL_BODY - 1] = isnull[COL_PAYLOAD - 1];
	isnull[COL_PAYLOAD - 1] = true;
	if (!PG_ARGISNULL(OUTBOX_ENQUEUE_ARGUMENTS))
		values[COL_PROPERTIES - 1] =
			outbox_add_content_type(PG_GETARG_TEXT_PP(OUTBOX_ENQUEUE_ARGUMENTS),
									values[COL_PROPERTIES - 1],
									&isnull[COL_PROPERTIES - 1]);
	return enqueue(fcinfo, rel, values, isnull);
}

/*
 * An error of the value (class 22) is thrown on with the argument's name, and any
 * other as it is; none ends here.
 */
Datum
outbox_enqueue_convert(const char *name, PGFunction input, text *value)
{
	MemoryContext context = CurrentMemoryContext;
	Datum		result;

	PG_TRY();
	{
		result = outbox_text_input(input, value);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_DATA_EXCEPTION)
			PG_RE_THROW();
		FlushErrorState();
		error->message = psprintf("%s: %s", name, error->message);
		ReThrowError(error);
	}
	PG_END_TRY();
	return result;
}

/*
 * For drivers that bind a string as text or varchar, of which no function with an
 * argument of another type is found without a cast.  It has a name of its own, since an
 * overload of outbox_enqueue() would make calls ambiguous that work.
 */
Datum
outbox_enqueue_text(PG_FUNCTION_ARGS)
{
	Datum		values[OUTBOX_COLUMNS];
	bool		isnull[OUTBOX_COLUMNS];
	Relation	rel = outbox_enqueue_arguments(fcinfo, 0, values, isnull);

	for (int i = 0; i < OUTBOX_ENQUEUE_ARGUMENTS; i++)
	{
		const OutboxArgument *argument = &outbox_arguments[i];

		if (!PG_ARGISNULL(i) && argument->input != NULL)
			values[argument->column - 1] =
				outbox_enqueue_convert(argument->name, argument->input,
									   PG_GETARG_TEXT_PP(i));
	}
	return enqueue(fcinfo, rel, values, isnull);
}

Datum
outbox_key_hash(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0) || PG_ARGISNULL(2))
		PG_RETURN_NULL();
	PG_RETURN_INT64(outbox_hash_key(PG_GETARG_TEXT_PP(0),
									PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1),
									PG_GETARG_TEXT_PP(2)));
}
