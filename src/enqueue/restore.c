/*-------------------------------------------------------------------------
 *
 * restore.c
 *		Whether this session restores a dump.
 *
 * A restore meets the rows that CREATE EXTENSION has made and loads others in
 * their place, and names roles that this server need not have.  From anybody
 * else both are mistakes, so the two have to be told apart.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "restore.h"
#include "utils/guc.h"

PG_FUNCTION_INFO_V1(outbox_restoring);

/*
 * pg_dump begins its scripts with check_function_bodies off and an empty
 * search_path, and pg_restore each of its connections.  Nobody has both by
 * chance.
 *
 * What counts is the search_path of the moment: not to be called in a function
 * that sets it.  And both are the caller's to set, so it is no restore where a
 * SECURITY DEFINER function lends him the rights of another.
 */
bool
outbox_in_restore(void)
{
	return !check_function_bodies && namespace_search_path[0] == '\0' &&
		!InLocalUserIdChange();
}

/* For WHEN clauses of triggers, which see the search_path of the statement. */
Datum
outbox_restoring(PG_FUNCTION_ARGS)
{
	(void) fcinfo;
	PG_RETURN_BOOL(outbox_in_restore());
}
