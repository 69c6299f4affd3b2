/*-------------------------------------------------------------------------
 *
 * format.h
 *		outbox_route.format: what is on the wire for whom.
 *
 * A format says what goes out of a message besides or instead of what 'plain' sends:
 * headers, some properties, and what stands around the data in the body.  Enqueue asks it
 * what it cannot carry, and counts its bytes; the link asks it what to send.  Both ask
 * the same, so what was accepted can be sent.
 *
 * The answer does not depend on the moment: an attempt that is repeated because its
 * confirm was lost has to be the same in every byte.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_FORMAT_H
#define OUTBOX_FORMAT_H

#include "datatype/timestamp.h"
#include "utils/jsonb.h"

/* A format with its options; NULL where outbox_route.format is OUTBOX_NO_FORMAT. */
typedef struct OutboxFormat OutboxFormat;

#define OUTBOX_NO_FORMAT	"plain"

/* What is wrong with outbox_route.format or format_options. */
typedef struct OutboxFormatError
{
	const char *message;
	const char *hint;			/* or NULL */
} OutboxFormatError;

/*
 * The format of that name with these options (either may be NULL: none), in the
 * database's encoding, in a context below parent.  *error, if given, says what is wrong
 * with them; then nothing can be sent in the format.  Needs a transaction to convert.
 */
extern OutboxFormat *outbox_format_make(MemoryContext parent, const char *name,
										const Jsonb *options,
										OutboxFormatError *error);

/* NULL is fine. */
extern void outbox_format_free(OutboxFormat *format);

/* Its name, as in the table. */
extern const char *outbox_format_name(const OutboxFormat *format);

/* A message, as far as formats ask: UTF-8, NULL where it has none. */
typedef struct OutboxFormatMessage
{
	const char *id;
	const char *event_type;
	const char *aggregate_type;
	const char *aggregate_id;
	TimestampTz created_at;
	const Jsonb *payload;		/* NULL: it has a body of bytes */
	const char *content_type;	/* properties that the user has set */
	const char *content_encoding;
	const char *correlation_id;
	const Jsonb *headers;		/* the user's, in the database's encoding */
	const char *traceparent;	/* of the headers, as they go out */
	const char *tracestate;
} OutboxFormatMessage;

/* A header that replaces one of the user's with the same name. */
typedef struct OutboxFormatHeader
{
	const char *name;
	const char *text;
} OutboxFormatHeader;

#define OUTBOX_FORMAT_HEADERS	16

/* What is on the wire otherwise than in 'plain'. */
typedef struct OutboxFormatted
{
	int			nheaders;
	OutboxFormatHeader headers[OUTBOX_FORMAT_HEADERS];
	const char *content_type;	/* NULL: as in plain; likewise the next two */
	const char *content_encoding;
	const char *correlation_id;
	const char *prefix;			/* NULL: the body is the data alone */
	const char *suffix;
	bool		base64;			/* between them */
} OutboxFormatted;

/*
 * Fills *out, which points into the arguments and the current context.  Returns NULL, or
 * why the message cannot be sent in that format, in words that begin with the argument of
 * enqueue.
 */
extern const char *outbox_format_message(const OutboxFormat *format,
										 const OutboxFormatMessage *message,
										 OutboxFormatted *out);

/* A copy in UTF-8, of text in the database's encoding. */
extern char *outbox_format_utf8(const char *text, int len);

/* Bytes that the headers take on the wire, and the body with what is around its data. */
extern size_t outbox_format_header_size(const OutboxFormatted *formatted);
extern size_t outbox_format_body_size(const OutboxFormatted *formatted,
									  size_t data);

/* The body: the data itself, of *len bytes, or a copy within what is around it. */
extern char *outbox_format_body(const OutboxFormatted *formatted, char *data,
								size_t *len);

#endif							/* OUTBOX_FORMAT_H */
