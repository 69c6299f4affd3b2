/*-------------------------------------------------------------------------
 *
 * own_version.c
 *		The version of the library, and which of two versions is the newer.
 *
 *-------------------------------------------------------------------------
 */
#include "own_version.h"

#include <stdlib.h>

/* The one place that the Makefile tells it to. */
#ifndef OUTBOX_VERSION
#define OUTBOX_VERSION "unknown"
#endif

const char *
outbox_library_version(void)
{
#ifdef OUTBOX_TEST_POINTS
	const char *version = getenv("OUTBOX_TEST_VERSION");

	if (version != NULL)
		return version;
#endif
	return OUTBOX_VERSION;
}

/* The number at *at, 0 if there is none; goes behind it and a dot after it. */
static unsigned long
next_number(const char **at)
{
	char	   *end;
	unsigned long number;

	if (**at < '0' || **at > '9')
		return 0;
	number = strtoul(*at, &end, 10);
	*at = *end == '.' ? end + 1 : end;
	return number;
}

static int
is_number(const char *at)
{
	return *at >= '0' && *at <= '9';
}

int
outbox_version_compare(const char *a, const char *b)
{
	while (is_number(a) || is_number(b))
	{
		unsigned long x = next_number(&a);
		unsigned long y = next_number(&b);

		if (x != y)
			return x < y ? -1 : 1;
	}
	return 0;
}
