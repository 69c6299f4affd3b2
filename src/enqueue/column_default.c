/*-------------------------------------------------------------------------
 *
 * column_default.c
 *		The default of a column, for a row that comes without its value.
 *
 * Mappers name each column in an INSERT, also those that nobody has set, so the
 * server's own default does not apply.  It is what the catalog says at the moment,
 * evaluated as the one who INSERTs, as the server would.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "column_default.h"
#include "executor/executor.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"

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
