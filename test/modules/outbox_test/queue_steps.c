/*-------------------------------------------------------------------------
 *
 * queue_steps.c
 *		The relay's queue, driven step by step from SQL.
 *
 * Compiled into this module as it is, like the store, with a slot of its own.
 * outbox_test_queue() starts with an empty queue and takes words:
 *
 *		pipelined, serial	the route's ordering, from now on
 *		window:N			outbox.window, from now on
 *		admit:SEQ[:KEY]		it was claimed; due: its time has come, again: and it
 *							was refused before; large: a MB
 *		twin:SEQ[:KEY]		another one of that number; its answers: 1000 more
 *		send				everything that is ready
 *		ack:SEQ reject:SEQ	the broker's answers, return:SEQ: an ack will follow; settle:SEQ retry:SEQ fail:SEQ
 *							what the settling transaction made of them, or remain:SEQ:
 *							somebody has locked its row
 *		unknown				the link is lost; blame: and the broker says of a message
 *		lock:SEQ:KEY		somebody has locked that row
 *		release:KEY			the hold is over
 *		block:SEQ:KEY		that row is found to have failed
 *		unblock:KEY			that is over
 *		read:SEQ:KEY		the key was read again up to there (0: to its end), before
 *							what was claimed of it is admitted
 *		drop				all that is not sent leaves memory
 *		durable				must the next commit be on the disk?
 *		reread claims		what is to be read again; what is shown as claimed
 *		suspects			how many go one at a time
 *		done:KEY			what was claimed of it is admitted
 *		room:KEY			is it to be read, and how many rows of it at most?
 *		keys				how many are remembered
 *		contents			of how many messages they are in memory
 *		settling			what is to be settled, confirmed and then rejected
 *		behind:SEQ			later ones of its key that were sent when it was refused
 *
 * and returns a line for each word that has something to say.  Keys are single
 * letters; the only route keeps keys in order and blocks on what failed.
 *
 *-------------------------------------------------------------------------
 */
#include "../../../src/relay/queue/queue.c"

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(outbox_test_queue);

/* What each message says. */
#define CONTENTS 1000

OutboxSlot *MySlot = NULL;
int			outbox_window = 1000;

typedef struct Steps
{
	ReturnSetInfo *rsinfo;
	OutboxQueue *queue;
	OutboxRoute route;
} Steps;

static void
say(Steps *steps, const char *word, const char *text)
{
	Datum		value = CStringGetTextDatum(psprintf("%s: %s", word, text));
	bool		isnull = false;

	tuplestore_putvalues(steps->rsinfo->setResult, steps->rsinfo->setDesc,
						 &value, &isnull);
}

/* Messages are known by their ids; here that is the number. */
static pg_uuid_t
make_id(int64 seq)
{
	pg_uuid_t	id = {0};

	memcpy(&id, &seq, sizeof(seq));
	return id;
}

static OutboxItem *
find_item(Steps *steps, int64 seq)
{
	pg_uuid_t	id = make_id(seq);
	ItemEntry  *entry = hash_search(steps->queue->items, &id, HASH_FIND, NULL);

	if (entry == NULL || entry->item == NULL)
		elog(ERROR, "no item " INT64_FORMAT, seq);
	return entry->item;
}

static void
admit(Steps *steps, const char *word, int64 seq, char key, bool due, int attempts, size_t contents,
	  int64 another)
{
	OutboxMessage *message = MemoryContextAllocZero(steps->queue->message_cxt,
													sizeof(OutboxMessage) + CONTENTS);

	message->seq = seq;
	message->attempts = attempts;
	message->id = make_id(seq + another);
	message->size = sizeof(OutboxMessage) + contents;
	message->aggregate_id = key != '\0' ? "key" : NULL;
	message->key_hash = key;
	if (outbox_queue_has(steps->queue, &message->id))
	{
		say(steps, word, "is there");
		return;
	}
	outbox_queue_take_claim(steps->queue, &message->id);
	if (!outbox_queue_admit(steps->queue, message, &steps->route, due))
		say(steps, word, "dropped");
}

static void
send_all(Steps *steps, const char *word)
{
	StringInfoData sent;
	OutboxItem *item;

	initStringInfo(&sent);
	while ((item = outbox_queue_peek(steps->queue)) != NULL)
	{
		appendStringInfo(&sent, INT64_FORMAT " ", item->message->seq);
		outbox_queue_sent(steps->queue, item, outbox_mono_now(), 0);
	}
	say(steps, word, sent.len > 0 ? sent.data : "nothing");
}

/* The latest first, as the relay does it; here that is the highest number. */
static void
lose_link(Steps *steps, bool maybe_poison)
{
	for (;;)
	{
		HASH_SEQ_STATUS status;
		ItemEntry  *entry;
		OutboxItem *latest = NULL;

		hash_seq_init(&status, steps->queue->items);
		while ((entry = hash_seq_search(&status)) != NULL)
			if (entry->item != NULL && entry->item->state == OUTBOX_ITEM_SENT &&
				(latest == NULL ||
				 entry->item->message->seq > latest->message->seq))
				latest = entry->item;
		if (latest == NULL)
			return;
		outbox_queue_unknown(steps->queue, latest, maybe_poison);
	}
}

static void
show_reread(Steps *steps, const char *word)
{
	StringInfoData text;
	dlist_iter	iter;

	initStringInfo(&text);
	dlist_foreach(iter, &steps->queue->reread)
	{
		OutboxKey  *key = dlist_container(OutboxKey, node, iter.cur);

		appendStringInfo(&text, "%c from " INT64_FORMAT " ", (char) key->id.hash,
						 key->skip_low);
	}
	say(steps, word, text.len > 0 ? text.data : "nothing");
}

static void
show_settling(Steps *steps, const char *word)
{
	dlist_head *lists[] = {&steps->queue->confirmed, &steps->queue->rejected};
	StringInfoData text;
	dlist_iter	iter;

	initStringInfo(&text);
	for (int i = 0; i < (int) lengthof(lists); i++)
	{
		appendStringInfoString(&text, i == 0 ? "" : "and ");
		dlist_foreach(iter, lists[i])
			appendStringInfo(&text, INT64_FORMAT " ",
							 dlist_container(OutboxItem, node, iter.cur)->message->seq);
	}
	say(steps, word, text.data);
}

static void
show_claims(Steps *steps, const char *word)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < OUTBOX_MAX_CLAIMS; i++)
	{
		uint64		claim = pg_atomic_read_u64(&MySlot->claims[i]);
		bool		in_flight = OUTBOX_CLAIM_IN_FLIGHT(claim);
		HASH_SEQ_STATUS status;
		ItemEntry  *entry;

		hash_seq_init(&status, steps->queue->items);
		while ((entry = hash_seq_search(&status)) != NULL)
			if (claim != 0 && make_claim(&entry->id, in_flight) == claim)
				appendStringInfo(&text, INT64_FORMAT "%s ",
								 entry->item->message->seq,
								 in_flight ? " in flight" : "");
	}
	say(steps, word, text.len > 0 ? text.data : "nothing");
}

static OutboxKey *
existing_key(Steps *steps, char letter)
{
	OutboxKeyId id = {letter, &steps->route};
	OutboxKey  *key = hash_search(steps->queue->keys, &id, HASH_FIND, NULL);

	if (key == NULL)
		elog(ERROR, "no key %c", letter);
	return key;
}

static void
step(Steps *steps, const char *word)
{
	OutboxQueue *queue = steps->queue;
	char		verb[16] = "";
	long		seq = 0;
	char		letter = '\0';

	if (sscanf(word, "%15[a-z]:%ld:%c", verb, &seq, &letter) < 2)
		(void) sscanf(word, "%15[a-z]:%c", verb, &letter);

	if (strcmp(verb, "pipelined") == 0 || strcmp(verb, "serial") == 0)
		steps->route.pipelined = strcmp(verb, "pipelined") == 0;
	else if (strcmp(verb, "window") == 0)
		outbox_window = seq;
	else if (strcmp(verb, "done") == 0)
		outbox_queue_key_done(queue, (OutboxKeyId) {letter, &steps->route});
	else if (strcmp(verb, "room") == 0)
		say(steps, word, psprintf("%s %d", outbox_queue_has_room(queue, existing_key(steps, letter)) ? "yes" : "no",
								  outbox_queue_keeps(existing_key(steps, letter))));
	else if (strcmp(verb, "keys") == 0)
		say(steps, word, psprintf("%ld", hash_get_num_entries(queue->keys)));
	else if (strcmp(verb, "return") == 0)
		outbox_queue_returned(queue, find_item(steps, seq), "no");
	else if (strcmp(verb, "settling") == 0)
		show_settling(steps, word);
	else if (strcmp(verb, "behind") == 0)
		say(steps, word, psprintf("%d", find_item(steps, seq)->nbehind));
	else if (strcmp(verb, "admit") == 0)
		admit(steps, word, seq, letter, false, 0, CONTENTS, 0);
	else if (strcmp(verb, "twin") == 0)
		admit(steps, word, seq, letter, false, 0, CONTENTS, 1000);
	else if (strcmp(verb, "large") == 0)
		admit(steps, word, seq, letter, false, 0, 1000 * CONTENTS, 0);
	else if (strcmp(verb, "due") == 0)
		admit(steps, word, seq, letter, true, 0, CONTENTS, 0);
	else if (strcmp(verb, "again") == 0)
		admit(steps, word, seq, letter, true, 1, CONTENTS, 0);
	else if (strcmp(verb, "send") == 0)
		send_all(steps, word);
	else if (strcmp(verb, "ack") == 0)
		outbox_queue_confirmed(queue, find_item(steps, seq));
	else if (strcmp(verb, "reject") == 0)
		outbox_queue_rejected(queue, find_item(steps, seq),
							  OUTBOX_REASON_QUEUE_REFUSES, "no", false);
	else if (strcmp(verb, "unknown") == 0 || strcmp(verb, "blame") == 0)
		lose_link(steps, strcmp(verb, "blame") == 0);
	else if (strcmp(verb, "settle") == 0)
		outbox_queue_settled(queue, find_item(steps, seq));
	else if (strcmp(verb, "retry") == 0)
		outbox_queue_failed(queue, find_item(steps, seq), false);
	else if (strcmp(verb, "fail") == 0)
		outbox_queue_failed(queue, find_item(steps, seq), true);
	else if (strcmp(verb, "remain") == 0)
		outbox_queue_remains(queue, find_item(steps, seq));
	else if (strcmp(verb, "lock") == 0)
		outbox_queue_hold_locked(queue, (OutboxKeyId) {letter, &steps->route}, seq);
	else if (strcmp(verb, "release") == 0)
		outbox_queue_release(queue, existing_key(steps, letter));
	else if (strcmp(verb, "block") == 0)
	{
		pg_uuid_t	id = make_id(seq);

		outbox_queue_block(queue, (OutboxKeyId) {letter, &steps->route}, seq, &id, false);
	}
	else if (strcmp(verb, "unblock") == 0)
		outbox_queue_unblock(queue, existing_key(steps, letter));
	else if (strcmp(verb, "read") == 0)
	{
		OutboxKey  *key = existing_key(steps, letter);

		outbox_queue_key_read(queue, key, key->skip_low,
							  seq == 0 ? 0 : seq + 1);
	}
	else if (strcmp(verb, "drop") == 0)
		say(steps, word, psprintf("from " INT64_FORMAT,
								  outbox_queue_drop_all(queue, NULL)));
	else if (strcmp(verb, "durable") == 0)
	{
		say(steps, word, queue->key_waits_for_settling ? "yes" : "no");
		queue->key_waits_for_settling = false;
	}
	else if (strcmp(verb, "suspects") == 0)
		say(steps, word, psprintf("%d", queue->nmaybe_poison));
	else if (strcmp(verb, "contents") == 0)
		say(steps, word, psprintf("%d", (int) (queue->bytes - queue->count * sizeof(OutboxMessage)) / CONTENTS));
	else if (strcmp(verb, "reread") == 0)
		show_reread(steps, word);
	else if (strcmp(verb, "claims") == 0)
		show_claims(steps, word);
	else
		elog(ERROR, "no step \"%s\"", word);
}

Datum
outbox_test_queue(PG_FUNCTION_ARGS)
{
	Steps		steps = {.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo};
	char	   *words = text_to_cstring(PG_GETARG_TEXT_PP(0));

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	MySlot = palloc0(sizeof(OutboxSlot));
	outbox_window = 1000;
	steps.route.name = "route";
	steps.route.ordered = true;
	steps.route.block_on_failed = true;
	steps.queue = outbox_queue_create(CurrentMemoryContext);
	for (char *word = strtok(words, " \n\t"); word != NULL;
		 word = strtok(NULL, " \n\t"))
		step(&steps, word);
	MySlot = NULL;
	return (Datum) 0;
}
