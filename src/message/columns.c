/*-------------------------------------------------------------------------
 *
 * columns.c
 *		What columns.def says of each column, for those who ask at run time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "columns.h"

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
