/*-------------------------------------------------------------------------
 *
 * postgres.h (shim)
 *		As much of the server as src/config/uri.c, src/config/passfile.c and
 *		src/relay/link/twin.c use.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_TEST_SHIM_POSTGRES_H
#define OUTBOX_TEST_SHIM_POSTGRES_H

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define Assert(condition) assert(condition)
#define PGDLLIMPORT
#define Min(a, b) ((a) < (b) ? (a) : (b))
#define palloc(size) malloc(size)
#define pfree(pointer) free(pointer)
#define pstrdup(text) strdup(text)
#define pnstrdup(text, len) strndup(text, len)
#define pg_strncasecmp(a, b, n) strncasecmp(a, b, n)

__attribute__((format(printf, 1, 2)))
static inline char *
psprintf(const char *fmt,...)
{
	char	   *text = NULL;
	va_list		args;

	va_start(args, fmt);
	if (vasprintf(&text, fmt, args) < 0)
		abort();
	va_end(args);
	return text;
}

#endif							/* OUTBOX_TEST_SHIM_POSTGRES_H */
