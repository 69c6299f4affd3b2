/*-------------------------------------------------------------------------
 *
 * sqlcommenter.h
 *		Trace context in the comment at the end of a statement (plain C).
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_SQLCOMMENTER_H
#define OUTBOX_SQLCOMMENTER_H

#include "traceparent.h"

/* What W3C asks everybody to pass on; a longer tracestate is dropped. */
#define OUTBOX_COMMENT_STATE_MAX	512

typedef struct OutboxSqlComment
{
	OutboxTraceparent parent;
	char		state[OUTBOX_COMMENT_STATE_MAX + 1];	/* empty: none */
} OutboxSqlComment;

/*
 * Does the statement end in a comment of sqlcommenter's form, with a traceparent?
 * One that is malformed, or whose traceparent is, says nothing.
 */
extern bool outbox_sqlcommenter_read(const char *statement, size_t len,
									 OutboxSqlComment *out);

#endif							/* OUTBOX_SQLCOMMENTER_H */
