/*-------------------------------------------------------------------------
 *
 * alloc.c
 *		Allocations that fail: the first, the second, ... of a whole session with a
 *		broker, in the link, in librabbitmq and in OpenSSL.
 *
 * Whichever it is: an error that is told, or one that is thrown as the server's
 * palloc() throws it; no crash, nothing left open, and the next connect works.  (In a
 * server: G6 in resources.pl.)
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz_link.c"

#include <limits.h>
#include <time.h>
#include <openssl/crypto.h>

extern void *__real_malloc(size_t size);
extern void *__wrap_malloc(size_t size);
extern void *__real_calloc(size_t n, size_t size);
extern void *__wrap_calloc(size_t n, size_t size);
extern void *__real_realloc(void *pointer, size_t size);
extern void *__wrap_realloc(void *pointer, size_t size);

#define STRIDE	7919			/* a prime, so that each comes once */

static bool counting;
static unsigned long count;
static unsigned long fails_at;

static bool
fails(void)
{
	return counting && !fuzz_broker_busy && ++count == fails_at;
}

void *
__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *
__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *
__wrap_realloc(void *pointer, size_t size)
{
	return fails() ? NULL : __real_realloc(pointer, size);
}

static void *
openssl_malloc(size_t size, const char *file, int line)
{
	return __wrap_malloc(size);
}

static void *
openssl_realloc(void *pointer, size_t size, const char *file, int line)
{
	return __wrap_realloc(pointer, size);
}

static void
openssl_free(void *pointer, const char *file, int line)
{
	free(pointer);
}

/* What a broker says to all steps below. */
static void
make_script(void)
{
	good_size = 0;
	make_good_script();
	good_size -= 21;			/* the ack comes last */
	add_frame(1, 2, "\0\24\0\13\0\0\0\0", 8);
	add_frame(1, 2, "\0\50\0\13", 4);
	add_frame(1, 3, "\0\24\0\13\0\0\0\0", 8);
	add_frame(1, 3, "\0\132\0\13", 4);
	add_frame(1, 3, "\0\132\0\37", 4);
	add_frame(1, 1, "\0\74\0\120\0\0\0\0\0\0\0\1\0", 13);
}

/* An ERROR goes to the relay's loop, which calls the link again. */
static OutboxLinkStatus
try_step(OutboxLink *link, unsigned what)
{
	volatile OutboxLinkStatus status = OUTBOX_LINK_OK;

	PG_TRY();
	{
		status = do_step(link, what);
	}
	PG_CATCH();
	{
		FlushErrorState();
	}
	PG_END_TRY();
	return status;
}

static OutboxLinkStatus
try_open(OutboxLink *link, bool with_tls)
{
	volatile OutboxLinkStatus status = OUTBOX_LINK_LOST;

	PG_TRY();
	{
		status = open_link(link, with_tls);
	}
	PG_CATCH();
	{
		FlushErrorState();
	}
	PG_END_TRY();
	return status;
}

/* Of whose allocations the n-th fails. */
static void
session(unsigned long n, bool with_tls)
{
	static const unsigned steps[] = {3, 5, 0, 1, 2, 9, 9, 2, 9};
	FuzzScript	script = {.bytes = good, .size = good_size, .tls = with_tls, .stays = true};
	OutboxLink *link = new_link();
	OutboxLinkStatus status;

	fuzz_broker_play(&script);
	count = 0;
	fails_at = n;
	counting = true;
	status = try_open(link, with_tls);
	for (int i = 0; i < (int) lengthof(steps) && status != OUTBOX_LINK_LOST &&
		 outbox_link_state(link) == OUTBOX_LINK_OPEN; i++)
		status = try_step(link, steps[i]);
	outbox_link_close(link, true);
	counting = false;
	check_link(link, OUTBOX_LINK_OK);
	fuzz_broker_end();

	good_size = 0;
	make_good_script();
	recover(link);
	make_script();
	fuzz_memory_reset();
}

/* All of them, or as many as the time is for: with TLS many of them end in a timeout. */
static void
all_of(const char *what, bool with_tls, int seconds)
{
	time_t		end = time(NULL) + seconds;
	unsigned long total;
	unsigned long n = 0;

	session(ULONG_MAX, with_tls);
	total = count;
	for (; n < total && time(NULL) < end; n++)
		session(1 + n * STRIDE % total, with_tls);
	printf("alloc: %s: %lu of %lu allocations have failed; no crash, and the next connect works\n",
		   what, n, total);
}

int
main(int argc, char **argv)
{
	int			seconds = argc > 1 ? atoi(argv[1]) : 60;

	if (CRYPTO_set_mem_functions(openssl_malloc, openssl_realloc, openssl_free) != 1)
		return 2;
	(void) LLVMFuzzerInitialize(&argc, &argv);
	make_script();
	/* what OpenSSL makes once */
	session(ULONG_MAX, true);
	all_of("TCP", false, seconds);
	all_of("TLS", true, seconds);
	return 0;
}
