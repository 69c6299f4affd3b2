/*-------------------------------------------------------------------------
 *
 * column_values.c
 *		Types, defaults and equal values of columns, for triggers and INSERTs.
 *
 * An administrator may change the type of a column, and a value of another type
 * read as the one that we know would crash the server.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "columns.h"
#include "compat.h"
#include "enqueue.h"
#include "enqueue_internal.h"
#include "executor/executor.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "utils/builtins.h"
#include "utils/datum.h"
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

/*
 * The default of a column, for a row that comes without its value.
 *
 * Mappers name each column in an INSERT, also those that nobody has set, so the
 * server's own default does not apply.  It is what the catalog says at the moment,
 * evaluated as the one who INSERTs, as the server would.
 */

bool
outbox_column_default(Relation rel, int col, Datum *value)
{
	Expr	   *expr = (Expr *) build_column_default(rel, col);
	ExprContext *econtext;
	bool		isnull;

	if (expr == NULL)
		return false;
	econtext = CreateStandaloneExprContext();
	/* In our own memory context: the value has to outlive econtext. */
	*value = ExecEvalExpr(ExecInitExpr(expression_planner(expr), NULL),
						  econtext, &isnull);
	FreeExprContext(econtext, true);
	return !isnull;
}

/*
 * Is a value of a row still what it was?
 */

/* A large value that an UPDATE leaves alone stays where it is: no need to fetch it. */
static bool
same_place(Datum one, Datum other)
{
	struct varlena *a = (struct varlena *) DatumGetPointer(one);
	struct varlena *b = (struct varlena *) DatumGetPointer(other);

	return VARATT_IS_EXTERNAL_ONDISK(a) && VARATT_IS_EXTERNAL_ONDISK(b) &&
		memcmp(a, b, VARSIZE_EXTERNAL(a)) == 0;
}

bool
outbox_same_value(Datum one, Datum other, bool byval, int16 len)
{
	return (len == -1 && same_place(one, other)) ||
		datum_image_eq(one, other, byval, len);
}
