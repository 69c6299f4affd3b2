/*-------------------------------------------------------------------------
 *
 * launcher_server.h
 *		The server below the launcher's files, for launcher.c and turns.c: a clock that
 *		they set, no chance, and no texts.  Included behind those files.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LAUNCHER_SERVER_H
#define LAUNCHER_SERVER_H

#undef printf
#undef vprintf

#include "../unit/check.h"

OutboxShared *outbox_shared;
MemoryContext CurrentMemoryContext;
pg_prng_state pg_global_prng_state;
int			MyProcPid = 1;

static int64 now_us = 1000000;

extern int	sim_clock_gettime(clockid_t clock, struct timespec *now);

int
sim_clock_gettime(clockid_t clock, struct timespec *now)
{
	now->tv_sec = now_us / 1000000;
	now->tv_nsec = now_us % 1000000 * 1000;
	return 0;
}

void
ExceptionalCondition(const char *conditionName,
#if PG_VERSION_NUM < 160000
					 const char *errorType,
#endif
					 const char *fileName, int lineNumber)
{
	printf("not ok - %s:%d: %s\n", fileName, lineNumber, conditionName);
	exit(1);
}

int
pg_snprintf(char *str, size_t count, const char *fmt,...)
{
	str[0] = '\0';
	return 0;
}

uint32
pg_prng_uint32(pg_prng_state *state)
{
	return PG_UINT32_MAX;
}

bool
outbox_hold_exists(Oid dboid)
{
	return false;
}

#endif							/* LAUNCHER_SERVER_H */
