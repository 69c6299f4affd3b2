/*-------------------------------------------------------------------------
 *
 * column_types.c
 *		Types of columns, for triggers that take them for granted.
 *
 * An administrator may change the type of a column, and a value of another type
 * read as the one that we know would crash the server.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "column_types.h"
#include "columns.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

static bool
is_as(Oid found, Oid expected)
{
	return found == expected || (expected == TEXTOID && found == VARCHAROID);
}

static void
expect_column(TupleDesc desc, int col, Oid type, const char *table)
{
	Form_pg_attribute att = TupleDescAttr(desc, col - 1);

	if (is_as(att->atttypid, type))
		return;
	if (att->attisdropped || !is_as(getBaseType(att->atttypid), type))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column %d of table \"%s\" is not what the extension \"outbox\" has made",
						col, table),
				 errdetail("Its type must be %s.", format_type_be(type)),
				 errhint("Undo the change of the column; columns of your own may be added behind it.")));
}

void
outbox_expect_columns(TupleDesc desc, const Oid *types, int n,
					  const char *table)
{
	if (desc->natts < n)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("table \"%s\" does not have the columns that the extension \"outbox\" has made",
						table),
				 errdetail("It must have %d columns or more, and has %d.", n, desc->natts)));
	for (int i = 0; i < n; i++)
		expect_column(desc, i + 1, types[i], table);
}

void
outbox_expect_message_columns(TupleDesc desc, const char *table)
{
	outbox_expect_columns(desc, outbox_column_types, OUTBOX_COLUMNS, table);
}
