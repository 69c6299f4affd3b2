/*-------------------------------------------------------------------------
 *
 * test_point.c
 *		Points at which a test build of the relay can be stopped; see test_point.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "test_point.h"

#ifdef OUTBOX_TEST_POINTS

#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "miscadmin.h"

#define POINT_FILE	"outbox_test_point"
#define HIT_FILE	"outbox_test_point.hit"
#define MAX_WAIT_MS 60000
#define NAP_US		5000

/* The process's current directory is the data directory. */
static bool
read_order(char *point, char *action, int *nth)
{
	FILE	   *file = fopen(POINT_FILE, "r");
	int			n;

	if (file == NULL)
		return false;
	n = fscanf(file, "%31s %15s %d", point, action, nth);
	fclose(file);
	return n == 3;
}

static void
wait_here(const char *point, bool spins)
{
	OutboxMonoTime end = outbox_mono_after(MAX_WAIT_MS);
	FILE	   *file = fopen(HIT_FILE ".new", "w");
	struct stat st;

	if (file == NULL)
		elog(PANIC, "could not create %s: %m", HIT_FILE);
	fprintf(file, "%s %d\n", point, MyProcPid);
	fclose(file);
	if (rename(HIT_FILE ".new", HIT_FILE) != 0)
		elog(PANIC, "could not create %s: %m", HIT_FILE);
	while (!outbox_mono_reached(end, outbox_mono_now()) && stat(HIT_FILE, &st) == 0)
		if (!spins)
			pg_usleep(NAP_US);
}

void
outbox_test_point(const char *point)
{
	static char counted[32];
	static int	hits = 0;
	char		wanted[32];
	char		action[16];
	int			nth;

	if (!read_order(wanted, action, &nth) || strcmp(wanted, point) != 0)
		return;
	/* A new order starts to count from 1. */
	if (strcmp(counted, wanted) != 0)
	{
		strlcpy(counted, wanted, sizeof(counted));
		hits = 0;
	}
	if (++hits < nth)
		return;
	counted[0] = '\0';
	if (nth > 0)
		(void) unlink(POINT_FILE);
	if (strcmp(action, "wait") == 0 || strcmp(action, "spin") == 0)
		wait_here(point, action[0] == 's');
	else if (strcmp(action, "nap") == 0)
		pg_usleep(NAP_US);
	else
		ereport(strcmp(action, "fatal") == 0 ? FATAL : ERROR,
				(errmsg("outbox test point at %s", point)));
}

bool
outbox_test_omits(const char *what)
{
	char		name[MAXPGPATH];
	struct stat st;

	snprintf(name, sizeof(name), POINT_FILE ".%s", what);
	return stat(name, &st) == 0;
}

#endif							/* OUTBOX_TEST_POINTS */
