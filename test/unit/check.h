/*-------------------------------------------------------------------------
 *
 * check.h
 *		What the unit tests need: TAP lines and an exit status.
 *
 * check() prints "ok N - text" or "not ok N - text" with the place; each main
 * returns done(), which prints the plan.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_TEST_CHECK_H
#define OUTBOX_TEST_CHECK_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static int	checks_run;
static int	checks_failed;

__attribute__((format(printf, 4, 5)))
static inline bool
check_at(bool ok, const char *file, int line, const char *fmt,...)
{
	va_list		args;

	checks_run++;
	printf("%s %d - ", ok ? "ok" : "not ok", checks_run);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n");
	if (!ok)
	{
		checks_failed++;
		printf("# failed at %s:%d\n", file, line);
	}
	fflush(stdout);
	return ok;
}

#define check(ok, ...) check_at((ok), __FILE__, __LINE__, __VA_ARGS__)

static inline int
done(void)
{
	printf("1..%d\n", checks_run);
	return checks_failed == 0 && checks_run > 0 ? 0 : 1;
}

#endif							/* OUTBOX_TEST_CHECK_H */
