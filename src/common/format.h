/*-------------------------------------------------------------------------
 *
 * format.h
 *		outbox_route.format: what is on the wire for whom.
 *
 * A format says, of a message as it is stored, what else or other than in 'plain'
 * goes out: headers of its own, some properties, and what stands around the data in
 * the body.  Enqueue asks it to refuse what it cannot carry and to count its bytes,
 * the link asks it to send; since both ask with the same words, what was accepted
 * can be sent.
 *
 * Nothing may depend on the moment of asking: an attempt that is repeated because
 * its confirm was lost has to be the same in every byte.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_FORMAT_H
#define OUTBOX_FORMAT_H

#include "datatype/timestamp.h"
#include "utils/jsonb.h"

typedef enum OutboxFormatKind
{
	OUTBOX_FORMAT_CLOUDEVENTS,
	OUTBOX_FORMAT_DEBEZIUM,
	OUTBOX_FORMAT_SPRING,
	OUTBOX_FORMAT_MASSTRANSIT,
	OUTBOX_FORMAT_NSERVICEBUS,
	OUTBOX_FORMAT_CAP,
	OUTBOX_FORMAT_CELERY,
	OUTBOX_FORMAT_LARAVEL
} OutboxFormatKind;

/* Columns that the format debezium puts into headers. */
typedef enum OutboxDebeziumHeader
{
	OUTBOX_DEBEZIUM_EVENT_TYPE,
	OUTBOX_DEBEZIUM_AGGREGATE_TYPE,
	OUTBOX_DEBEZIUM_AGGREGATE_ID
} OutboxDebeziumHeader;

#define OUTBOX_DEBEZIUM_HEADERS	3

/* Addresses of MassTransit's envelope: source, destination, response, fault. */
#define OUTBOX_MASSTRANSIT_ADDRESSES 4

/* What an event type is called, see the option types. */
typedef struct OutboxFormatType
{
	const char *event_type;
	int			nnames;			/* not 0 */
	const char **names;
} OutboxFormatType;

/*
 * A format with its options, in UTF-8, and in a context of its own.  There is none
 * for 'plain', so that it costs the test of a pointer.
 */
typedef struct OutboxFormat
{
	MemoryContext cxt;
	OutboxFormatKind kind;
	const char *broken;			/* NULL, or why nothing can be sent in it */
	const char *type;			/* template of names of types; NULL: those listed only */
	bool		type_needs_key;	/* without aggregate_type or _id it says nothing */
	int			ntypes;			/* exceptions from it */
	OutboxFormatType *types;
	/* cloudevents */
	const char *prefix;			/* of the names of attributes in headers */
	const char *source;			/* template, checked with each message */
	const char *dataschema;		/* likewise, or NULL */
	bool		structured;
	/* debezium */
	const char *headers[OUTBOX_DEBEZIUM_HEADERS];	/* names; NULL: not sent */
	bool		quoted;			/* values are JSON strings */
	/* masstransit */
	const char *addresses[OUTBOX_MASSTRANSIT_ADDRESSES];	/* NULL: none */
	/* nservicebus */
	const char *intent;
	const char *endpoint;		/* NULL: not said */
	/* celery */
	bool		one_argument;	/* the payload is one, and not all of them */
} OutboxFormat;

/* What is wrong with outbox_route.format or format_options. */
typedef struct OutboxFormatError
{
	const char *message;
	const char *hint;			/* or NULL */
} OutboxFormatError;

/*
 * The format of that name with these options (either may be NULL: plain, none), in
 * the database's encoding; NULL for 'plain'.  One that has an error is broken, and
 * *error says why, if error is given.  Allocates below parent.  Called in a
 * transaction, as it may convert.
 */
extern OutboxFormat *outbox_format_make(MemoryContext parent, const char *name,
										const Jsonb *options,
										OutboxFormatError *error);

/* NULL is fine. */
extern void outbox_format_free(OutboxFormat *format);

/* The name of its kind, as in the table. */
extern const char *outbox_format_name(const OutboxFormat *format);

/* The names of all formats, for people. */
extern const char *outbox_format_names(void);

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
 * Fills *out with what points into the arguments or is allocated in the current
 * context.  Returns NULL, or why the message cannot be sent in that format, in words
 * that begin with the argument of enqueue.
 */
extern const char *outbox_format_message(const OutboxFormat *format,
										 const OutboxFormatMessage *message,
										 OutboxFormatted *out);

/*
 * The same of a header that the user has set, and whether its value is a string.
 * The name may be in any encoding of the server.
 */
extern const char *outbox_format_check_header(const OutboxFormat *format,
											  const char *name, size_t len,
											  bool is_string);

/* A copy in UTF-8, of text in the database's encoding. */
extern char *outbox_format_utf8(const char *text, int len);

/* Bytes that the headers take on the wire, and of the body beside its data. */
extern size_t outbox_format_header_size(const OutboxFormatted *formatted);
extern size_t outbox_format_body_size(const OutboxFormatted *formatted,
									  size_t data);

#endif							/* OUTBOX_FORMAT_H */
