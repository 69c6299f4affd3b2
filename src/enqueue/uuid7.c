/*-------------------------------------------------------------------------
 *
 * uuid7.c
 *		UUIDs of version 7 (RFC 9562), the ids of messages.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "enqueue_internal.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(outbox_uuid7);

/*
 * For servers before 18: 48 bits of Unix milliseconds, 12 bits of fraction of it so
 * that values of one backend grow within a millisecond, 62 random bits.  Random
 * bytes are drawn many at a time, as each draw is a system call.
 */
static void
make_uuid7(pg_uuid_t *uuid)
{
	static uint8 pool[1024];
	static int	pool_pid = 0;
	static size_t used = sizeof(pool);
	TimestampTz now = GetCurrentTimestamp();
	uint64		us = (uint64) (now + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY);
	uint64		ms = us / 1000;
	uint16		fraction = (uint16) ((us % 1000) * 4096 / 1000);

	/* A forked child must not repeat what its parent drew. */
	if (used + 8 > sizeof(pool) || pool_pid != MyProcPid)
	{
		if (!pg_strong_random(pool, sizeof(pool)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate random values")));
		used = 0;
		pool_pid = MyProcPid;
	}
	for (int i = 0; i < 6; i++)
		uuid->data[i] = (uint8) (ms >> (8 * (5 - i)));
	uuid->data[6] = 0x70 | (uint8) (fraction >> 8);
	uuid->data[7] = (uint8) fraction;
	memcpy(&uuid->data[8], pool + used, 8);
	used += 8;
	uuid->data[8] = (uuid->data[8] & 0x3f) | 0x80;
}

void
outbox_make_uuid7(pg_uuid_t *uuid)
{
	if (COMPAT_HAVE_UUIDV7)
		*uuid = *compat_uuidv7();
	else
		make_uuid7(uuid);
}

Datum
outbox_uuid7(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *uuid = palloc(sizeof(pg_uuid_t));

	(void) fcinfo;
	outbox_make_uuid7(uuid);
	PG_RETURN_UUID_P(uuid);
}
