/*-------------------------------------------------------------------------
 *
 * test_confirms.c
 *		Unit tests of src/broker/confirms.c.
 *
 * Items are pointers into one array, so that an item's number is its place.
 * The last test compares with a model that is too simple to be wrong; its seed
 * is printed, and OUTBOX_TEST_SEED repeats it.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "confirms.h"

#define MAX_ITEMS	200000
#define MAX_SIZE	64

static char items[MAX_ITEMS];

/* What visit was called for, in order. */
typedef struct Seen
{
	int			n;
	uint64_t	tags[MAX_SIZE];
	void	   *visited[MAX_SIZE];
} Seen;

static OutboxConfirms window;
static void *ring[MAX_SIZE];
static Seen seen;

static void
visit(void *item, uint64_t tag, void *arg)
{
	Seen	   *to = arg;

	if (to->n < MAX_SIZE)
	{
		to->tags[to->n] = tag;
		to->visited[to->n] = item;
	}
	to->n++;
}

static bool
is_item(void *item, const void *key)
{
	return item == key;
}

static bool
any_item(void *item, const void *key)
{
	(void) key;
	return item != NULL;
}

static bool
settle(uint64_t tag, bool multiple)
{
	seen.n = 0;
	return outbox_confirms_answer(&window, tag, multiple, visit, &seen);
}

/* A window of that size with so many published; item i has tag i + 1. */
static void
start(uint32_t size, int published)
{
	int			i;

	memset(ring, 0x5a, sizeof(ring));
	outbox_confirms_init(&window, ring, size);
	for (i = 0; i < published; i++)
		outbox_confirms_add(&window, &items[i]);
}

static bool
saw(int n, uint64_t first_tag)
{
	int			i;

	if (seen.n != n)
		return false;
	for (i = 0; i < n; i++)
	{
		if (seen.tags[i] != first_tag + i ||
			seen.visited[i] != &items[first_tag + i - 1])
			return false;
	}
	return true;
}

static void
test_single(void)
{
	start(8, 0);
	check(outbox_confirms_ring_bytes(8) == 8 * sizeof(void *), "ring size");
	check(outbox_confirms_add(&window, &items[0]) == 1, "tags begin with 1");
	check(outbox_confirms_add(&window, &items[1]) == 2, "and count up");
	check(window.outstanding == 2, "two are outstanding");
	check(settle(1, false) && saw(1, 1), "one tag settles one item");
	check(window.outstanding == 1 && window.oldest == 2, "one is left");
	check(settle(2, false) && saw(1, 2), "so does the other");
	check(window.outstanding == 0 && window.oldest == window.next,
		  "the window is empty");
}

static void
test_out_of_order(void)
{
	start(8, 4);
	check(settle(3, false) && saw(1, 3), "the third may come first");
	check(window.oldest == 1, "the oldest waits");
	check(settle(1, false) && saw(1, 1), "then the first");
	check(window.oldest == 2, "the second is the oldest now");
	check(settle(2, false) && saw(1, 2), "then the second");
	check(window.oldest == 4, "the gap is skipped");
}

static void
test_multiple(void)
{
	start(8, 6);
	check(settle(3, true) && saw(3, 1), "multiple settles all up to the tag");
	check(settle(5, false) && saw(1, 5), "a single one beyond");
	check(settle(6, true) && seen.n == 2 && seen.tags[0] == 4 &&
		  seen.tags[1] == 6, "multiple leaves out what is settled");
	check(settle(6, true) && seen.n == 0,
		  "multiple again is allowed and settles nothing");
	check(settle(3, true) && seen.n == 0, "also for an older tag");
}

static void
test_tag_zero(void)
{
	start(8, 3);
	check(!settle(0, false) && seen.n == 0, "tag 0 alone is a breach");
	check(settle(0, true) && saw(3, 1), "tag 0 with multiple settles all");
	check(settle(0, true) && seen.n == 0, "even if there are none");
	check(window.oldest == 4 && window.next == 4, "the window is empty");
}

static void
test_unknown_and_duplicate(void)
{
	start(8, 2);
	check(!settle(3, false) && seen.n == 0, "a tag not yet published");
	check(!settle(3, true) && seen.n == 0, "the same with multiple");
	check(!settle(UINT64_MAX, false) && !settle(UINT64_MAX, true),
		  "the largest tag");
	check(window.outstanding == 2, "nothing was settled by them");
	check(settle(2, false), "the second is settled");
	check(!settle(2, false) && seen.n == 0, "but not twice");
	check(settle(1, false), "the first is settled");
	check(!settle(1, false) && seen.n == 0, "nor is that, below the oldest");
}

static void
test_full_and_wrap(void)
{
	int			round;
	bool		good = true;

	start(3, 3);
	check(outbox_confirms_full(&window), "three of three are full");
	settle(2, false);
	check(outbox_confirms_full(&window),
		  "a gap behind the oldest gives no room");
	settle(1, false);
	check(!outbox_confirms_full(&window), "the oldest one's going does");

	start(3, 0);
	for (round = 0; round < 1000; round++)
	{
		good = good &&
			outbox_confirms_add(&window, &items[round]) == (uint64_t) round + 1;
		if (round >= 2)
			good = good && settle(round - 1, false) && saw(1, round - 1);
	}
	check(good, "the ring wraps around for a thousand tags");
	check(window.outstanding == 2, "two are left in it");

	start(1, 1);
	check(outbox_confirms_full(&window), "a window of one is full with one");
	check(settle(1, true) && !outbox_confirms_full(&window), "and empties");
	check(outbox_confirms_add(&window, &items[1]) == 2 &&
		  settle(2, false) && saw(1, 2), "and is used again");
}

static void
test_reset(void)
{
	start(4, 3);
	settle(2, false);
	outbox_confirms_reset(&window);
	check(window.outstanding == 0 && window.next == 1 && window.oldest == 1,
		  "reset empties the window");
	check(!settle(1, false), "old tags are unknown after it");
	check(outbox_confirms_find(&window, any_item, NULL) == NULL,
		  "no item is left");
	check(outbox_confirms_add(&window, &items[0]) == 1, "tags begin again");
}

static void
test_find_and_each(void)
{
	start(8, 5);
	settle(1, false);
	settle(3, false);
	check(outbox_confirms_find(&window, any_item, NULL) == &items[1],
		  "find gives the oldest that matches");
	check(outbox_confirms_find(&window, is_item, &items[4]) == &items[4],
		  "or the one that matches");
	check(outbox_confirms_find(&window, is_item, &items[2]) == NULL,
		  "but none that is settled");
	seen.n = 0;
	outbox_confirms_each(&window, visit, &seen);
	check(seen.n == 3 && seen.tags[0] == 2 && seen.tags[1] == 4 &&
		  seen.tags[2] == 5, "each visits the outstanding ones in order");
	check(window.outstanding == 3, "and keeps them");
}

/* The model: one flag for each tag that was ever published. */
typedef struct Model
{
	uint64_t	next;
	uint32_t	outstanding;
	bool		open[MAX_ITEMS + 1];
} Model;

static Model model;

static bool
model_settle(uint64_t tag, bool multiple, Seen *expect)
{
	uint64_t	t;

	expect->n = 0;
	if (tag >= model.next || (!multiple && !model.open[tag]))
		return false;
	if (multiple && tag == 0)
		tag = model.next - 1;
	for (t = multiple ? 1 : tag; t <= tag; t++)
	{
		if (!model.open[t])
			continue;
		model.open[t] = false;
		model.outstanding--;
		visit(&items[t - 1], t, expect);
	}
	return true;
}

static bool
model_full(uint32_t size)
{
	uint64_t	oldest = 1;

	while (oldest < model.next && !model.open[oldest])
		oldest++;
	return model.next - oldest >= size;
}

static bool
same(const Seen *a, const Seen *b)
{
	size_t		n = a->n;

	return a->n == b->n && a->n <= MAX_SIZE &&
		memcmp(a->tags, b->tags, n * sizeof(a->tags[0])) == 0 &&
		memcmp(a->visited, b->visited, n * sizeof(a->visited[0])) == 0;
}

static bool
random_step(uint32_t size)
{
	static Seen expect;
	uint64_t	back = rand() % (size + 3);
	uint64_t	tag = model.next + 1 > back ? model.next + 1 - back : 0;
	bool		multiple = rand() % 3 == 0;

	if (model_full(size) != outbox_confirms_full(&window))
		return false;
	if (!model_full(size) && rand() % 2 == 0)
	{
		tag = model.next++;
		model.open[tag] = true;
		model.outstanding++;
		return outbox_confirms_add(&window, &items[tag - 1]) == tag;
	}
	if (rand() % 50 == 0)
		tag = 0;
	if (settle(tag, multiple) != model_settle(tag, multiple, &expect))
		return false;
	return same(&seen, &expect) && window.outstanding == model.outstanding &&
		window.next == model.next;
}

static void
test_model(unsigned int seed)
{
	uint32_t	size;
	int			sizes = 0;

	printf("# seed %u (OUTBOX_TEST_SEED repeats it)\n", seed);
	srand(seed);
	for (size = 1; size <= MAX_SIZE; size++)
	{
		int			step;

		start(size, 0);
		memset(&model, 0, sizeof(model));
		model.next = 1;
		for (step = 0; step < 3000; step++)
		{
			if (!random_step(size))
				break;
		}
		if (step == 3000)
			sizes++;
		else
			printf("# size %u differs from the model at step %d\n", size, step);
	}
	check(sizes == MAX_SIZE, "3000 random steps agree with the model, all sizes");
}

int
main(void)
{
	const char *seed = getenv("OUTBOX_TEST_SEED");

	test_single();
	test_out_of_order();
	test_multiple();
	test_tag_zero();
	test_unknown_and_duplicate();
	test_full_and_wrap();
	test_reset();
	test_find_and_each();
	test_model(seed != NULL ? (unsigned int) strtoul(seed, NULL, 10) :
			   (unsigned int) time(NULL) ^ (unsigned int) getpid() << 16);
	return done();
}
