/*-------------------------------------------------------------------------
 *
 * pg.h
 *		The server around what is fuzzed: see pg.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FUZZ_PG_H
#define FUZZ_PG_H

#include "lib/stringinfo.h"
#include "utils/jsonb.h"

/* Frees all that was allocated in any context, and makes the first ones anew. */
extern void fuzz_memory_reset(void);

/* The n-th palloc() from now on throws out of memory, as a server's does; 0: none. */
extern void fuzz_palloc_fail(unsigned long nth);
extern unsigned long fuzz_pallocs;

/* Of the last ERROR; its SQLSTATE is geterrcode(). */
extern char fuzz_error_text[1024];

/* What the types of values.c consist of, and the longest list. */
#define FUZZ_BASE64 "ABCabc0123456789+/= \n"
#define FUZZ_TIME	"0123456789-:+TZ. "
#define FUZZ_UUID	"0123456789abcdefABCDEF-{}"
#define FUZZ_LIST	4096

/* What GetDatabaseEncoding() says. */
extern int	fuzz_encoding;

/* Descriptors that AcquireExternalFD() has given and nobody has given back. */
extern int	fuzz_external_fds;

/*
 * A document, in the server's own layout, between begin and finish.  Within an
 * object each value has a key before it.  A number is the text that it has.
 */
extern void fuzz_json_begin(void);
extern void fuzz_json_open(bool object);
extern void fuzz_json_close(void);
extern void fuzz_json_key(const char *text, size_t len);
extern void fuzz_json_string(const char *text, size_t len);
extern void fuzz_json_number(const char *digits);
extern void fuzz_json_bool(bool value);
extern void fuzz_json_null(void);
extern Jsonb *fuzz_json_finish(void);

/* Says what is wrong and aborts, so that the input is kept. */
extern void fuzz_fail(const char *fmt,...) pg_attribute_printf(1, 2) pg_attribute_noreturn();

#define fuzz_check(condition, ...) \
	do { if (!(condition)) fuzz_fail(__VA_ARGS__); } while (0)

#endif							/* FUZZ_PG_H */
