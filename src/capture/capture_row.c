/*-------------------------------------------------------------------------
 *
 * capture_row.c
 *		Key and changes of a row that outbox_capture() makes a message of.
 *
 * The values of a key become text by the output functions of their types.  What has
 * changed is told by the bytes of the values: no code of anybody's, and it knows every
 * type.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "capture_internal.h"
#include "compat.h"
#include "enqueue.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgtime.h"
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
outbox_capture_in_key(const Capture *capture, int attnum)
{
	for (int i = 0; i < capture->nkey; i++)
		if (capture->key[i] == attnum)
			return true;
	return false;
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
