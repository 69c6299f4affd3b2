/*-------------------------------------------------------------------------
 *
 * route_row.h
 *		Rows of the table outbox_route.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ROUTE_ROW_H
#define OUTBOX_ROUTE_ROW_H

#include "access/htup.h"
#include "access/tupdesc.h"
#include "route.h"

/* Columns of the table outbox_route, and of a row of all of them. */
typedef enum OutboxRouteColumn
{
	OUTBOX_ROUTE_BEFORE_ALL,
#define OUTBOX_ROUTE_SETTING(name, type)	OUTBOX_ROUTE_##name,
#define OUTBOX_ROUTE_ROLES(name, type)	OUTBOX_ROUTE_##name,
#define OUTBOX_ROUTE_NOTE(name, type)	OUTBOX_ROUTE_##name,
#include "route.def"
	OUTBOX_ROUTE_BEHIND_ALL
} OutboxRouteColumn;

#define OUTBOX_ROUTE_COLUMNS	(OUTBOX_ROUTE_BEHIND_ALL - 1)

/*
 * Makes *route of a row, whose name is not NULL.  Its strings are in cxt, as UTF-8 or in
 * the database's encoding; what else is allocated is in the current context.
 */
extern void outbox_route_load(OutboxRoute *route, HeapTuple tuple, TupleDesc desc,
							  MemoryContext cxt, bool utf8);

/* Frees what a load has put into a route, also when that has ended half way. */
extern void outbox_route_free_values(OutboxRoute *route);

#endif							/* OUTBOX_ROUTE_ROW_H */
