/*-------------------------------------------------------------------------
 *
 * trigger_support.c
 *		Help for trigger functions: their event, a restore, types and values of columns.
 *
 * A role with EXECUTE on a trigger function may put it where it has no row to look at.
 * An administrator may change the type of a column, and a value of another type read as
 * the one that we know would crash the server.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "enqueue_internal.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

PG_FUNCTION_INFO_V1(outbox_restoring);

TriggerData *
outbox_fired(FunctionCallInfo fcinfo, const char *function)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by a trigger", function)));
	return (TriggerData *) fcinfo->context;
}

TriggerData *
outbox_fired_before_row(FunctionCallInfo fcinfo, const char *function)
{
	TriggerData *trigdata = outbox_fired(fcinfo, function);

	if (!TRIGGER_FIRED_BEFORE(trigdata->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigdata->tg_event) ||
		TRIGGER_FIRED_BY_DELETE(trigdata->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired BEFORE INSERT OR UPDATE FOR EACH ROW",
						function)));
	return trigdata;
}

TriggerData *
outbox_fired_after_row(FunctionCallInfo fcinfo, const char *function)
{
	TriggerData *trigdata = outbox_fired(fcinfo, function);

	if (!TRIGGER_FIRED_AFTER(trigdata->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigdata->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired AFTER INSERT, UPDATE OR DELETE FOR EACH ROW",
						function)));
	return trigdata;
}

/*
 * A restore meets the rows that CREATE EXTENSION has made and loads others in their
 * place, and names roles that this server need not have; from anyone else both are
 * mistakes.  pg_dump begins its scripts with check_function_bodies off and an empty
 * search_path, and pg_restore each of its connections.  No one has both by chance.
 *
 * What counts is the search_path of the moment: not to be called in a function that sets
 * it.  And both are the caller's to set, so it is no restore where a SECURITY DEFINER
 * function lends him the rights of another.  Nor is it one where check_function_bodies is
 * off unless the session sets it: by ALTER DATABASE a database's owner sets both for all.
 */
bool
outbox_in_restore(void)
{
	return !check_function_bodies && namespace_search_path[0] == '\0' &&
		!InLocalUserIdChange() &&
		strcmp(GetConfigOptionResetString("check_function_bodies"), "on") == 0;
}

/*
 * Anyone may set what a restore sets.  Only the owner's rights, which superusers have,
 * allow to leave out what the owner's triggers do.
 */
bool
outbox_restored_by(Oid owner)
{
	return outbox_in_restore() && has_privs_of_role(GetUserId(), owner);
}

/* For WHEN clauses of triggers, which see the search_path of the statement. */
Datum
outbox_restoring(PG_FUNCTION_ARGS)
{
	(void) fcinfo;
	PG_RETURN_BOOL(outbox_in_restore());
}

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
