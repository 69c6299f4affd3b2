/*-------------------------------------------------------------------------
 *
 * queue.c
 *		Messages that this worker has claimed, and the order of keys.
 *
 * See queue.h for the states.  All of it is memory of one process: when it
 * dies, every message is a row again that the next worker finds.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "queue.h"
#include "settings.h"
#include "shared.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

typedef struct ItemEntry
{
	pg_uuid_t	id;				/* MUST BE FIRST: key of the hash table */
	int			claim_index;	/* in MySlot->claims */
	OutboxItem *item;			/* NULL: claimed, not admitted yet */
} ItemEntry;

static void
init_hash(HTAB **table, const char *name, Size keysize, Size entrysize,
		  MemoryContext cxt)
{
	HASHCTL		ctl;

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = keysize;
	ctl.entrysize = entrysize;
	ctl.hcxt = cxt;
	*table = hash_create(name, 1024, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

OutboxQueue *
outbox_queue_create(MemoryContext parent)
{
	OutboxQueue *queue = MemoryContextAllocZero(parent, sizeof(OutboxQueue));

	queue->cxt = AllocSetContextCreate(parent, "outbox queue",
									   ALLOCSET_DEFAULT_SIZES);
	queue->message_cxt = AllocSetContextCreate(parent, "outbox messages",
											   ALLOCSET_DEFAULT_SIZES);
	init_hash(&queue->items, "outbox items", sizeof(pg_uuid_t),
			  sizeof(ItemEntry), queue->cxt);
	/* Without what follows the pointer, where that is shorter than the hash. */
	init_hash(&queue->keys, "outbox keys",
			  offsetof(OutboxKeyId, route) + sizeof(OutboxRoute *), sizeof(OutboxKey),
			  queue->cxt);
	dlist_init(&queue->ready);
	dlist_init(&queue->confirmed);
	dlist_init(&queue->rejected);
	dlist_init(&queue->held);
	dlist_init(&queue->reread);
	dlist_init(&queue->large);
	queue->free_claims = MemoryContextAlloc(parent,
											sizeof(int) * OUTBOX_MAX_CLAIMS);
	for (int i = 0; i < OUTBOX_MAX_CLAIMS; i++)
		queue->free_claims[i] = OUTBOX_MAX_CLAIMS - 1 - i;
	queue->nfree_claims = OUTBOX_MAX_CLAIMS;
	return queue;
}

/* ------------------------------------------------- claims in shared memory */

static uint64
make_claim(const pg_uuid_t *id, bool in_flight)
{
	uint64		hash = DatumGetUInt64(DirectFunctionCall2(uuid_hash_extended,
														  UUIDPGetDatum(id),
														  Int64GetDatum(0)));

	return OUTBOX_CLAIM(hash, in_flight);
}

static void
set_claim(int index, const pg_uuid_t *id, bool in_flight)
{
	pg_atomic_write_u64(&MySlot->claims[index], make_claim(id, in_flight));
}

void
outbox_queue_take_claim(OutboxQueue *queue, const pg_uuid_t *id)
{
	bool		found PG_USED_FOR_ASSERTS_ONLY;
	ItemEntry  *entry;

	if (queue->nfree_claims == 0)
		elog(ERROR, "out of claim entries");
	entry = hash_search(queue->items, id, HASH_ENTER, &found);
	Assert(!found);
	entry->item = NULL;
	entry->claim_index = queue->free_claims[--queue->nfree_claims];
	set_claim(entry->claim_index, id, false);
}

void
outbox_queue_return_claim(OutboxQueue *queue, const pg_uuid_t *id)
{
	ItemEntry  *entry = hash_search(queue->items, id, HASH_REMOVE, NULL);

	pg_atomic_write_u64(&MySlot->claims[entry->claim_index], 0);
	queue->free_claims[queue->nfree_claims++] = entry->claim_index;
}

static void
count_items(OutboxQueue *queue)
{
	pg_atomic_write_u32(&MySlot->counters.claimed, queue->count);
	pg_atomic_write_u32(&MySlot->counters.in_flight,
						queue->nsent + queue->nconfirmed + queue->nrejected);
	pg_atomic_write_u32(&MySlot->counters.locked, queue->nlocked);
}

/* -------------------------------------------------------------------- keys */

int
outbox_compare_keys(const void *a, const void *b)
{
	const OutboxKeyId *left = a;
	const OutboxKeyId *right = b;

	if (left->hash != right->hash)
		return left->hash < right->hash ? -1 : 1;
	return left->route < right->route ? -1 : left->route > right->route;
}

static OutboxKey *
known_key(OutboxQueue *queue, OutboxKeyId key_id)
{
	return hash_search(queue->keys, &key_id, HASH_FIND, NULL);
}

static OutboxKey *
find_key(OutboxQueue *queue, OutboxKeyId key_id)
{
	bool		found;
	OutboxKey  *key = hash_search(queue->keys, &key_id, HASH_ENTER, &found);

	if (!found)
	{
		memset(key, 0, sizeof(OutboxKey));
		key->id = key_id;
		key->id.route->nkeys++;
		dlist_init(&key->going);
		dlist_init(&key->waiting);
		key->skip_low = queue->forgotten_low;
		key->due_left = PG_INT64_MAX;
	}
	return key;
}

static void
forget_key(OutboxQueue *queue, OutboxKey *key)
{
	key->id.route->nkeys--;
	hash_search(queue->keys, &key->id, HASH_REMOVE, NULL);
}

static void
list_key(OutboxQueue *queue, OutboxKey *key, int list)
{
	if ((int) key->list == list)
		return;
	if (key->list != OUTBOX_KEY_UNLISTED)
		dlist_delete(&key->node);
	queue->nheld += (list == OUTBOX_KEY_HELD) - (key->list == OUTBOX_KEY_HELD);
	queue->nreread += (list == OUTBOX_KEY_REREAD) - (key->list == OUTBOX_KEY_REREAD);
	key->list = list;
	if (list == OUTBOX_KEY_HELD)
	{
		dlist_push_tail(&queue->held, &key->node);
		queue->nunchecked += queue->nunchecked > 0;
	}
	else if (list == OUTBOX_KEY_REREAD)
		dlist_push_tail(&queue->reread, &key->node);
	else if (list == OUTBOX_KEY_LARGE)
		dlist_push_tail(&queue->large, &key->node);
}

/*
 * Why the key cannot go on, or that it can: the only writer of key->hold.  A row
 * that somebody has locked is no reason where there is one already.
 */
static void
set_hold(OutboxKey *key, OutboxHoldReason reason)
{
	Assert(reason != OUTBOX_HOLD_LOCKED || key->hold == OUTBOX_HOLD_NONE);
	key->hold = reason;
}

/* Is a row of that number behind one that has failed? */
static bool
is_blocked(const OutboxKey *key, int64 seq)
{
	return key->blocked && seq > key->failed.seq;
}

/* The macros of older servers want a list that is not const. */
static bool
nothing_goes(const OutboxKey *key)
{
	return key->going.head.next == &key->going.head;
}

static OutboxItem *
going_item(dlist_node *node)
{
	return dlist_container(OutboxItem, going_node, node);
}

/* The first one that is not settled; NULL if none. */
static OutboxItem *
head_of(const OutboxKey *key)
{
	return nothing_goes(key) ? NULL : going_item(key->going.head.next);
}

static OutboxItem *
last_of(const OutboxKey *key)
{
	return nothing_goes(key) ? NULL : going_item(key->going.head.prev);
}

/* The one behind it, or NULL. */
static OutboxItem *
next_of(const OutboxItem *item)
{
	return item->going_node.next == &item->key->going.head ? NULL :
		going_item(item->going_node.next);
}

static OutboxItem *
at_front(const dlist_head *list)
{
	return dlist_container(OutboxItem, node, list->head.next);
}

/* It cannot go on before somebody else's transaction has ended. */
static bool
head_is_locked(const OutboxKey *key)
{
	const OutboxItem *head = head_of(key);

	return head != NULL && head->locked;
}

/* May it be sent while another one of its key is not settled? */
static bool
is_pipelined(const OutboxItem *item)
{
	return item->route->pipelined && item->message->attempts == 0;
}

/*
 * Half of what a worker has in flight, and in memory: one of them that is not answered
 * leaves the rest to other keys.
 */
static bool
goes_much(const OutboxKey *key)
{
	return key->ngoing >= outbox_window / 2 || key->going_bytes >= OUTBOX_WAITING_BYTES;
}

/* May another one be sent as soon as there is room, without a settling before? */
static bool
is_together(const OutboxKey *key)
{
	return is_pipelined(last_of(key)) && key->refused == NULL && !key->next_alone &&
		!head_is_locked(key);
}

/* May another one be sent behind those that are not settled? */
static bool
is_open(const OutboxKey *key)
{
	return nothing_goes(key) || (is_together(key) && !goes_much(key));
}

static bool
may_join(const OutboxKey *key, const OutboxItem *item)
{
	return nothing_goes(key) ||
		(is_open(key) && is_pipelined(item) &&
		 last_of(key)->message->seq <= item->message->seq);
}

/* goes_to(): no row, and none but the one that the key waits for. */
#define GOES_NONE	PG_INT64_MIN
#define GOES_RETRY	(PG_INT64_MIN + 1)

/* Rows of the key up to that number go, as far as what holds it is concerned. */
static int64
goes_to(const OutboxKey *key)
{
	int64		to = key->blocked ? key->failed.seq : PG_INT64_MAX;

	if (head_is_locked(key))
		return GOES_NONE;
	if (key->hold == OUTBOX_HOLD_LOCKED)
		return Min(to, key->skip_low);
	if (key->hold == OUTBOX_HOLD_RETRY && !is_blocked(key, key->retry.seq))
		/* When others of it are not answered yet, it comes again. */
		return nothing_goes(key) ? GOES_RETRY : GOES_NONE;
	return to;
}

/* A row of it whose time has come is only in the table, and no list leads to it. */
static void
leave_due(OutboxKey *key, int64 seq)
{
	key->due_left = Min(key->due_left, seq > goes_to(key) ? goes_to(key) : GOES_NONE);
}

/* The item is going to be nothing but a row. */
static void
leave_item(OutboxKey *key, const OutboxItem *item)
{
	outbox_lower(&key->skip_low, item->message->seq);
	if (item->message->available_at != 0)
		leave_due(key, item->message->seq);
}

/*
 * Those rows are read again, once, when others of the key go than when they were left.
 * Where keys are forgotten, what holds a key that is done may have been, too: not at
 * once.
 */
static void
free_due(OutboxQueue *queue, OutboxKey *key, bool done)
{
	int64		to = goes_to(key);

	if (key->due_left == PG_INT64_MAX ||
		(to == GOES_RETRY ? key->due_left == to : key->due_left >= to))
		return;
	key->due_left = PG_INT64_MAX;
	if (done && queue->forgotten_low != 0)
		queue->due_forgotten = queue->pass_wanted = true;
	else
		queue->due_freed = true;
}

/*
 * Puts the key where its state belongs.  What is older than a failed row is read again
 * while the row holds the rest.
 */
static void
place_in_list(OutboxQueue *queue, OutboxKey *key)
{
	bool		reads = key->skip_low != 0 && key->skip_low < goes_to(key);

	if (reads && key->nwaiting == 0)
		list_key(queue, key, OUTBOX_KEY_REREAD);
	else if (key->hold != OUTBOX_HOLD_NONE || key->blocked || head_is_locked(key))
		list_key(queue, key, OUTBOX_KEY_HELD);
	else if (reads && key->large)
		list_key(queue, key, OUTBOX_KEY_LARGE);
	else
		list_key(queue, key, OUTBOX_KEY_UNLISTED);
}

/* Forgets one that has nothing left, too. */
static void
place_key(OutboxQueue *queue, OutboxKey *key)
{
	bool		done;

	place_in_list(queue, key);
	done = key->list == OUTBOX_KEY_UNLISTED && key->skip_low == 0 &&
		nothing_goes(key) && key->nwaiting == 0;
	free_due(queue, key, done);
	if (done)
		forget_key(queue, key);
}

/* ------------------------------------------------------------------- items */

#ifdef USE_ASSERT_CHECKING
#define FROM(state)	(1 << OUTBOX_ITEM_##state)

/* What an item may have been before; the diagram is in queue.h. */
static const int may_come_from[] = {
	/* The last two: the answer does not count, see queue.h. */
	[OUTBOX_ITEM_READY] = FROM(CLAIMED) | FROM(WAITING) | FROM(SENT) | FROM(CONFIRMED) | FROM(REJECTED),
	[OUTBOX_ITEM_WAITING] = FROM(CLAIMED),
	[OUTBOX_ITEM_SENT] = FROM(READY),
	[OUTBOX_ITEM_CONFIRMED] = FROM(SENT),
	[OUTBOX_ITEM_REJECTED] = FROM(SENT) | FROM(READY),
	/* What is SENT may be at the broker: it cannot be forgotten. */
	[OUTBOX_ITEM_GONE] = FROM(READY) | FROM(WAITING) | FROM(CONFIRMED) | FROM(REJECTED)
};
#endif

/* The only writer of item->state. */
static void
set_state(OutboxItem *item, OutboxItemState state)
{
	Assert((may_come_from[state] & (1 << item->state)) != 0);
	item->state = state;
}

static OutboxItem *
make_item(OutboxQueue *queue, OutboxMessage *message, OutboxRoute *route,
		  OutboxKey *key)
{
	OutboxItem *item = MemoryContextAllocZero(queue->cxt, sizeof(OutboxItem));
	ItemEntry  *entry = hash_search(queue->items, &message->id, HASH_FIND,
									NULL);

	entry->item = item;
	item->message = message;
	item->route = route;
	route->nitems++;
	item->key = key;
	item->claim_index = entry->claim_index;
	queue->count++;
	queue->bytes += message->size;
	return item;
}

/* The item is in no list. */
static void
free_item(OutboxQueue *queue, OutboxItem *item)
{
	set_state(item, OUTBOX_ITEM_GONE);
	item->route->nitems--;
	queue->count--;
	queue->bytes -= item->message->size;
	if (item->locked)
		queue->nlocked--;
	if (item->maybe_poison)
		queue->nmaybe_poison--;
	outbox_queue_return_claim(queue, &item->message->id);
	pfree(item->message);
	if (item->error != NULL)
		pfree(item->error);
	if (item->unfit != NULL)
		pfree(item->unfit);
	pfree(item);
	count_items(queue);
}

static void
make_ready(OutboxQueue *queue, OutboxItem *item, bool front)
{
	set_state(item, OUTBOX_ITEM_READY);
	if (front)
		dlist_push_head(&queue->ready, &item->node);
	else
		dlist_push_tail(&queue->ready, &item->node);
	queue->nready++;
}

/* Behind those of its key that are not settled, if it has one. */
static void
make_going(OutboxQueue *queue, OutboxItem *item, bool front)
{
	if (item->key != NULL)
	{
		queue->njoined += !nothing_goes(item->key);
		dlist_push_tail(&item->key->going, &item->going_node);
		item->key->ngoing++;
		item->key->going_bytes += item->message->size;
	}
	make_ready(queue, item, front);
}

static bool
is_answered(const OutboxItem *item)
{
	return item->state == OUTBOX_ITEM_CONFIRMED || item->state == OUTBOX_ITEM_REJECTED;
}

/* One more waits, or (-1) one less. */
static void
count_waiting(OutboxQueue *queue, const OutboxItem *item, int n)
{
	ssize_t		bytes = n * (ssize_t) item->message->size;

	item->key->nwaiting += n;
	item->key->waiting_bytes += bytes;
	queue->nwaiting += n;
	queue->waiting_bytes += bytes;
	if (item->message->available_at == 0)
		return;
	queue->ndue_waiting += n;
	queue->due_waiting_bytes += bytes;
}

/* Inserts in the order of seq; nearly always that is the end. */
static void
make_waiting(OutboxQueue *queue, OutboxItem *item)
{
	dlist_node *after = NULL;
	dlist_iter	iter;

	set_state(item, OUTBOX_ITEM_WAITING);
	dlist_reverse_foreach(iter, &item->key->waiting)
	{
		OutboxItem *other = dlist_container(OutboxItem, node, iter.cur);

		if (other->message->seq <= item->message->seq)
		{
			after = iter.cur;
			break;
		}
	}
	if (after != NULL)
		dlist_insert_after(after, &item->node);
	else
		dlist_push_head(&item->key->waiting, &item->node);
	count_waiting(queue, item, 1);
	if (is_answered(last_of(item->key)))
		queue->key_waits_for_settling = true;
}

static void
leave_waiting(OutboxQueue *queue, OutboxItem *item)
{
	dlist_delete(&item->node);
	count_waiting(queue, item, -1);
}

/* Is there another one in memory that may go, and nothing older that is not? */
static bool
may_advance(const OutboxKey *key)
{
	const OutboxItem *next;

	if (key->nwaiting == 0)
		return false;
	Assert(key->waiting.head.next != NULL);
	next = at_front(&key->waiting);
	return may_join(key, next) && next->message->seq <= goes_to(key);
}

/* One of a key is gone, or something else that others of it have waited for. */
static void
advance_key(OutboxQueue *queue, OutboxKey *key)
{
	while (may_advance(key))
	{
		OutboxItem *next = dlist_head_element(OutboxItem, node, &key->waiting);

		leave_waiting(queue, next);

		/*
		 * In front: a busy key must not wait for all others each time.  But
		 * not before what it has there.
		 */
		make_going(queue, next, nothing_goes(key));
	}
	place_key(queue, key);
}

/* The key cannot go on: what waits in memory becomes rows again. */
static void
drop_waiting(OutboxQueue *queue, OutboxKey *key, int64 above)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &key->waiting)
	{
		OutboxItem *item = dlist_container(OutboxItem, node, iter.cur);

		if (item->message->seq <= above)
			continue;
		leave_item(key, item);
		leave_waiting(queue, item);
		free_item(queue, item);
	}
}

/* The key cannot go on before what becomes of that row. */
static void
hold_retry(OutboxKey *key, int64 seq, const pg_uuid_t *id)
{
	if (key->hold == OUTBOX_HOLD_RETRY && key->retry.seq != seq)
	{
		key->more_retries = true;
		/* Rows that were left may be this one. */
		if (key->due_left != PG_INT64_MAX)
			key->due_left = GOES_NONE;
	}
	set_hold(key, OUTBOX_HOLD_RETRY);
	key->retry.seq = seq;
	key->retry.id = *id;
}

/* It holds the key no more; the next one does, if there was another. */
static void
release_retry(OutboxQueue *queue, OutboxKey *key)
{
	set_hold(key, OUTBOX_HOLD_NONE);
	queue->retries_unknown |= key->more_retries;
	key->more_retries = false;
}

/* Of several that have failed the oldest one is known; a claim finds the next one. */
static void
block(OutboxKey *key, int64 seq, const pg_uuid_t *id)
{
	if (key->blocked && key->failed.seq <= seq)
		return;
	key->blocked = true;
	key->failed.seq = seq;
	key->failed.id = *id;
}

/* ------------------------------------------------------------------ answers */

/* A key can go on only when the settling of what is going is on the disk. */
static void
key_waits_for(OutboxQueue *queue, const OutboxKey *key)
{
	if (key != NULL && (key->nwaiting > 0 || key->skip_low != 0) && !is_together(key))
		queue->key_waits_for_settling = true;
}

/* It is to be settled. */
static void
list_answered(OutboxQueue *queue, OutboxItem *item)
{
	item->listed = true;
	queue->nunlisted--;
	key_waits_for(queue, item->key);
	if (item->state == OUTBOX_ITEM_REJECTED)
	{
		queue->nlisted_rejected++;
		dlist_push_tail(&queue->rejected, &item->node);
		return;
	}
	dlist_push_tail(&queue->confirmed, &item->node);
	queue->confirmed_bytes += item->message->size;
}

/*
 * The answers of a key count in its order: a confirm when all before are answered, and
 * a refusal when all before are gone.  Those of this item, and of others that have
 * waited for it.
 */
static void
take_answers(OutboxQueue *queue, OutboxItem *item)
{
	OutboxKey  *key = item->key;

	if (head_of(key) != item &&
		!going_item(item->going_node.prev)->in_turn)
		return;
	for (; item != NULL && is_answered(item); item = next_of(item))
	{
		bool		again = item->in_turn;

		item->in_turn = true;
		if (!item->listed &&
			(item->state == OUTBOX_ITEM_CONFIRMED || head_of(key) == item))
			list_answered(queue, item);
		else if (again)
			break;
	}
}

static void
make_answered(OutboxQueue *queue, OutboxItem *item, OutboxItemState state)
{
	set_state(item, state);
	if (state == OUTBOX_ITEM_CONFIRMED)
		queue->nconfirmed++;
	else
		queue->nrejected++;
	queue->nunlisted++;
}

static void
leave_answered(OutboxQueue *queue, OutboxItem *item)
{
	bool		confirmed = item->state == OUTBOX_ITEM_CONFIRMED;

	if (confirmed)
		queue->nconfirmed--;
	else
		queue->nrejected--;
	if (!item->listed)
		queue->nunlisted--;
	else
	{
		dlist_delete(&item->node);
		if (!confirmed)
			queue->nlisted_rejected--;
		else if (!item->locked)
			queue->confirmed_bytes -= item->message->size;
	}
	item->listed = false;
	item->in_turn = false;
}

static void drop_unsent(OutboxQueue *queue, OutboxItem *after);

/* Where the key has stopped is over: was one of these returned, and is not acked yet? */
static void
stop_at_returned(OutboxKey *key, OutboxItem *from)
{
	while (from != NULL && (from->state != OUTBOX_ITEM_SENT ||
							from->reason != OUTBOX_REASON_UNROUTABLE))
		from = next_of(from);
	key->refused = from;
}

/* Frees one that is going, and is in no list of the queue: its key goes on. */
static void
item_gone(OutboxQueue *queue, OutboxItem *item)
{
	OutboxKey  *key = item->key;
	OutboxItem *next = NULL;

	if (key != NULL)
	{
		next = next_of(item);
		dlist_delete(&item->going_node);
		queue->njoined -= !nothing_goes(key);
		key->ngoing--;
		key->going_bytes -= item->message->size;
		if (key->refused == item)
			stop_at_returned(key, next);
	}
	free_item(queue, item);
	if (next != NULL)
		take_answers(queue, next);
	if (key != NULL)
		advance_key(queue, key);
}

static void
leave_ready(OutboxQueue *queue, OutboxItem *item)
{
	Assert(item->state == OUTBOX_ITEM_READY);
	dlist_delete(&item->node);
	queue->nready--;
}

/*
 * The key is read again from there, as soon as it goes on.  So nothing that is behind it,
 * and not sent, stays.
 */
static void
back_to_row(OutboxQueue *queue, OutboxItem *item)
{
	OutboxKey  *key = item->key;

	drop_unsent(queue, item);
	drop_waiting(queue, key, item->message->seq);
	if (item->state == OUTBOX_ITEM_READY)
		leave_ready(queue, item);
	else
		leave_answered(queue, item);
	leave_item(key, item);
	item_gone(queue, item);
}

/* Items behind it that are not sent yet. */
static void
drop_unsent(OutboxQueue *queue, OutboxItem *after)
{
	OutboxKey  *key = after->key;

	while (last_of(key) != after && last_of(key)->state == OUTBOX_ITEM_READY)
		back_to_row(queue, last_of(key));
}

/* ---------------------------------------------------------------- refusals */

/*
 * The broker has refused it: its key stops there, and nothing behind it is sent.  False
 * if the refusal does not count, as it was sent behind another one that was refused.
 */
static bool
stop_key(OutboxQueue *queue, OutboxItem *item)
{
	OutboxKey  *key = item->key;
	OutboxItem *other = key->refused;

	if (other == item)
	{
		key->next_alone = true;
		return !item->stopped;
	}
	/* One of the same number may be about to be settled. */
	if (other != NULL && (other->listed || other->message->seq < item->message->seq))
		return false;
	key->refused = item;
	key->next_alone = true;
	drop_unsent(queue, item);
	if (other != NULL && other->state == OUTBOX_ITEM_REJECTED)
		back_to_row(queue, other);
	item->nbehind = 0;
	for (OutboxItem *behind = next_of(item); behind != NULL; behind = next_of(behind))
	{
		behind->stopped = true;
		item->nbehind++;
	}
	return !item->stopped;
}

/* ------------------------------------------------------------------- states */

bool
outbox_queue_has(OutboxQueue *queue, const pg_uuid_t *id)
{
	return hash_search(queue->items, id, HASH_FIND, NULL) != NULL;
}

bool
outbox_queue_skips(OutboxQueue *queue, OutboxKeyId key_id, int64 seq)
{
	OutboxKey  *key = known_key(queue, key_id);

	if (key == NULL || key->skip_low == 0 || key->skip_low > seq)
		return false;
	return key_id.route->ordered || key->list != OUTBOX_KEY_HELD;
}

/* Has the queue room for another message that cannot go yet? */
static bool
may_wait(const OutboxQueue *queue)
{
	return queue->nwaiting < outbox_window &&
		queue->waiting_bytes < OUTBOX_WAITING_BYTES;
}

/* A row of the key was claimed in vain: after many, claims leave the key out by name. */
static void
note_released(OutboxQueue *queue, OutboxKey *key)
{
	if (++key->nreleased % OUTBOX_RELEASED_MANY != 0)
		return;
	for (int i = 0; i < OUTBOX_EXCLUDED_KEYS; i++)
		if (outbox_compare_keys(&queue->released[i], &key->id) == 0)
			return;
	queue->released[queue->nreleased++ % OUTBOX_EXCLUDED_KEYS] = key->id;
}

OutboxKey *
outbox_queue_released_key(OutboxQueue *queue, int i)
{
	OutboxKey  *key = known_key(queue, queue->released[i]);

	return key != NULL && key->list != OUTBOX_KEY_UNLISTED ? key : NULL;
}

/* May a message of this key be kept in memory now? */
static bool
key_accepts(OutboxQueue *queue, OutboxKey *key, const OutboxMessage *message,
			bool due)
{
	if (message->seq > goes_to(key))
		return false;

	/*
	 * A due row is in no list that the key is read again from.  Before all
	 * retries are listed, one of them may be older.
	 */
	if (due)
		return message->attempts == 0 || !queue->retries_unknown;
	/* Behind rows that are not in memory. */
	if (key->skip_low != 0 && message->seq > key->skip_low)
		return false;
	if (key->nwaiting == 0 && is_open(key))
		return true;
	if (key->waiting_bytes >= OUTBOX_CLAIM_BYTES ||
		queue->waiting_bytes >= OUTBOX_WAITING_BYTES)
	{
		key->large = true;
		return false;
	}
	return key->nwaiting < OUTBOX_KEY_WAITING_MAX && may_wait(queue);
}

static bool
is_holder(const OutboxHolder *holder, const OutboxMessage *message)
{
	return memcmp(&holder->id, &message->id, UUID_LEN) == 0;
}

bool
outbox_queue_admit(OutboxQueue *queue, OutboxMessage *message,
				   OutboxRoute *route, bool due)
{
	OutboxKey  *key = NULL;
	OutboxItem *item;

	if (message->aggregate_id != NULL && route->ordered)
	{
		key = find_key(queue, outbox_key_id(message->key_hash, route));
		if (key->blocked && is_holder(&key->failed, message))
			key->blocked = false;

		/* The one that the key waits for has come back. */
		if (goes_to(key) == GOES_RETRY && is_holder(&key->retry, message))
			release_retry(queue, key);
		else if (!key_accepts(queue, key, message, due))
		{
			if (due)
				leave_due(key, message->seq);
			else
				outbox_lower(&key->skip_low, message->seq);
			note_released(queue, key);
			place_key(queue, key);
			outbox_queue_return_claim(queue, &message->id);
			pfree(message);
			return false;
		}
	}

	item = make_item(queue, message, route, key);
	if (key == NULL || nothing_goes(key) ||
		(key->nwaiting == 0 && may_join(key, item)))
		make_going(queue, item, false);
	else
		make_waiting(queue, item);
	if (key != NULL)
		place_key(queue, key);
	count_items(queue);
	return true;
}

OutboxItem *
outbox_queue_peek(OutboxQueue *queue)
{
	if (dlist_is_empty(&queue->ready))
		return NULL;
	return dlist_head_element(OutboxItem, node, &queue->ready);
}

void
outbox_queue_sent(OutboxQueue *queue, OutboxItem *item, OutboxMonoTime now,
				  uint64 published_to)
{
	leave_ready(queue, item);
	set_state(item, OUTBOX_ITEM_SENT);
	item->sent_at = now;
	item->published_to = published_to;
	item->reason = OUTBOX_REASON_NONE;
	queue->nsent++;
	set_claim(item->claim_index, &item->message->id, true);
	count_items(queue);
}

static void
clear_maybe_poison(OutboxQueue *queue, OutboxItem *item)
{
	if (item->maybe_poison)
		queue->nmaybe_poison--;
	item->maybe_poison = false;
}

void
outbox_queue_returned(OutboxQueue *queue, OutboxItem *item, const char *error)
{
	Assert(item->state == OUTBOX_ITEM_SENT);
	item->reason = OUTBOX_REASON_UNROUTABLE;
	if (item->error != NULL)
		pfree(item->error);
	item->error = MemoryContextStrdup(queue->cxt, error);
	if (item->key != NULL)
		(void) stop_key(queue, item);
}

void
outbox_queue_confirmed(OutboxQueue *queue, OutboxItem *item)
{
	OutboxKey  *key = item->key;

	queue->nsent--;
	make_answered(queue, item, OUTBOX_ITEM_CONFIRMED);
	clear_maybe_poison(queue, item);
	if (key == NULL)
	{
		list_answered(queue, item);
		return;
	}
	take_answers(queue, item);
	if (!key->next_alone)
		return;
	key->next_alone = false;
	advance_key(queue, key);
}

void
outbox_queue_rejected(OutboxQueue *queue, OutboxItem *item, OutboxReason reason,
					  const char *error, bool permanent)
{
	char	   *copy = MemoryContextStrdup(queue->cxt, error);

	if (item->state == OUTBOX_ITEM_SENT)
		queue->nsent--;
	else
		leave_ready(queue, item);
	make_answered(queue, item, OUTBOX_ITEM_REJECTED);
	clear_maybe_poison(queue, item);
	item->reason = reason;
	if (item->error != NULL)
		pfree(item->error);
	item->error = copy;
	item->permanent = permanent;
	if (item->key == NULL)
		list_answered(queue, item);
	else if (stop_key(queue, item))
		take_answers(queue, item);
	else
		/* It has its turn behind the older one. */
		back_to_row(queue, item);
	count_items(queue);
}

/*
 * The link is lost: may it be sent again before anything else of its key?  It is READY,
 * and so is all that is behind it.
 */
static void
send_again(OutboxQueue *queue, OutboxItem *item)
{
	OutboxKey  *key = item->key;

	set_claim(item->claim_index, &item->message->id, false);
	make_ready(queue, item, true);
	if (key == NULL)
		return;
	if (key->refused == item)
		key->refused = NULL;
	if (item->stopped || (head_of(key) != item && !is_pipelined(item)))
		back_to_row(queue, item);
}

/* Answers behind one whose fate is unknown do not count. */
static void
take_answers_back(OutboxQueue *queue, OutboxItem *unknown)
{
	OutboxItem *item = unknown;
	OutboxItem *next;

	while ((next = next_of(item)) != NULL && is_answered(next))
		item = next;
	while (item != unknown)
	{
		OutboxItem *before = going_item(item->going_node.prev);

		leave_answered(queue, item);
		send_again(queue, item);
		item = before;
	}
}

void
outbox_queue_unknown(OutboxQueue *queue, OutboxItem *item, bool maybe_poison)
{
	Assert(item->state == OUTBOX_ITEM_SENT);
	if (item->key != NULL)
		take_answers_back(queue, item);
	queue->nsent--;
	if (maybe_poison && !item->maybe_poison)
	{
		item->maybe_poison = true;
		queue->nmaybe_poison++;
	}
	send_again(queue, item);
	count_items(queue);
}

/* A READY or WAITING item goes back to being a row. */
static void
drop(OutboxQueue *queue, OutboxItem *item)
{
	OutboxKey  *key = item->key;

	if (item->state == OUTBOX_ITEM_WAITING)
	{
		leave_waiting(queue, item);
		free_item(queue, item);
		place_key(queue, key);
		return;
	}
	leave_ready(queue, item);

	/*
	 * Its row waits for its time, which is past, and is not read with the
	 * others.
	 */
	if (key != NULL && item->route->ordered && item->message->attempts > 0)
		hold_retry(key, item->message->seq, &item->message->id);
	item_gone(queue, item);
}

int64
outbox_queue_drop_all(OutboxQueue *queue, OutboxRoute *route)
{
	HASH_SEQ_STATUS status;
	ItemEntry  *entry;
	int64		lowest = 0;

	if (route != NULL && route->nitems == 0)
		return 0;
	/* dynahash allows the current entry, and no other, to be removed. */
	hash_seq_init(&status, queue->items);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		OutboxItem *item = entry->item;

		if (item == NULL || (route != NULL && item->route != route))
			continue;
		if (item->state != OUTBOX_ITEM_READY &&
			item->state != OUTBOX_ITEM_WAITING)
			continue;
		outbox_lower(&lowest, item->message->seq);
		drop(queue, item);
	}
	return lowest;
}

bool
outbox_queue_has_others(OutboxQueue *queue, const OutboxRoute *route)
{
	dlist_iter	iter;

	dlist_foreach(iter, &queue->ready)
		if (dlist_container(OutboxItem, node, iter.cur)->route != route)
			return true;
	return false;
}

void
outbox_queue_settling_committed(OutboxQueue *queue, bool more)
{
	if (!more)
		queue->key_waits_for_settling = false;
}

/* Settling needs the numbers, and for a death and the log the names; these are short. */
static void
forget_contents(OutboxQueue *queue, OutboxItem *item)
{
	OutboxMessage *message = item->message;
	const char **names[] = {
		&message->event_type, &message->aggregate_type, &message->aggregate_id,
		&message->routing_key
	};
	size_t		size = sizeof(OutboxMessage);
	OutboxMessage *rest;
	char	   *end;

	for (int i = 0; i < (int) lengthof(names); i++)
		if (*names[i] != NULL)
			size += strlen(*names[i]) + 1;
	rest = MemoryContextAllocZero(queue->message_cxt, size);
	end = (char *) (rest + 1);
	for (int i = 0; i < (int) lengthof(names); i++)
		if (*names[i] != NULL)
		{
			const char *name = *names[i];

			*names[i] = strcpy(end, name);
			end += strlen(name) + 1;
		}
	*rest = *message;
	rest->route = NULL;
	rest->payload = rest->headers = rest->properties = NULL;
	rest->body = NULL;
	rest->body_len = 0;
	rest->size = size;
	if (item->state == OUTBOX_ITEM_CONFIRMED)
		queue->confirmed_bytes -= message->size;
	queue->bytes -= message->size - size;
	if (item->key != NULL)
		item->key->going_bytes -= message->size - size;
	item->message = rest;
	pfree(message);
}

/* The first time that its row was found locked. */
static void
note_locked(OutboxQueue *queue, OutboxItem *item)
{
	item->locked = true;
	item->locked_since = GetCurrentTimestamp();
	queue->nlocked++;
	forget_contents(queue, item);
	if (item->key != NULL)
	{
		drop_unsent(queue, item);
		drop_waiting(queue, item->key, 0);
		place_key(queue, item->key);
	}
	count_items(queue);
}

void
outbox_queue_unfit(OutboxQueue *queue, OutboxItem *item, const char *why)
{
	char	   *copy = why == NULL ? NULL : MemoryContextStrdup(queue->cxt, why);

	Assert(item->state == OUTBOX_ITEM_REJECTED && !item->locked);
	if (item->unfit != NULL)
		pfree(item->unfit);
	item->unfit = copy;
}

void
outbox_queue_remains(OutboxQueue *queue, OutboxItem *item)
{
	if (!item->locked)
		note_locked(queue, item);
	/* The commit that has just been was not this one's. */
	if (item->state == OUTBOX_ITEM_CONFIRMED)
		key_waits_for(queue, item->key);
}

void
outbox_queue_settled(OutboxQueue *queue, OutboxItem *item)
{
	Assert(is_answered(item) && item->listed);
	leave_answered(queue, item);
	item_gone(queue, item);
}

void
outbox_queue_failed(OutboxQueue *queue, OutboxItem *item, bool final)
{
	OutboxKey  *key = item->key;

	Assert(item->state == OUTBOX_ITEM_REJECTED);
	/* The route may have lost its order since. */
	if (key != NULL && item->route->ordered && (!final || item->route->block_on_failed))
	{
		if (final)
			block(key, item->message->seq, &item->message->id);
		else
			hold_retry(key, item->message->seq, &item->message->id);
		drop_waiting(queue, key, 0);
	}
	outbox_queue_settled(queue, item);
}

/* ------------------------------------------------------------------- holds */

void
outbox_queue_hold_locked(OutboxQueue *queue, OutboxKeyId key_id, int64 seq)
{
	OutboxKey  *key = find_key(queue, key_id);

	outbox_lower(&key->skip_low, seq);
	if (key->hold == OUTBOX_HOLD_NONE)
		set_hold(key, OUTBOX_HOLD_LOCKED);
	drop_waiting(queue, key, seq);
	place_key(queue, key);
}

void
outbox_queue_hold_retry(OutboxQueue *queue, OutboxKeyId key_id, int64 seq,
						const pg_uuid_t *id)
{
	OutboxKey  *key;

	if (queue->nheld >= OUTBOX_HELD_KEYS_MAX && known_key(queue, key_id) == NULL)
	{
		outbox_queue_note_forgotten(queue, 1);
		return;
	}
	key = find_key(queue, key_id);
	/* Two of them (the route was unordered once): the older one goes first. */
	if (key->hold == OUTBOX_HOLD_RETRY && key->retry.seq <= seq)
	{
		key->more_retries |= key->retry.seq != seq;
		return;
	}
	hold_retry(key, seq, id);
	outbox_lower(&key->skip_low, 1);

	/*
	 * It must not go when this holder is gone and the next one is not listed
	 * yet.
	 */
	drop_waiting(queue, key, seq);
	place_key(queue, key);
}

void
outbox_queue_retries_known(OutboxQueue *queue, bool known)
{
	queue->retries_unknown = !known;
}

void
outbox_queue_block(OutboxQueue *queue, OutboxKeyId key_id, int64 seq,
				   const pg_uuid_t *id, bool due)
{
	OutboxKey  *key = find_key(queue, key_id);

	block(key, seq, id);
	if (due)
		leave_due(key, PG_INT64_MAX);
	outbox_lower(&key->skip_low, seq);
	drop_waiting(queue, key, seq);
	note_released(queue, key);
	place_key(queue, key);
}

/* --------------------------------------------------------------- forgotten */

void
outbox_queue_note_forgotten(OutboxQueue *queue, int64 seq)
{
	outbox_lower(&queue->forgotten_low, seq);
	outbox_lower(&queue->forgotten_next, seq);
}

void
outbox_queue_note_forgotten_due(OutboxQueue *queue)
{
	queue->due_forgotten = true;
}

void
outbox_queue_want_pass(OutboxQueue *queue)
{
	queue->pass_wanted = true;
}

void
outbox_queue_pass_begins(OutboxQueue *queue)
{
	queue->pass_wanted = false;
	queue->forgotten_next = 0;
}

void
outbox_queue_pass_ended(OutboxQueue *queue)
{
	queue->forgotten_low = queue->forgotten_next;
	queue->due_freed |= queue->due_forgotten;
	queue->due_forgotten = false;
}

/* Where that begins which only this key's entry leads to. */
static int64
lowest_of_key(const OutboxKey *key)
{
	int64		lowest = key->skip_low != 0 ? key->skip_low : PG_INT64_MAX;

	if (key->hold == OUTBOX_HOLD_RETRY)
		lowest = Min(lowest, key->retry.seq);
	if (key->blocked)
		lowest = Min(lowest, key->failed.seq);
	return lowest;
}

void
outbox_queue_forget_held(OutboxQueue *queue)
{
	dlist_mutable_iter iter;

	if (queue->nheld + queue->nreread <= OUTBOX_HELD_KEYS_MAX)
		return;
	/* Those with a message in memory are few. */
	dlist_foreach_modify(iter, &queue->held)
	{
		OutboxKey  *key = dlist_container(OutboxKey, node, iter.cur);

		if (queue->nheld + queue->nreread <= OUTBOX_HELD_KEYS_MAX)
			break;
		if (!nothing_goes(key) || key->nwaiting > 0)
			continue;
		outbox_queue_note_forgotten(queue, lowest_of_key(key));
		queue->due_forgotten |= key->due_left != PG_INT64_MAX;

		/*
		 * No signal tells when a lock is gone; and one may have told of this
		 * key, which is not looked up any more.
		 */
		queue->pass_wanted |= key->hold == OUTBOX_HOLD_LOCKED || queue->nunchecked > 0;
		list_key(queue, key, OUTBOX_KEY_UNLISTED);
		forget_key(queue, key);
	}
}

bool
outbox_queue_knows(OutboxQueue *queue, OutboxKeyId key_id)
{
	return queue->forgotten_low == 0 || known_key(queue, key_id) != NULL;
}

void
outbox_queue_recall(OutboxQueue *queue, OutboxKeyId key_id, bool has_rows,
					const pg_uuid_t *retry, int64 retry_seq, bool more_retries)
{
	OutboxKey  *key;

	if (outbox_queue_knows(queue, key_id))
		return;
	key = find_key(queue, key_id);
	if (retry != NULL)
	{
		hold_retry(key, retry_seq, retry);
		key->more_retries = more_retries;
		/* No pass is told when that is over. */
		if (queue->due_forgotten)
			leave_due(key, PG_INT64_MAX);
	}
	else if (!has_rows)
	{
		key->skip_low = 0;
		return;
	}
	place_key(queue, key);
}

void
outbox_queue_key_done(OutboxQueue *queue, OutboxKeyId key_id)
{
	OutboxKey  *key = known_key(queue, key_id);

	if (key != NULL)
		place_key(queue, key);
}

bool
outbox_queue_leaves_due(OutboxQueue *queue, OutboxKeyId key_id, int64 seq,
						const pg_uuid_t *id)
{
	OutboxKey  *key = known_key(queue, key_id);

	if (key == NULL)
		return queue->due_forgotten;
	if (seq <= goes_to(key) ||
		(goes_to(key) == GOES_RETRY && memcmp(&key->retry.id, id, UUID_LEN) == 0))
		return false;
	leave_due(key, seq);
	return true;
}

bool
outbox_queue_due_left(const OutboxKey *key, int64 *upto, pg_uuid_t *retry)
{
	*upto = goes_to(key);
	if (*upto == GOES_RETRY)
		*retry = key->retry.id;
	return key->due_left == *upto && *upto != PG_INT64_MAX;
}

bool
outbox_queue_take_due_freed(OutboxQueue *queue)
{
	bool		freed = queue->due_freed;

	queue->due_freed = false;
	return freed;
}

int64
outbox_queue_free_keys(OutboxQueue *queue, OutboxRoute *route)
{
	int64		lowest = queue->forgotten_low;
	HASH_SEQ_STATUS status;
	OutboxKey  *key;

	if (route->nkeys == 0)
		return lowest;
	/* dynahash allows the current entry, and no other, to be removed. */
	hash_seq_init(&status, queue->keys);
	while ((key = hash_seq_search(&status)) != NULL)
	{
		if (key->id.route != route)
			continue;
		if (key->skip_low != 0)
			outbox_lower(&lowest, key->skip_low);
		key->skip_low = 0;
		key->blocked = false;
		release_retry(queue, key);
		advance_key(queue, key);
	}
	return lowest;
}

int64
outbox_queue_lowest(OutboxQueue *queue)
{
	int64		lowest = queue->forgotten_low != 0 ? queue->forgotten_low : PG_INT64_MAX;
	HASH_SEQ_STATUS status;
	ItemEntry  *entry;
	OutboxKey  *key;

	if (queue->count > 0)
	{
		hash_seq_init(&status, queue->items);
		while ((entry = hash_seq_search(&status)) != NULL)
			if (entry->item != NULL)
				lowest = Min(lowest, entry->item->message->seq);
	}
	hash_seq_init(&status, queue->keys);
	while ((key = hash_seq_search(&status)) != NULL)
		if (key->skip_low != 0)
			lowest = Min(lowest, key->skip_low);
	return lowest;
}

void
outbox_queue_uncheck_held(OutboxQueue *queue, int n)
{
	queue->nunchecked = Max(queue->nunchecked, Min(n, queue->nheld));
}

void
outbox_queue_held_checked(OutboxQueue *queue, int n)
{
	/* Of the others, some may have gone on meanwhile. */
	queue->nunchecked = Min(queue->nunchecked, queue->nheld) - n;
	for (int i = 0; i < n; i++)
		dlist_push_tail(&queue->held, dlist_pop_head_node(&queue->held));
}

/* Nothing holds it from there on, or something else does. */
static void
go_on_from(OutboxQueue *queue, OutboxKey *key, int64 seq)
{
	outbox_lower(&key->skip_low, seq);
	advance_key(queue, key);
}

void
outbox_queue_release(OutboxQueue *queue, OutboxKey *key)
{
	/* The holder may be pending again, and comes first then. */
	int64		from = key->hold == OUTBOX_HOLD_LOCKED ? key->skip_low : key->retry.seq;

	release_retry(queue, key);
	go_on_from(queue, key, from);
}

void
outbox_queue_unblock(OutboxQueue *queue, OutboxKey *key)
{
	key->blocked = false;
	go_on_from(queue, key, key->failed.seq);
}

void
outbox_queue_key_read(OutboxQueue *queue, OutboxKey *key, int64 skip_low,
					  int64 next)
{
	/* Else older rows of it went back to the table meanwhile. */
	if (key->skip_low == skip_low)
		key->skip_low = next;
	if (key->skip_low == 0)
		key->large = false;

	/*
	 * The next one goes alone: it is admitted in a moment, or the key
	 * forgotten.
	 */
	if (key->next_alone)
		place_in_list(queue, key);
	else
		place_key(queue, key);
}

bool
outbox_queue_has_room(OutboxQueue *queue, const OutboxKey *key)
{
	if (key->refused != NULL)
		return false;
	return is_open(key) ||
		(!head_is_locked(key) && may_wait(queue));
}

int
outbox_queue_due_room(const OutboxQueue *queue)
{
	int			max = Max(outbox_window / 2, 1);

	/* Not for the sake of a few. */
	if (queue->ndue_waiting > max / 2 || queue->due_waiting_bytes >= OUTBOX_WAITING_BYTES / 2)
		return 0;
	return max - queue->ndue_waiting;
}

int
outbox_queue_keeps(const OutboxKey *key)
{
	int			join = 0;

	if (!nothing_goes(key) && is_open(key))
		join = outbox_window / 2 - key->ngoing;
	return join + OUTBOX_KEY_WAITING_MAX;
}

bool
outbox_queue_wants_reread(OutboxQueue *queue)
{
	dlist_iter	iter;

	/* Soon over: keys without room are under way, and those are few. */
	dlist_foreach(iter, &queue->reread)
		if (outbox_queue_has_room(queue,
								  dlist_container(OutboxKey, node, iter.cur)))
			return true;
	return false;
}
