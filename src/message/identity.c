/*-------------------------------------------------------------------------
 *
 * identity.c
 *		Whose messages are these?  What tells a copy from the original.
 *
 * All that is recorded is compared here, and only here.  It is not one value,
 * which would be ours or not:
 *
 * - The origin is in each row as well, since rows come without the record (logical
 *   replication) or before it (a parallel restore).  So it has only what stays as
 *   long as a database does.  With the name or the timeline in it, a server that
 *   gets a name and a standby that takes over would have nothing but rows of
 *   others.
 * - The name must be equal, but one that a copy of the data has, too, is no answer.
 * - The timeline is another one after each promotion, and the relay has to go on.
 *   Only one that was left at a target tells, if that was since the record: this is
 *   an order, where the others are equality.
 *
 * Whoever reads the state also has to do something else for each.
 *
 * The record has the origin although the rows have theirs: a copy may be without
 * rows at first, and what the original has adopted is not adopted in its copies.
 *
 * Which ways of copying each part recognises is in doc/copies.md.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "environment.h"
#include "identity.h"
#include "origin.h"
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
 * Made of what two servers share whose relays both publish the same messages, and of
 * nothing else:
 *
 * - The origin, that is, system identifier and database.  They stay as long as the
 *   database does: a promotion, another host and another worker leave the name.
 * - The environment.  A copy under another one is silent, or was adopted to publish
 *   beside the original.
 *
 * The timeline is not in it, for both sides of a split are to meet, nor is what
 * differs between hosts.  The name is a hash because a queue's name is seen by
 * others; it is no secret, and proves nothing.
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
