/*-------------------------------------------------------------------------
 *
 * columns.c
 *		Columns of a message at run time: what columns.def says of them, the origin
 *		and the hash of the key.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "columns.h"
#include "common/hashfn.h"
#include "compat.h"
#include "fmgr.h"
#include "identity.h"
#include "message.h"
#include "miscadmin.h"

PG_FUNCTION_INFO_V1(outbox_origin);

#define COLUMN(NAME, name, TYPE, type, null, value, set_by, archive, relay) \
	{#name, OUTBOX_COLUMN_##null, OUTBOX_SET_BY_##set_by},

const OutboxColumn outbox_columns[OUTBOX_COLUMNS] = {
	OUTBOX_MESSAGE_COLUMNS(COLUMN, COLUMN)
};

#define TYPE_OF(NAME, name, TYPE, ...) TYPE##OID,

const Oid	outbox_column_types[OUTBOX_COLUMNS] = {
	OUTBOX_MESSAGE_COLUMNS(TYPE_OF, TYPE_OF)
};

/* store_settle_direct.c copies rows by the numbers of their columns. */
#define COMES_FIRST(NAME, name, TYPE, type, null, value, set_by, archive, relay) \
	OUTBOX_IF_ARCHIVED_##archive(StaticAssertDecl((int) COL_##NAME <= (int) OUTBOX_ARCHIVED_COLUMNS, \
												  #name " is archived, and a column before it is not");)

OUTBOX_MESSAGE_COLUMNS(COMES_FIRST, COMES_FIRST)

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

static uint64
hash_text(const text *value, uint64 seed)
{
	return hash_bytes_extended((const unsigned char *) VARDATA_ANY(value),
							   (int) VARSIZE_ANY_EXHDR(value), seed);
}

int64
outbox_hash_key(const text *route, const text *aggregate_type,
				const text *aggregate_id)
{
	uint64		seed = hash_text(route, 0);

	/* NULL and the empty string are two types. */
	if (aggregate_type != NULL)
		seed = hash_text(aggregate_type, seed) + 1;
	return (int64) hash_text(aggregate_id, seed);
}
