/*-------------------------------------------------------------------------
 *
 * trace.h
 *		Trace context of a message that is enqueued.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_TRACE_H
#define OUTBOX_TRACE_H

#include "utils/jsonb.h"

/*
 * The headers with traceparent and tracestate of whoever enqueues, where they
 * have no traceparent and there is one; else the headers as they are, which may
 * be NULL.
 */
extern Jsonb *outbox_trace_headers(Jsonb *headers);

/*
 * Headers of this context; NULL when parent is no traceparent.  A state that is none
 * is left out, as is NULL.
 */
extern Jsonb *outbox_trace_headers_of(const char *parent_text, const char *state);

#endif							/* OUTBOX_TRACE_H */
