/*-------------------------------------------------------------------------
 *
 * rfc3339.c
 *		Time as text.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "rfc3339.h"
#include "utils/timestamp.h"

char *
outbox_rfc3339(TimestampTz time)
{
	struct pg_tm tm;
	fsec_t		fsec;

	if (TIMESTAMP_NOT_FINITE(time) ||
		timestamp2tm(time, NULL, &tm, &fsec, NULL, NULL) != 0 ||
		tm.tm_year < 1 || tm.tm_year > 9999)
		return NULL;
	return psprintf("%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", tm.tm_year,
					tm.tm_mon, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
					(int) fsec);
}
