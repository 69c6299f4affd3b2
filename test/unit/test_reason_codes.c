/*-------------------------------------------------------------------------
 *
 * test_reason_codes.c
 *		Unit tests of src/base/reason_codes.c.
 *
 *-------------------------------------------------------------------------
 */
#include "check.h"
#include "reason_codes.h"

#include <string.h>

static void
test_names(void)
{
	check(outbox_reason_name(OUTBOX_REASON_NONE) == NULL,
		  "nothing wrong has no name");
	check(outbox_reason_name(OUTBOX_REASON_COUNT) == NULL,
		  "nor has what is no reason");
	for (int i = 1; i < OUTBOX_REASON_COUNT; i++)
		check((int) outbox_reason_by_name(outbox_reason_name(i)) == i,
			  "\"%s\" is one reason only", outbox_reason_name(i));
	check(outbox_reason_by_name("nonsense") == OUTBOX_REASON_NONE &&
		  outbox_reason_by_name("") == OUTBOX_REASON_NONE,
		  "other names are no reasons");
}

static void
is(const char *sqlstate, OutboxReason expected)
{
	OutboxReason reason = outbox_reason_of_sqlstate(sqlstate);

	check(reason == expected, "%s is \"%s\"", sqlstate,
		  outbox_reason_name(reason));
}

static void
test_sqlstates(void)
{
	is("55P03", OUTBOX_REASON_DB_LOCK);
	is("40P01", OUTBOX_REASON_DB_LOCK);
	is("57014", OUTBOX_REASON_DB_TIMEOUT);
	is("53100", OUTBOX_REASON_DB_DISK);
	is("53200", OUTBOX_REASON_DB_MEMORY);
	is("42501", OUTBOX_REASON_DB_PERMISSION);
	is("P0001", OUTBOX_REASON_DB_TRIGGER);
	is("22012", OUTBOX_REASON_DB_TRIGGER);
	is("23514", OUTBOX_REASON_DB_TRIGGER);
	is("XX001", OUTBOX_REASON_DB_CORRUPT);
	is("58030", OUTBOX_REASON_DB_CORRUPT);
	is("XX000", OUTBOX_REASON_DB_OTHER);
	is("42P01", OUTBOX_REASON_DB_OTHER);
	is("25006", OUTBOX_REASON_DB_OTHER);
}

int
main(void)
{
	test_names();
	test_sqlstates();
	return done();
}
