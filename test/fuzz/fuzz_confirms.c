/*-------------------------------------------------------------------------
 *
 * fuzz_confirms.c
 *		The window of what is unconfirmed, with a model that has a flag a tag.
 *
 * The first byte is the size of the window, each further one publishes, or is a
 * confirm, single or multiple, of a tag near by or far away.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "confirms.h"
#include "fuzz.h"
#include "input.h"
#include "pg.h"

#define TAGS		4096
#define LARGEST		64

typedef enum Fate
{
	UNPUBLISHED,
	OUT,
	SETTLED
} Fate;

static char items[TAGS + 1];	/* by their addresses: who is which tag */
static Fate fate[TAGS + 1];
static uint64_t published;		/* tags 1 to that */
static unsigned outstanding;
static OutboxConfirms window;

static void
visited(void *item, uint64_t tag, void *arg)
{
	fuzz_check(tag >= 1 && tag <= published && item == &items[tag],
			   "tag %lu is another's", (unsigned long) tag);
	fuzz_check(fate[tag] == OUT, "tag %lu is settled twice", (unsigned long) tag);
	fate[tag] = SETTLED;
	outstanding--;
}

static bool
is_item(void *item, const void *key)
{
	return item == key;
}

/* Everything that the window says of itself. */
static void
check_window(uint32_t size)
{
	uint64_t	oldest = published + 1;
	unsigned	n = 0;

	for (uint64_t tag = published; tag >= 1; tag--)
		if (fate[tag] == OUT)
		{
			oldest = tag;
			n++;
		}
	fuzz_check(n == outstanding && window.outstanding == n, "outstanding: %u, is %u",
			   (unsigned) window.outstanding, n);
	fuzz_check(window.oldest == oldest && window.next == published + 1,
			   "from %lu to %lu", (unsigned long) window.oldest,
			   (unsigned long) window.next);
	fuzz_check(outbox_confirms_full(&window) == (published + 1 - oldest >= size), "full?");
}

static void
confirm(uint64_t tag, bool multiple)
{
	bool		legal = multiple ? tag <= published :
		tag >= 1 && tag <= published && fate[tag] == OUT;
	uint64_t	last = tag == 0 ? published : tag;
	unsigned	before = outstanding;
	unsigned	due = 0;

	if (legal)
		for (uint64_t i = multiple ? 1 : tag; i <= last; i++)
			due += fate[i] == OUT;
	fuzz_check(outbox_confirms_answer(&window, tag, multiple, visited, NULL) == legal,
			   "tag %lu%s is %s", (unsigned long) tag, multiple ? " multiple" : "",
			   legal ? "legal" : "a breach");
	fuzz_check(before - outstanding == due, "%u instead of %u are settled",
			   before - outstanding, due);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input		in = {data, data + size};
	uint32_t	room = 1 + input_byte(&in) % LARGEST;
	void	  **ring;

	fuzz_memory_reset();
	ring = palloc(outbox_confirms_ring_bytes(room));
	outbox_confirms_init(&window, ring, room);
	memset(fate, 0, sizeof(fate));
	published = outstanding = 0;
	while (in.at < in.end)
	{
		uint8_t		what = input_byte(&in);

		if ((what & 3) == 0 && !outbox_confirms_full(&window) && published < TAGS)
		{
			uint64_t	tag = outbox_confirms_add(&window, &items[published + 1]);

			fuzz_check(tag == ++published, "tag %lu", (unsigned long) tag);
			fate[tag] = OUT;
			outstanding++;
			fuzz_check(outbox_confirms_find(&window, is_item, &items[tag]) == &items[tag],
					   "is not found");
		}
		else if ((what & 3) == 1)
			confirm(published - Min(published, what >> 3), (what & 4) != 0);
		else if ((what & 3) == 2)
			confirm(published + (what >> 3), (what & 4) != 0);
		else
			confirm((uint64_t) input_number(&in) << (what >> 2 & 32), (what & 4) != 0);
		check_window(room);
	}
	fuzz_memory_reset();
	return 0;
}
