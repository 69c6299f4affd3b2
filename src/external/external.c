/*-------------------------------------------------------------------------
 *
 * external.c
 *		The outlet 'external': what outbox_claim() needs of the relay's own rules, and
 *		arguments of the functions beside it.
 *
 * A claim is SQL, in the installation script.  What it shares with the workers it asks
 * of the same code here, so that both agree on what a copy is and what a template says.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "environment.h"
#include "external.h"
#include "external_internal.h"
#include "fmgr.h"
#include "identity.h"
#include "mb/pg_wchar.h"
#include "origin.h"
#include "printable.h"
#include "route.h"
#include "utils/array.h"
#include "utils/builtins.h"

const OutboxOutlet outbox_external_outlet = {.name = "external", .excluded = true};

PG_FUNCTION_INFO_V1(outbox_is_original);
PG_FUNCTION_INFO_V1(outbox_render_key);

/*
 * Is what the control row records (server, database, environment, timeline) this
 * database?  source: the file that sets outbox.environment, or NULL.  Adopted
 * origins are for the caller, who has the rows.
 */
Datum
outbox_is_original(PG_FUNCTION_ARGS)
{
	OutboxIdentity recorded = {0};
	char	   *source = PG_ARGISNULL(4) ? NULL :
		text_to_cstring(PG_GETARG_TEXT_PP(4));

	for (int i = 0; i < 4; i++)
		if (PG_ARGISNULL(i))
			PG_RETURN_BOOL(false);
	recorded.origin = outbox_origin_of((uint64) PG_GETARG_INT64(0),
									   PG_GETARG_OID(1));
	recorded.environment = text_to_cstring(PG_GETARG_TEXT_PP(2));
	recorded.timeline = PG_GETARG_INT64(3);
	PG_RETURN_BOOL(outbox_identity_compare(&recorded, false,
										   outbox_environment_unusable(source)) ==
				   OUTBOX_COPY_NONE);
}

static char *
argument(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(n));
}

/*
 * A template with the event_type, aggregate_type and aggregate_id of a message, in
 * full: AMQP's limit is one of UTF-8, in which a key may be shorter than here, and
 * none of an external relay's.  Half a character would be no text.
 */
Datum
outbox_render_key(PG_FUNCTION_ARGS)
{
	char	   *parts[4];
	char	   *rendered;
	char		none[1];
	size_t		len;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		PG_RETURN_NULL();
	for (int i = 0; i < 4; i++)
		parts[i] = argument(fcinfo, i);
	len = outbox_route_render(parts[0], parts[1], parts[2], parts[3], none,
							  sizeof(none));
	rendered = palloc(len + 1);
	(void) outbox_route_render(parts[0], parts[1], parts[2], parts[3], rendered,
							   len + 1);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(rendered, (int) len));
}

/*
 * The argument ids of functions that are about some messages or about all.
 *
 * NULL is no way to say "all": it is what a client has whose list went missing.  And
 * an empty list is a list of none.  So the default is an array that no client makes:
 * one NULL, counted from 0.
 */

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

/*
 * printable.h for values of type text.
 */

PG_FUNCTION_INFO_V1(outbox_printable);

/* Only the beginning of a long value is read from its TOAST table, with a whole last character. */
Datum
outbox_printable_text(Datum value)
{
	text	   *begin = DatumGetTextPSlice(value, 0, OUTBOX_PRINTABLE_SIZE +
													MAX_MULTIBYTE_CHAR_LEN);
	char		shown[OUTBOX_PRINTABLE_SIZE];

	outbox_copy_printable(shown, sizeof(shown), VARDATA_ANY(begin),
						  VARSIZE_ANY_EXHDR(begin), GetDatabaseEncoding(), "");
	return PointerGetDatum(cstring_to_text(shown));
}

char *
outbox_shown_utf8(const char *text)
{
	int			len = (int) strlen(text);
	int			encoding = GetDatabaseEncoding();
	int			size = len * MAX_CONVERSION_GROWTH + 1;
	char	   *utf8 = palloc0(size);

	if (encoding == PG_UTF8 || encoding == PG_SQL_ASCII)
	{
		if (pg_verify_mbstr(PG_UTF8, text, len, true))
			return strcpy(utf8, text);
	}
	else
	{
		Oid			proc = FindDefaultConversionProc(encoding, PG_UTF8);

		if (OidIsValid(proc) &&
			pg_do_encoding_conversion_buf(proc, encoding, PG_UTF8, (unsigned char *) unconstify(char *, text),
										  len, (unsigned char *) utf8, size, true) == len)
			return utf8;
	}
	strcpy(utf8, text);
	outbox_mask_bytes(utf8);
	return utf8;
}

Datum
outbox_printable(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(outbox_printable_text(PG_GETARG_DATUM(0)));
}
