/*-------------------------------------------------------------------------
 *
 * printable_text.c
 *		printable.c for text of the database, and as a function of SQL.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "printable.h"
#include "compat.h"
#include "printable_text.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(outbox_printable);

char *
outbox_printable_string(const char *str, size_t len)
{
	char		shown[OUTBOX_PRINTABLE_SIZE];

	outbox_copy_printable(shown, sizeof(shown), str, len, GetDatabaseEncoding(), "");
	return pstrdup(shown);
}

char *
outbox_printable_text(Datum value)
{
	text	   *begin = DatumGetTextPSlice(value, 0, OUTBOX_PRINTABLE_SIZE +
													MAX_MULTIBYTE_CHAR_LEN);

	return outbox_printable_string(VARDATA_ANY(begin), VARSIZE_ANY_EXHDR(begin));
}

Datum
outbox_printable(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(outbox_printable_text(PG_GETARG_DATUM(0))));
}

char *
outbox_printable_utf8(char *text)
{
	int			encoding = GetDatabaseEncoding();
	int			len = (int) strlen(text);
	int			size = len * MAX_CONVERSION_GROWTH + 1;
	char	   *utf8;
	Oid			proc;

	if (encoding == PG_UTF8 || encoding == PG_SQL_ASCII)
		return text;
	proc = FindDefaultConversionProc(encoding, PG_UTF8);
	utf8 = palloc0(size);
	if (OidIsValid(proc) &&
		pg_do_encoding_conversion_buf(proc, encoding, PG_UTF8, (unsigned char *) text, len,
									  (unsigned char *) utf8, size, true) == len)
		return utf8;
	outbox_mask_bytes(text);
	return text;
}
