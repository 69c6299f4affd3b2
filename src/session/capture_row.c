/*-------------------------------------------------------------------------
 *
 * capture_row.c
 *		Key and payload of a row that outbox_capture() makes a message of.
 *
 * Values become JSON by to_jsonb(), and text by the output functions of their
 * types.  A cast to json of somebody's own type is his code, which runs here: as the
 * owner of the table (capture.c), who has chosen that type for it.  What has changed is
 * told by the bytes of the values: no code of anybody's, and it knows every type.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "capture.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgtime.h"
#include "same_value.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/bytea.h"
#include "utils/float.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/json.h"

/* ------------------------------------------------------------------ format */

static void
pin(const char *setting, const char *value)
{
	(void) set_config_option(setting, value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

/*
 * The same row gives the same message in every session: above all the same key, as
 * the order hangs on that.  Returns 0 where the settings are as they must be.
 */
int
outbox_capture_format_begin(void)
{
	bool		date_style = DateStyle != USE_ISO_DATES || DateOrder != DATEORDER_MDY;
	bool		interval_style = IntervalStyle != INTSTYLE_POSTGRES;
	bool		zone = strcmp(pg_get_timezone_name(session_timezone), "UTC") != 0;
	bool		floats = extra_float_digits != 1;
	bool		bytes = bytea_output != BYTEA_OUTPUT_HEX;
	/* Its variable is in a header that needs ICU's. */
	bool		money = strcmp(GetConfigOption("lc_monetary", false, false), "C") != 0;
	int			nestlevel;

	if (!date_style && !interval_style && !zone && !floats && !bytes &&
		!money && !quote_all_identifiers)
		return 0;
	nestlevel = NewGUCNestLevel();
	if (date_style)
		pin("DateStyle", "ISO, MDY");
	if (interval_style)
		pin("IntervalStyle", "postgres");
	if (zone)
		pin("TimeZone", "UTC");
	if (floats)
		pin("extra_float_digits", "1");
	if (bytes)
		pin("bytea_output", "hex");
	if (money)
		pin("lc_monetary", "C");
	if (quote_all_identifiers)
		pin("quote_all_identifiers", "off");
	return nestlevel;
}

void
outbox_capture_format_end(int nestlevel)
{
	if (nestlevel != 0)
		AtEOXact_GUC(false, nestlevel);
}

/* ----------------------------------------------------------------- changes */

bool
outbox_capture_same(const Capture *capture, int attnum, const CaptureImage *one,
					const CaptureImage *other)
{
	Form_pg_attribute att = TupleDescAttr(capture->desc, attnum - 1);
	int			i = attnum - 1;

	if (one->isnull[i] || other->isnull[i])
		return one->isnull[i] && other->isnull[i];
	return outbox_same_value(one->values[i], other->values[i], att->attbyval,
							 att->attlen);
}

bool
outbox_capture_same_key(const Capture *capture, const CaptureImage *one,
						const CaptureImage *other)
{
	for (int i = 0; i < capture->nkey; i++)
		if (!outbox_capture_same(capture, capture->key[i], one, other))
			return false;
	return true;
}

bool
outbox_capture_unchanged(const Capture *capture, const CaptureImage *old,
						 const CaptureImage *new)
{
	for (int i = 0; i < capture->ncolumns; i++)
		if (!outbox_capture_same(capture, capture->columns[i], old, new))
			return false;
	return true;
}

/* --------------------------------------------------------------------- key */

static char *
key_text(Capture *capture, int i, const CaptureImage *image)
{
	int			attnum = capture->key[i];

	if (image->isnull[attnum - 1])
		return NULL;
	return OutputFunctionCall(&capture->key_out[i], image->values[attnum - 1]);
}

/*
 * One column as its text; several as a JSON array of their texts, in which no value
 * can be taken for two.  NULL: the row has no key.
 */
text *
outbox_capture_key(Capture *capture, const CaptureImage *image)
{
	StringInfoData json;
	char	   *value;

	if (capture->nkey == 0)
		return NULL;
	if (capture->nkey == 1)
	{
		value = key_text(capture, 0, image);
		return value == NULL ? NULL : cstring_to_text(value);
	}
	initStringInfo(&json);
	for (int i = 0; i < capture->nkey; i++)
	{
		appendStringInfoString(&json, i == 0 ? "[" : ", ");
		value = key_text(capture, i, image);
		if (value == NULL)
			appendStringInfoString(&json, "null");
		else
			escape_json(&json, value);
	}
	appendStringInfoChar(&json, ']');
	return cstring_to_text_with_len(json.data, json.len);
}

/* ----------------------------------------------------------------- payload */

static Datum
record_to_jsonb(Capture *capture, TupleDesc desc, Datum *values, bool *isnull)
{
	HeapTuple	tuple = heap_form_tuple(desc, values, isnull);

	return FunctionCall1(&capture->to_jsonb, HeapTupleGetDatum(tuple));
}

static Datum
row_to_jsonb(Capture *capture, const CaptureImage *image)
{
	Datum	   *values = palloc(sizeof(Datum) * Max(capture->ncolumns, 1));
	bool	   *isnull = palloc(sizeof(bool) * Max(capture->ncolumns, 1));

	for (int i = 0; i < capture->ncolumns; i++)
	{
		values[i] = image->values[capture->columns[i] - 1];
		isnull[i] = image->isnull[capture->columns[i] - 1];
	}
	return record_to_jsonb(capture, capture->columns_desc, values, isnull);
}

static bool
in_key(const Capture *capture, int attnum)
{
	for (int i = 0; i < capture->nkey; i++)
		if (capture->key[i] == attnum)
			return true;
	return false;
}

/*
 * Names of the columns that the payload of a change leaves out; NULL: none.  They
 * are taken out of the whole row's JSON, and not left out of the record: a row type of
 * its own for each set of columns would stay in the session for good.
 */
static ArrayType *
unchanged_names(const Capture *capture, const CaptureImage *old,
				const CaptureImage *new)
{
	Datum	   *names = palloc(sizeof(Datum) * Max(capture->ncolumns, 1));
	int			n = 0;

	for (int i = 0; i < capture->ncolumns; i++)
	{
		int			attnum = capture->columns[i];
		Form_pg_attribute att = TupleDescAttr(capture->desc, attnum - 1);

		if (!in_key(capture, attnum) &&
			outbox_capture_same(capture, attnum, old, new))
			names[n++] = CStringGetTextDatum(NameStr(att->attname));
	}
	if (n == 0)
		return NULL;
	return construct_array(names, n, TEXTOID, -1, false, TYPALIGN_INT);
}

static Datum
image_to_jsonb(Capture *capture, const CaptureImage *image, ArrayType *without)
{
	Datum		json = row_to_jsonb(capture, image);

	if (without == NULL)
		return json;
	return DirectFunctionCall2(jsonb_delete_array, json, PointerGetDatum(without));
}

static Datum
pair_to_jsonb(Capture *capture, const CaptureImage *old, const CaptureImage *new,
			  ArrayType *without)
{
	Datum		values[2] = {0, 0};
	bool		isnull[2] = {old == NULL, new == NULL};

	if (old != NULL)
		values[0] = image_to_jsonb(capture, old, without);
	if (new != NULL)
		values[1] = image_to_jsonb(capture, new, without);
	return record_to_jsonb(capture, capture->pair_desc, values, isnull);
}

Datum
outbox_capture_payload(Capture *capture, CaptureOp op, const CaptureImage *old,
					   const CaptureImage *new)
{
	CapturePayload payload = capture->args.payload;
	ArrayType  *without = NULL;

	if (op == CAPTURE_UPDATE &&
		(payload == CAPTURE_CHANGED || payload == CAPTURE_DIFF))
		without = unchanged_names(capture, old, new);
	if (payload == CAPTURE_BOTH || payload == CAPTURE_DIFF)
		return pair_to_jsonb(capture, old, new, without);
	return image_to_jsonb(capture, new != NULL ? new : old, without);
}
