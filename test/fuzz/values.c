/*-------------------------------------------------------------------------
 *
 * values.c
 *		Values of the server's types, as far as batch elements and the arguments of
 *		capture use them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "nodes/pg_list.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/uuid.h"
#include "utils/varlena.h"

#include "pg.h"

/* -------------------------------------------------------------------- texts */

text *
cstring_to_text_with_len(const char *s, int len)
{
	text	   *result = palloc(len + VARHDRSZ);

	SET_VARSIZE(result, len + VARHDRSZ);
	memcpy(VARDATA(result), s, len);
	return result;
}

text *
cstring_to_text(const char *s)
{
	return cstring_to_text_with_len(s, strlen(s));
}

char *
text_to_cstring(const text *t)
{
	return pnstrdup(VARDATA_ANY(t), VARSIZE_ANY_EXHDR(t));
}

int
pg_mbcliplen(const char *mbstr, int len, int limit)
{
	int			at = 0;

	while (at < len)
	{
		int			one = fuzz_encoding == PG_UTF8 ? pg_utf_mblen((const unsigned char *) mbstr + at) : 1;

		if (at + one > Min(len, limit))
			break;
		at += one;
	}
	return at;
}

/* -------------------------------------------------------------------- calls */

Datum
DirectFunctionCall2Coll(PGFunction func, Oid collation, Datum arg1, Datum arg2)
{
	return DirectFunctionCall3Coll(func, collation, arg1, arg2, (Datum) 0);
}

Datum
DirectFunctionCall3Coll(PGFunction func, Oid collation, Datum arg1, Datum arg2, Datum arg3)
{
	LOCAL_FCINFO(fcinfo, 3);
	Datum		args[] = {arg1, arg2, arg3};

	InitFunctionCallInfoData(*fcinfo, NULL, 3, collation, NULL, NULL);
	for (int i = 0; i < 3; i++)
	{
		fcinfo->args[i].value = args[i];
		fcinfo->args[i].isnull = false;
	}
	return func(fcinfo);
}

/*
 * The server's input functions are not what is tried here: these take what is
 * all of one kind of character, as bytes, and refuse the rest as those do.
 */
static Datum
all_of(const char *characters, const char *text, size_t len, int sqlstate)
{
	for (size_t i = 0; i < len; i++)
		if (text[i] == '\0' || strchr(characters, text[i]) == NULL)
			ereport(ERROR, (errcode(sqlstate), errmsg("invalid input")));
	return PointerGetDatum(cstring_to_text_with_len(text, len));
}

Datum
binary_decode(PG_FUNCTION_ARGS)
{
	text	   *data = PG_GETARG_TEXT_PP(0);

	return all_of(FUZZ_BASE64, VARDATA_ANY(data), VARSIZE_ANY_EXHDR(data),
				  ERRCODE_INVALID_PARAMETER_VALUE);
}

Datum
timestamptz_in(PG_FUNCTION_ARGS)
{
	char	   *text = PG_GETARG_CSTRING(0);

	fuzz_check(PG_GETARG_INT32(2) == -1, "a typmod");
	return all_of(FUZZ_TIME, text, strlen(text), ERRCODE_INVALID_DATETIME_FORMAT);
}

/* Of an element JSON is there already. */
Datum
jsonb_in(PG_FUNCTION_ARGS)
{
	pg_unreachable();
}

Datum
uuid_in(PG_FUNCTION_ARGS)
{
	char	   *text = PG_GETARG_CSTRING(0);

	return all_of(FUZZ_UUID, text, strlen(text), ERRCODE_INVALID_TEXT_REPRESENTATION);
}

struct varlena *
pg_detoast_datum_packed(struct varlena *datum)
{
	return datum;
}

/* -------------------------------------------------------------------- lists */

static List *
append(List *list, void *datum)
{
	if (list == NIL)
	{
		list = palloc0(sizeof(List));
		list->type = T_List;
		list->elements = palloc(sizeof(ListCell) * FUZZ_LIST);
	}
	fuzz_check(list->length < FUZZ_LIST, "a long list");
	lfirst(&list->elements[list->length++]) = datum;
	return list;
}

static void
skip_blanks(char **p)
{
	while (isspace((unsigned char) **p))
		(*p)++;
}

/* An identifier, quoted or not; false: there is none. */
static bool
take_identifier(char **p, char separator, char **name)
{
	char	   *to = *name = palloc(strlen(*p) + 1);

	if (**p == '"')
	{
		(*p)++;
		while (**p != '\0' && (**p != '"' || *++*p == '"'))
			*to++ = *(*p)++;
		*to = '\0';
		return (*p)[-1] == '"' && to > *name;
	}
	while (**p != '\0' && **p != separator && !isspace((unsigned char) **p))
		*to++ = pg_tolower((unsigned char) *(*p)++);
	*to = '\0';
	return to > *name;
}

/* As varlena.c's, but that names are not cut. */
bool
SplitIdentifierString(char *rawstring, char separator, List **namelist)
{
	char	   *p = rawstring;

	*namelist = NIL;
	skip_blanks(&p);
	if (*p == '\0')
		return true;
	for (;;)
	{
		char	   *name;

		if (!take_identifier(&p, separator, &name))
			return false;
		*namelist = append(*namelist, name);
		skip_blanks(&p);
		if (*p == '\0')
			return true;
		if (*p++ != separator)
			return false;
		skip_blanks(&p);
	}
}
