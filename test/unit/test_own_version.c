/*-------------------------------------------------------------------------
 *
 * test_own_version.c
 *		Unit tests of src/base/own_version.h.
 *
 *-------------------------------------------------------------------------
 */
#include "check.h"
#include "own_version.h"

static void
check_order(const char *older, const char *newer)
{
	check(outbox_version_compare(older, newer) < 0 &&
		  outbox_version_compare(newer, older) > 0,
		  "\"%s\" is older than \"%s\"", older, newer);
}

static void
check_same(const char *a, const char *b)
{
	check(outbox_version_compare(a, b) == 0 &&
		  outbox_version_compare(b, a) == 0,
		  "\"%s\" is neither older nor newer than \"%s\"", a, b);
}

int
main(void)
{
	check_order("0.9", "1.0");
	check_order("1.0", "1.1");
	check_order("1.9", "1.10");
	check_order("1", "1.1");
	check_order("1.0", "1.0.1");
	check_order("2.0", "10.0");
	check_order("", "0.1");
	check_same("1.0", "1.0");
	check_same("1", "1.0");
	check_same("", "");
	check_same("unknown", "");
	check_same("1.0beta", "1.0");
	check(outbox_version_compare(outbox_library_version(), "") == 0,
		  "a library that was told no version has one that says nothing");
	return done();
}
