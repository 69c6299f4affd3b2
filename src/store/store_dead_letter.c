/*-------------------------------------------------------------------------
 *
 * store_dead_letter.c
 *		Messages that are given up, and go to the failed_route of their route.
 *
 * Such a row keeps its id: it becomes a message of the other route, with no
 * attempts, and a header says what has happened to it.  Its own routing key is not
 * for that route, whose template decides.  The row trigger gives it its place there,
 * and tells the worker that its new key belongs to.
 *
 * The row trigger shares the lock of the route that the message enters, so that whoever
 * removes this route waits for us (route_lock.c).  But what the relay knows of routes may
 * be older, so a target is looked up here: without it the row stays where it is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "store.h"
#include "store_internal.h"
#include "utils/builtins.h"

/* The newest death comes first, as in RabbitMQ's x-death. */
#define MOVE_SQL \
	"WITH l AS MATERIALIZED (SELECT id FROM outbox_internal.outbox WHERE id = ANY ($1)" \
	"  AND status = 'pending' FOR UPDATE SKIP LOCKED)" \
	" UPDATE outbox_internal.outbox o SET route = f.target, routing_key = NULL," \
	" attempts = 0, available_at = NULL, last_error = f.error, last_error_reason = f.last_reason," \
	" headers = coalesce(o.headers, '{}') || jsonb_build_object('" OUTBOX_DEATH_HEADER "'," \
	"  jsonb_build_array(jsonb_build_object('reason', f.reason, 'error', f.error," \
	"   'route', f.route, 'exchange', f.exchange, 'routing-key', f.routing_key," \
	"   'attempts', f.attempts, 'time', to_char(clock_timestamp()" \
	"    AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')))" \
	"  || CASE jsonb_typeof(o.headers -> '" OUTBOX_DEATH_HEADER "')" \
	"   WHEN 'array' THEN o.headers -> '" OUTBOX_DEATH_HEADER "' ELSE '[]' END)" \
	" FROM l JOIN ROWS FROM (unnest($1), unnest($2), unnest($3), unnest($4)," \
	"  unnest($5), unnest($6), unnest($7), unnest($8), unnest($9))" \
	"  AS f(id, target, error, reason, route, exchange, routing_key, attempts, last_reason)" \
	"  ON f.id = l.id" \
	"  JOIN outbox_internal.outbox_route r ON r.name = f.target AND r.relay <> 'cdc'" \
	" WHERE o.id = l.id RETURNING o.id"

enum
{
	MOVE_ID,
	MOVE_TARGET,
	MOVE_ERROR,
	MOVE_REASON,
	MOVE_ROUTE,
	MOVE_EXCHANGE,
	MOVE_ROUTING_KEY,
	MOVE_ATTEMPTS,
	MOVE_LAST_REASON,
	MOVE_COLUMNS
};

static const Oid elem_types[MOVE_COLUMNS] = {
	UUIDOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT4OID, TEXTOID
};
static const Oid array_types[MOVE_COLUMNS] = {
	UUIDARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID,
	TEXTARRAYOID, TEXTARRAYOID, INT4ARRAYOID, TEXTARRAYOID
};

void
outbox_store_move(const OutboxFailure *failures, int n)
{
	static OutboxStatement statement;
	Datum	   *columns[MOVE_COLUMNS];
	Datum		values[MOVE_COLUMNS];
	int			count = 0;

	for (int col = 0; col < MOVE_COLUMNS; col++)
		columns[col] = palloc(sizeof(Datum) * n);
	for (int i = 0; i < n; i++)
	{
		const OutboxDeath *death = failures[i].death;

		if (death == NULL)
			continue;
		columns[MOVE_ID][count] = UUIDPGetDatum(&failures[i].id);
		columns[MOVE_TARGET][count] = outbox_store_own_text(death->target);
		columns[MOVE_ERROR][count] = outbox_store_error(&failures[i]);
		columns[MOVE_LAST_REASON][count] = outbox_store_reason(&failures[i]);
		columns[MOVE_REASON][count] = outbox_store_own_text(death->reason);
		columns[MOVE_ROUTE][count] = outbox_store_own_text(death->route);
		columns[MOVE_EXCHANGE][count] = outbox_store_own_text(death->exchange);
		columns[MOVE_ROUTING_KEY][count] = outbox_store_own_text(death->routing_key);
		columns[MOVE_ATTEMPTS][count++] = Int32GetDatum(death->attempts);
	}
	for (int col = 0; col < MOVE_COLUMNS; col++)
		values[col] = outbox_store_array(columns[col], count, elem_types[col]);
	outbox_store_execute(outbox_store_plan(&statement,
										   MOVE_SQL,
										   MOVE_COLUMNS, array_types),
						 values, NULL, SPI_OK_UPDATE_RETURNING);
}
