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

/*
 * That of the control file it was built with.  In builds for tests the server's
 * environment can name another one (OUTBOX_TEST_VERSION), so that a test has a
 * library that is older or newer than the extension.
 */
extern const char *outbox_library_version(void);

/*
 * Below 0, 0 or above 0, as a is older than b, the same, or newer.  Versions are
 * numbers with dots in between; what follows the numbers does not count.
 */
extern int	outbox_version_compare(const char *a, const char *b);

#endif							/* OUTBOX_OWN_VERSION_H */
