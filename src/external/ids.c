/*-------------------------------------------------------------------------
 *
 * ids.c
 *		The argument ids of functions that are about some messages or about all.
 *
 * NULL is no way to say "all": it is what a client has whose list went missing.  And
 * an empty list is a list of none.  So the default is an array that no client makes:
 * one NULL, counted from 0.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "ids.h"
#include "utils/array.h"

PG_FUNCTION_INFO_V1(outbox_ids_given);

static bool
is_default(ArrayType *array)
{
	return ARR_NDIM(array) == 1 && ARR_LBOUND(array)[0] == 0 &&
		ARR_DIMS(array)[0] == 1 && array_contains_nulls(array);
}

/* NULL for the default. */
static ArrayType *
get_array(FunctionCallInfo fcinfo, int argument)
{
	ArrayType  *array = PG_ARGISNULL(argument) ? NULL :
		PG_GETARG_ARRAYTYPE_P(argument);

	if (array != NULL && is_default(array))
		return NULL;
	if (array == NULL || array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("ids must not be null or contain null"),
				 errhint("Leave the argument out for messages of any id; an empty array is none.")));
	return array;
}

/* qsort() and bsearch() */
static int
compare_ids(const void *a, const void *b)
{
	return memcmp(a, b, UUID_LEN);
}

void
outbox_ids_read(OutboxIds *to, FunctionCallInfo fcinfo, int argument)
{
	ArrayType  *array = get_array(fcinfo, argument);
	Datum	   *elems;

	memset(to, 0, sizeof(*to));
	to->all = array == NULL;
	if (to->all)
		return;
	deconstruct_array(array, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR, &elems, NULL,
					  &to->n);
	to->ids = palloc(sizeof(pg_uuid_t) * Max(to->n, 1));
	for (int i = 0; i < to->n; i++)
		to->ids[i] = *DatumGetUUIDP(elems[i]);
	qsort(to->ids, to->n, sizeof(pg_uuid_t), compare_ids);
}

bool
outbox_ids_have(const OutboxIds *ids, const pg_uuid_t *id)
{
	return ids->all ||
		bsearch(id, ids->ids, ids->n, sizeof(pg_uuid_t), compare_ids) != NULL;
}

/* For functions in SQL: false for the default, which stands for all. */
Datum
outbox_ids_given(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(get_array(fcinfo, 0) != NULL);
}
