/*-------------------------------------------------------------------------
 *
 * origin.c
 *		Where a message was enqueued.
 *
 * Rows reach a database in ways that tell nobody that they are copies: a
 * restore loads them before the control row, logical replication brings them
 * one by one.  So each row says itself whose it is, and the relay asks each.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "origin.h"

PG_FUNCTION_INFO_V1(outbox_origin);

/*
 * One number, because it is stored in each row.  That two databases that
 * exchange rows have the same one is as unlikely as 1 to 2^64.
 */
int64
outbox_origin_of(uint64 server, Oid database)
{
	return (int64) hash_bytes_extended((const unsigned char *) &server,
									   sizeof(server), database);
}

int64
outbox_own_origin(void)
{
	static int64 origin;
	static Oid	computed_for = InvalidOid;

	if (computed_for != MyDatabaseId)
	{
		origin = outbox_origin_of(GetSystemIdentifier(), MyDatabaseId);
		computed_for = MyDatabaseId;
	}
	return origin;
}

Datum
outbox_origin(PG_FUNCTION_ARGS)
{
	(void) fcinfo;
	PG_RETURN_INT64(outbox_own_origin());
}
