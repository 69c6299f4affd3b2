/*-------------------------------------------------------------------------
 *
 * traceparent.h
 *		Trace context by W3C's recommendation (plain C).
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_TRACEPARENT_H
#define OUTBOX_TRACEPARENT_H

/* Characters of version 00, which is what we write. */
#define OUTBOX_TRACEPARENT_LEN	55

#define OUTBOX_TRACE_SAMPLED	0x01

typedef struct OutboxTraceparent
{
	char		trace_id[33];	/* 32 lower-case digits, not all zero */
	char		parent_id[17];	/* 16 of them */
	unsigned	flags;			/* those that version 00 has */
} OutboxTraceparent;

/*
 * Reads version-traceid-parentid-flags.  What a later version has behind the
 * flags is passed over, as the recommendation asks for.  Returns NULL, or what
 * is wrong with it; then *out is undefined.
 */
extern const char *outbox_traceparent_parse(const char *text, size_t len,
											OutboxTraceparent *out);

/* As version 00, with the terminating zero. */
extern void outbox_traceparent_format(const OutboxTraceparent *parent,
									  char out[OUTBOX_TRACEPARENT_LEN + 1]);

/*
 * The id of the span in which a message is sent: the same however often it is, and
 * never all zeros.  examples/tracing/spans.sql makes it from the id in SQL.
 */
extern void outbox_trace_span_id(const unsigned char message_id[16],
								 char out[17]);

/* Is it a list of at most 32 key=value?  Returns NULL, or what is wrong. */
extern const char *outbox_tracestate_check(const char *text, size_t len);

#endif							/* OUTBOX_TRACEPARENT_H */
