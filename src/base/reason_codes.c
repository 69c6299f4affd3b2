/*-------------------------------------------------------------------------
 *
 * reason_codes.c
 *		Names of reasons, and which one an error of the database is.
 *
 *-------------------------------------------------------------------------
 */
#include "reason_codes.h"

#include <stddef.h>
#include <string.h>

#define REASON_NAME(id, name) name,
static const char *const names[] = {
	NULL,
	OUTBOX_REASONS(REASON_NAME)
};

const char *
outbox_reason_name(OutboxReason reason)
{
	return reason < OUTBOX_REASON_COUNT ? names[reason] : NULL;
}

OutboxReason
outbox_reason_by_name(const char *name)
{
	for (int i = 1; i < OUTBOX_REASON_COUNT; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	return OUTBOX_REASON_NONE;
}

/*
 * Where an entry has fewer than five characters it is for all that begin so; the
 * first one that fits counts.  A row whose own values cannot be read was told from
 * others before (relay_round.c).  The statements of the relay are the same in each
 * database, so that of what else is wrong with a value, a rule or a function only an
 * addition of the administrator can be the cause: a trigger, a constraint, the
 * expression of an index.
 */
static const struct
{
	const char *sqlstate;
	OutboxReason reason;
}			of_sqlstate[] =

{
	{"55P03", OUTBOX_REASON_DB_LOCK},
	{"40P01", OUTBOX_REASON_DB_LOCK},	/* a deadlock */
	{"57014", OUTBOX_REASON_DB_TIMEOUT},
	{"53100", OUTBOX_REASON_DB_DISK},
	{"53200", OUTBOX_REASON_DB_MEMORY},
	{"42501", OUTBOX_REASON_DB_PERMISSION}, /* of a policy, too */
	{"44000", OUTBOX_REASON_DB_TRIGGER},	/* WITH CHECK OPTION */
	{"XX001", OUTBOX_REASON_DB_CORRUPT},
	{"XX002", OUTBOX_REASON_DB_CORRUPT},
	{"58030", OUTBOX_REASON_DB_CORRUPT},	/* input or output */
	{"58P01", OUTBOX_REASON_DB_CORRUPT},	/* a file is missing */
	{"09", OUTBOX_REASON_DB_TRIGGER},
	{"21", OUTBOX_REASON_DB_TRIGGER},
	{"22", OUTBOX_REASON_DB_TRIGGER},
	{"23", OUTBOX_REASON_DB_TRIGGER},
	{"27", OUTBOX_REASON_DB_TRIGGER},
	{"38", OUTBOX_REASON_DB_TRIGGER},
	{"39", OUTBOX_REASON_DB_TRIGGER},
	{"P0", OUTBOX_REASON_DB_TRIGGER},
};

OutboxReason
outbox_reason_of_sqlstate(const char *sqlstate)
{
	for (size_t i = 0; i < sizeof(of_sqlstate) / sizeof(of_sqlstate[0]); i++)
		if (strncmp(sqlstate, of_sqlstate[i].sqlstate,
					strlen(of_sqlstate[i].sqlstate)) == 0)
			return of_sqlstate[i].reason;
	return OUTBOX_REASON_DB_OTHER;
}
