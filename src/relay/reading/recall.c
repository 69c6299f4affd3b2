/*-------------------------------------------------------------------------
 *
 * recall.c
 *		Keys that are held and were forgotten, because there were too many.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "message.h"
#include "reading.h"

static int
compare_rows(const void *a, const void *b)
{
	const OutboxRecalled *left = a;
	const OutboxRecalled *right = b;
	int			keys = outbox_compare_keys(a, b);

	if (keys != 0)
		return keys;
	return left->seq < right->seq ? -1 : left->seq > right->seq;
}

/* Sorted, each key once, with its oldest row.  Returns how many. */
static int
sort_keys(OutboxRecalled *met, int n)
{
	int			count = 0;

	qsort(met, n, sizeof(OutboxRecalled), compare_rows);
	for (int i = 0; i < n; i++)
		if (count == 0 || outbox_compare_keys(&met[i], &met[count - 1]) != 0)
			met[count++] = met[i];
		else
			met[count - 1].due = Min(met[count - 1].due, met[i].due);
	return count;
}

typedef struct LookUp
{
	OutboxQueue *queue;
	OutboxRoutes *routes;
	OutboxRecalled *met;
	int			n;
} LookUp;

static OutboxRecalled *
find_met(const LookUp *look_up, const OutboxRow *row)
{
	OutboxKeyId key_id = {row->key_hash, outbox_routes_find(look_up->routes, row->route)};

	return bsearch(&key_id, look_up->met, look_up->n, sizeof(OutboxRecalled),
				   outbox_compare_keys);
}

/* OutboxRowVisit */
static void
visit_retry(const OutboxRow *row, void *arg)
{
	LookUp	   *look_up = arg;
	OutboxRecalled *key = find_met(look_up, row);

	if (key == NULL || !key->id.route->ordered)
		return;
	key->more_retries = key->waits;
	if (key->waits && key->retry_seq < row->seq)
		return;
	key->waits = true;
	key->retry = row->id;
	key->retry_seq = row->seq;
	key->retry_due = row->available_at;
}

/* OutboxRowVisit */
static void
visit_failed(const OutboxRow *row, void *arg)
{
	LookUp	   *look_up = arg;
	OutboxRecalled *key = find_met(look_up, row);

	if (key != NULL && row->seq < key->seq && outbox_route_blocks(key->id.route))
		key->is_held = true;
}

static void
add_met(OutboxBatch *batch, bool keyed, int64 hash, int64 seq, const char *route)
{
	OutboxKeyId id = {hash};
	OutboxRecalled *key;

	if (!keyed)
		return;
	id.route = outbox_routes_find(batch->routes, route);
	if (!id.route->ordered)
		return;
	key = &batch->recalled[batch->nrecalled++];
	memset(key, 0, sizeof(*key));
	key->id = id;
	key->seq = seq;
	key->known = outbox_queue_knows(batch->queue, id);
}

static void
collect_met(OutboxBatch *batch)
{
	ListCell   *cell;

	batch->recalled = palloc(sizeof(OutboxRecalled) *
							 (batch->count + list_length(batch->locked) + 1));
	for (int i = 0; i < batch->count; i++)
	{
		OutboxMessage *message = batch->messages[i];

		if (message != NULL)
			add_met(batch, message->aggregate_id != NULL, message->key_hash,
					message->seq, message->route);
	}
	foreach(cell, batch->locked)
	{
		const OutboxRow *row = lfirst(cell);

		add_met(batch, row->keyed, row->key_hash, row->seq, row->route);
	}
	batch->nrecalled = sort_keys(batch->recalled, batch->nrecalled);
}

/*
 * Do these have rows beside the one that was met, of those that were read before?  Older
 * and newer ones: what comes to the table later must wait for either.
 */
static void
find_rows(OutboxRecalled **keys, int n, int64 low, int64 end)
{
	int64	   *hashes = palloc(sizeof(int64) * 2 * n);
	const char **routes = palloc(sizeof(char *) * 2 * n);
	int64	   *los = palloc(sizeof(int64) * 2 * n);
	int64	   *his = palloc(sizeof(int64) * 2 * n);
	bool	   *found = palloc0(sizeof(bool) * 2 * n);

	for (int i = 0; i < n; i++)
	{
		hashes[2 * i] = hashes[2 * i + 1] = keys[i]->id.hash;
		routes[2 * i] = routes[2 * i + 1] = keys[i]->id.route->name;
		los[2 * i] = low;
		his[2 * i] = Min(keys[i]->seq, end) - 1;
		los[2 * i + 1] = Max(keys[i]->seq + 1, low);
		his[2 * i + 1] = end - 1;
	}
	outbox_store_find_keys(hashes, routes, los, his, 2 * n, found);
	for (int i = 0; i < n; i++)
		keys[i]->has_rows = found[2 * i] || found[2 * i + 1];
}

void
outbox_recall_look_up(OutboxBatch *batch, int64 end)
{
	LookUp		look_up = {.routes = batch->routes};
	OutboxRecalled **unknown;
	int64	   *hashes;
	const char **routes;
	int			n = 0;

	if (batch->queue->forgotten_low == 0)
		return;
	collect_met(batch);
	unknown = palloc(sizeof(OutboxRecalled *) * (batch->nrecalled + 1));
	hashes = palloc(sizeof(int64) * (batch->nrecalled + 1));
	routes = palloc(sizeof(char *) * (batch->nrecalled + 1));
	for (int i = 0; i < batch->nrecalled; i++)
		if (!batch->recalled[i].known)
		{
			hashes[n] = batch->recalled[i].id.hash;
			routes[n] = batch->recalled[i].id.route->name;
			unknown[n++] = &batch->recalled[i];
		}
	if (n == 0)
		return;
	find_rows(unknown, n, batch->queue->forgotten_low, end);
	look_up.met = batch->recalled;
	look_up.n = batch->nrecalled;
	outbox_store_visit_retries(hashes, routes, n, visit_retry, &look_up);
}

void
outbox_recall_begin(OutboxBatch *batch)
{
	for (int i = 0; i < batch->nrecalled; i++)
	{
		OutboxRecalled *key = &batch->recalled[i];

		outbox_queue_recall(batch->queue, key->id, key->has_rows,
							key->waits ? &key->retry : NULL, key->retry_seq,
							key->more_retries);
	}
}

void
outbox_recall_end(OutboxBatch *batch)
{
	for (int i = 0; i < batch->nrecalled; i++)
		outbox_queue_key_done(batch->queue, batch->recalled[i].id);
	batch->nrecalled = 0;
	outbox_queue_forget_held(batch->queue);
}

/* Looks up the rows that hold these keys.  Returns how many different keys there are. */
static int
look_up_holders(OutboxRoutes *routes, const OutboxUnreadable *unreadable,
				OutboxRecalled *met, int n)
{
	LookUp		look_up = {.routes = routes, .met = met};
	int64	   *hashes;
	const char **names;

	if (n == 0)
		return 0;
	n = look_up.n = sort_keys(met, n);
	hashes = palloc(sizeof(int64) * n);
	names = palloc(sizeof(char *) * n);
	for (int i = 0; i < n; i++)
	{
		hashes[i] = met[i].id.hash;
		names[i] = met[i].id.route->name;
	}
	outbox_store_visit_retries(hashes, names, n, visit_retry, &look_up);
	outbox_store_visit_failed(hashes, names, n, visit_failed, &look_up);
	for (int i = 0; i < n; i++)
		met[i].is_held |= outbox_unreadable_holds(unreadable, met[i].id, met[i].seq);
	return n;
}

void
outbox_recall_free(OutboxQueue *queue, OutboxRoutes *routes,
				   const OutboxUnreadable *unreadable, OutboxRecalled *met, int n)
{
	n = look_up_holders(routes, unreadable, met, n);
	for (int i = 0; i < n; i++)
		if (met[i].is_held || met[i].waits)
			outbox_queue_note_forgotten(queue, met[i].seq);
		else
			outbox_queue_recall(queue, met[i].id, true, NULL, 0, false);
}

TimestampTz
outbox_recall_free_due(OutboxQueue *queue, OutboxRoutes *routes,
					   const OutboxUnreadable *unreadable, OutboxRecalled *met, int n,
					   TimestampTz by)
{
	TimestampTz first = DT_NOEND;

	n = look_up_holders(routes, unreadable, met, n);
	for (int i = 0; i < n; i++)
		if (met[i].is_held || (met[i].waits && met[i].retry_due > by))
			outbox_queue_note_forgotten_due(queue);
		else
			first = Min(first, met[i].due);
	return first;
}

/* OutboxRowVisit */
static void
note_retry(const OutboxRow *row, void *arg)
{
	const LookUp *look_up = arg;
	OutboxQueue *queue = look_up->queue;
	OutboxKeyId key_id = {row->key_hash, outbox_routes_find(look_up->routes, row->route)};

	if (key_id.route->ordered && !outbox_queue_knows(queue, key_id))
		outbox_queue_note_forgotten(queue, row->seq);
}

void
outbox_recall_note_retries(OutboxQueue *queue, OutboxRoutes *routes)
{
	LookUp		look_up = {.queue = queue, .routes = routes};

	outbox_store_list_retries(MySlot->worker, MySlot->nworkers, note_retry, &look_up);
}
