/*-------------------------------------------------------------------------
 *
 * own_version.h
 *		The version of the library, and which of two versions is the newer.
 *
 * Plain C without a PostgreSQL header, so that test/unit can drive it alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_OWN_VERSION_H
#define OUTBOX_OWN_VERSION_H

#include <stdlib.h>

/* The Makefile has it of the control file. */
#ifndef OUTBOX_VERSION
#define OUTBOX_VERSION "unknown"
#endif

/*
 * In builds for tests the server's environment can name another one
 * (OUTBOX_TEST_VERSION), so that a test has a library that is older or newer than the
 * extension.
 */
static inline const char *
outbox_library_version(void)
{
#ifdef OUTBOX_TEST_POINTS
	const char *version = getenv("OUTBOX_TEST_VERSION");

	if (version != NULL)
		return version;
#endif
	return OUTBOX_VERSION;
}

/* Are there digits at *at?  Then their value is in *number, and *at behind a dot after them. */
static inline int
outbox_version_number(const char **at, unsigned long *number)
{
	char	   *end;

	*number = 0;
	if (**at < '0' || **at > '9')
		return 0;
	*number = strtoul(*at, &end, 10);
	*at = *end == '.' ? end + 1 : end;
	return 1;
}

/*
 * Below 0, 0 or above 0, as a is older than b, the same, or newer.  Versions are
 * numbers with dots in between; what follows the numbers does not count.
 */
static inline int
outbox_version_compare(const char *a, const char *b)
{
	unsigned long x;
	unsigned long y;

	while (outbox_version_number(&a, &x) | outbox_version_number(&b, &y))
		if (x != y)
			return x < y ? -1 : 1;
	return 0;
}

#endif							/* OUTBOX_OWN_VERSION_H */
