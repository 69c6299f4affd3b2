/*-------------------------------------------------------------------------
 *
 * printable_text.c
 *		printable.h for values of type text.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "compat.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "printable.h"
#include "printable_text.h"
#include "utils/builtins.h"

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
