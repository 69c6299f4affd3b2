/*-------------------------------------------------------------------------
 *
 * printable_text.c
 *		printable.h for values of type text.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

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

Datum
outbox_printable(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(outbox_printable_text(PG_GETARG_DATUM(0)));
}
