/*-------------------------------------------------------------------------
 *
 * identity.c
 *		Whose messages are these?  What tells a copy from the original.
 *
 * The origin, the name of the environment and the timeline are compared one by one,
 * here only:
 *
 * - The origin is in each row, as rows come without the record (logical replication) or
 *   before it (a parallel restore).  So it has only what stays as long as a database
 *   does, and neither the name nor the timeline.
 * - The name must be equal, but one that a copy of the data has, too, tells nothing.
 * - The timeline changes at each promotion, after which the relay has to go on.  Only
 *   one that was left at a recovery target since the record tells of a copy: an order,
 *   not an equality.
 *
 * The record has the origin, too: a copy may be without rows at first, and what the
 * original has adopted is not adopted in its copies.  doc/copies.md says which ways of
 * copying each part recognises.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "identity.h"
#include "settings.h"

OutboxCopy
outbox_identity_compare(const OutboxIdentity *recorded, bool foreign,
						const char *unusable)
{
	char	   *how;

	if (recorded->origin != outbox_own_origin())
		return OUTBOX_COPY_DATABASE;
	/* A name that proves nothing must not agree with one that is recorded. */
	if (unusable != NULL)
		return OUTBOX_COPY_UNKNOWN;
	if (strcmp(recorded->environment, outbox_environment) != 0)
		return OUTBOX_COPY_ENVIRONMENT;
	if (outbox_environment_restored(&how) >= recorded->timeline)
		return OUTBOX_COPY_RESTORED;
	return foreign ? OUTBOX_COPY_DATABASE : OUTBOX_COPY_NONE;
}

/*
 * Made of the origin and the environment, which two servers share whose relays both
 * publish the same messages; not of the timeline, in which the sides of a split differ,
 * nor of the host.  It is a hash because others see a queue's name; it is no secret.
 */
void
outbox_identity_name(char *name)
{
	uint64		hash =
		hash_bytes_extended((const unsigned char *) outbox_environment,
							strlen(outbox_environment),
							(uint64) outbox_own_origin());

	snprintf(name, OUTBOX_IDENTITY_NAME_SIZE, "outbox-identity.%016llx",
			 (unsigned long long) hash);
}

bool
outbox_identity_accepts(const OutboxIdentity *recorded, int64 origin)
{
	if (origin == outbox_own_origin())
		return true;
	for (int i = 0; i < recorded->nadopted; i++)
		if (recorded->adopted[i] == origin)
			return true;
	return false;
}
