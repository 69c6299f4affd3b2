/*-------------------------------------------------------------------------
 *
 * store_route.c
 *		Routes from their rows, for the relay and for sessions.
 *
 * A column that is NULL, although NOT NULL forbids it, has a value that holds messages
 * up rather than loses their order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "format.h"
#include "identity.h"
#include "mb/pg_wchar.h"
#include "route.h"
#include "route_row.h"
#include "store.h"
#include "store_internal.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

typedef struct Row
{
	HeapTuple	tuple;
	TupleDesc	desc;
	MemoryContext cxt;			/* of the route */
	bool		utf8;
} Row;

static Datum
get(const Row *row, OutboxRouteColumn column, bool *isnull)
{
	return heap_getattr(row->tuple, column, row->desc, isnull);
}

/* NULL for NULL; in the database's encoding, in the current context. */
static char *
get_text(const Row *row, OutboxRouteColumn column)
{
	bool		isnull;
	Datum		value = get(row, column, &isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}

static bool
is(const Row *row, OutboxRouteColumn column, const char *word)
{
	const char *text = get_text(row, column);

	return text != NULL && strcmp(text, word) == 0;
}

static char *
keep_text(const Row *row, OutboxRouteColumn column)
{
	char	   *text = get_text(row, column);

	if (text == NULL)
		return NULL;
	if (row->utf8)
		text = pg_server_to_any(text, (int) strlen(text), PG_UTF8);
	return MemoryContextStrdup(row->cxt, text);
}

static char *
keep_required_text(const Row *row, OutboxRouteColumn column)
{
	char	   *text = keep_text(row, column);

	return text != NULL ? text : MemoryContextStrdup(row->cxt, "");
}

static char *
keep_slot(const Row *row)
{
	bool		isnull;
	Datum		value = get(row, OUTBOX_ROUTE_SLOT, &isnull);

	return isnull ? NULL : MemoryContextStrdup(row->cxt, NameStr(*DatumGetName(value)));
}

static int
get_int(const Row *row, OutboxRouteColumn column, int if_null)
{
	bool		isnull;
	Datum		value = get(row, column, &isnull);

	return isnull ? if_null : DatumGetInt32(value);
}

static bool
get_bool(const Row *row, OutboxRouteColumn column)
{
	bool		isnull;
	Datum		value = get(row, column, &isnull);

	return !isnull && DatumGetBool(value);
}

/* In whole seconds, rounded up. */
static int
get_retention(const Row *row)
{
	bool		isnull;
	Datum		value = get(row, OUTBOX_ROUTE_RETENTION, &isnull);

	if (isnull)
		return -1;
	value = DirectFunctionCall2(extract_interval, CStringGetTextDatum("epoch"), value);
	return DatumGetInt32(DirectFunctionCall1(numeric_int4,
											 DirectFunctionCall1(numeric_ceil, value)));
}

static OutboxArchive
get_archive(const Row *row)
{
	return is(row, OUTBOX_ROUTE_ARCHIVE, "none") ? OUTBOX_ARCHIVE_NONE :
		is(row, OUTBOX_ROUTE_ARCHIVE, "metadata") ? OUTBOX_ARCHIVE_METADATA :
		OUTBOX_ARCHIVE_MESSAGE;
}

static OutboxNumbering
get_numbering(const Row *row)
{
	if (get_text(row, OUTBOX_ROUTE_SEQUENCE) == NULL)
		return OUTBOX_NUMBER_NONE;
	return is(row, OUTBOX_ROUTE_SEQUENCE, "key") ? OUTBOX_NUMBER_KEY : OUTBOX_NUMBER_SEQ;
}

/* One that has an error, past the CHECK, is broken, and refuses each message. */
static OutboxFormat *
make_format(const Row *row)
{
	bool		isnull;
	Datum		options = get(row, OUTBOX_ROUTE_FORMAT_OPTIONS, &isnull);

	return outbox_format_make(row->cxt, get_text(row, OUTBOX_ROUTE_FORMAT),
							  isnull ? NULL : DatumGetJsonbP(options), NULL);
}

void
outbox_route_load(OutboxRoute *route, HeapTuple tuple, TupleDesc desc,
				  MemoryContext cxt, bool utf8)
{
	Row			row = {tuple, desc, cxt, utf8};

	if (desc->natts < OUTBOX_ROUTE_COLUMNS)
		elog(ERROR, "outbox_route has %d columns", desc->natts);
	memset(route, 0, sizeof(*route));
	route->name = keep_text(&row, OUTBOX_ROUTE_NAME);
	route->shown = MemoryContextStrdup(cxt, get_text(&row, OUTBOX_ROUTE_NAME));
	route->exchange = keep_required_text(&row, OUTBOX_ROUTE_EXCHANGE);
	route->exchange_type = keep_text(&row, OUTBOX_ROUTE_EXCHANGE_TYPE);
	route->routing_key = keep_required_text(&row, OUTBOX_ROUTE_ROUTING_KEY);
	route->format = make_format(&row);
	route->max_attempts = get_int(&row, OUTBOX_ROUTE_MAX_ATTEMPTS, 1);
	route->failed_route = keep_text(&row, OUTBOX_ROUTE_FAILED_ROUTE);
	route->pipelined = is(&row, OUTBOX_ROUTE_ORDERING, "pipelined");
	route->ordered = !is(&row, OUTBOX_ROUTE_ORDERING, "none");
	route->block_on_failed = is(&row, OUTBOX_ROUTE_ON_FAILED, "block");
	route->paused = get_bool(&row, OUTBOX_ROUTE_PAUSED);
	route->numbering = get_numbering(&row);
	route->outlet = outbox_outlet_find(get_text(&row, OUTBOX_ROUTE_RELAY));
	route->slot = keep_slot(&row);
	route->max_pending = get_int(&row, OUTBOX_ROUTE_MAX_PENDING, 0);
	route->retention_s = get_retention(&row);
	route->archive = get_archive(&row);
}

static void
free_text(char *text)
{
	if (text != NULL)
		pfree(text);
}

void
outbox_route_free_values(OutboxRoute *route)
{
	free_text(route->name);
	free_text(route->shown);
	free_text(route->exchange);
	free_text(route->exchange_type);
	free_text(route->routing_key);
	free_text(route->failed_route);
	free_text(route->slot);
	outbox_format_free(route->format);
}

/*
 * Of all that the row says.  A row that is what it was costs no more than this, so that
 * a change of one route does not cost what all of them do.
 */
static uint64
version_of(HeapTuple tuple)
{
	const char *data = (const char *) tuple->t_data;
	Size		from = offsetof(HeapTupleHeaderData, t_bits);

	return hash_bytes_extended((const unsigned char *) data + from,
							   (int) (tuple->t_len - from), 0);
}

static char *
utf8_name(HeapTuple tuple, TupleDesc desc)
{
	char	   *name = SPI_getvalue(tuple, desc, OUTBOX_ROUTE_NAME);

	return pg_server_to_any(name, (int) strlen(name), PG_UTF8);
}

/* The route is in the list before it is loaded. */
static void
load_route(List **routes, HeapTuple tuple, TupleDesc desc, uint64 version,
		   MemoryContext cxt)
{
	OutboxRoute *route;
	MemoryContext old = MemoryContextSwitchTo(cxt);

	route = palloc0(sizeof(OutboxRoute));
	*routes = lappend(*routes, route);
	MemoryContextSwitchTo(old);
	outbox_route_load(route, tuple, desc, cxt, true);
	route->version = version;
}

static void
load_changed(List **routes, MemoryContext cxt, OutboxRouteLoaded loaded, void *arg)
{
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		HeapTuple	tuple = SPI_tuptable->vals[row];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		uint64		version = version_of(tuple);

		if (loaded == NULL || !loaded(utf8_name(tuple, desc), version, arg))
			load_route(routes, tuple, desc, version, cxt);
	}
}

/* Of a load that has failed: the worker will try again and again. */
static void
free_loaded(List *routes)
{
	ListCell   *cell;

	foreach(cell, routes)
		outbox_route_free_values(lfirst(cell));
	list_free_deep(routes);
}

List *
outbox_store_load_routes(MemoryContext cxt, OutboxRouteLoaded loaded, void *arg)
{
	static OutboxStatement statement = {
		"SELECT r.* FROM outbox_internal.outbox_route r WHERE r.name IS NOT NULL",
		SPI_OK_SELECT
	};
	List	  **routes = palloc0(sizeof(List *));

	outbox_store_run(&statement, NULL);
	PG_TRY();
	{
		load_changed(routes, cxt, loaded, arg);
	}
	PG_CATCH();
	{
		free_loaded(*routes);
		PG_RE_THROW();
	}
	PG_END_TRY();
	return *routes;
}
