/*-------------------------------------------------------------------------
 *
 * check_format.h
 *		Can a message be sent in the format of its route?  For check.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_CHECK_FORMAT_H
#define OUTBOX_CHECK_FORMAT_H

#include "check.h"
#include "format.h"

/*
 * Why the route's format, which is not plain, cannot carry the message, in words that
 * begin with the argument; NULL: it can, and *formatted is filled.
 */
extern const char *outbox_format_reason(const OutboxFields *fields,
										const OutboxRoute *route,
										OutboxFormatted *formatted);

/*
 * An error (22023) that names the argument if the route's format, which is not plain,
 * cannot carry the message; all else of it has been found to be fine.  Fills
 * *formatted, and returns how many bytes its headers and properties take.
 */
extern size_t outbox_check_format(const OutboxFields *fields,
								  const OutboxRoute *route,
								  OutboxFormatted *formatted);

#endif							/* OUTBOX_CHECK_FORMAT_H */
