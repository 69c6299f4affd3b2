/*-------------------------------------------------------------------------
 *
 * format_def.h
 *		What a format is, for the files of this folder.
 *
 * Each format is one file: its OutboxFormatDef, the struct of its own options, and its
 * functions.  format.c and format_options.c do what all formats share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_FORMAT_DEF_H
#define OUTBOX_FORMAT_DEF_H

#include "format.h"
#include "lib/stringinfo.h"

/* What an event type is called, see the option types. */
typedef struct OutboxFormatType
{
	const char *event_type;
	int			nnames;			/* not 0 */
	const char **names;			/* only a rendered one may be empty */
} OutboxFormatType;

/*
 * A key of format_options that one format has.  Its field, in the format's own options,
 * is a const char * with one of choices, or with a string that is_valid accepts; set, if
 * given, fills a field of another type, and returns false for a wrong value.
 */
typedef struct OutboxFormatOption
{
	const char *key;			/* NULL: the end */
	size_t		offset;			/* of the field */
	const char *rule;			/* what the value must be */
	const char *const *choices; /* NULL at their end */
	bool		(*is_valid) (const char *text);
	bool		(*set) (void *field, const JsonbValue *value);
} OutboxFormatOption;

#define OUTBOX_FORMAT_OPTIONS	4

typedef struct OutboxFormatDef
{
	const char *name;			/* in outbox_route.format */
	bool		names_code;		/* the type is what runs at the consumer */
	bool		needs_payload;	/* the body is JSON around the payload */
	int			max_names;		/* of a type */
	OutboxFormatOption options[OUTBOX_FORMAT_OPTIONS + 1];	/* beside type, types */
	const void *defaults;		/* a struct of its own options, or NULL */
	size_t		size;			/* bytes of it */

	/*
	 * NULL, or says in *error what is wrong with options that are fine one by
	 * one
	 */
	void		(*check) (const void *options, OutboxFormatError *error);

	/* as outbox_format_message(), of a message whose type has those names */
	const char *(*message) (const void *options, const OutboxFormatMessage *message,
							const OutboxFormatType *type, OutboxFormatted *out);

	/* headers that the user may not set, NULL at their end, and the reason */
	const char *const *refused;
	const char *refused_reason;

	/*
	 * NULL, or returns why the user may not set this header, or NULL.  The
	 * name is in the database's encoding; value is UTF-8, or NULL if it is no
	 * string.
	 */
	const char *(*header) (const void *options, const char *name, size_t len,
						   const char *value);
} OutboxFormatDef;

/* A route's.  format_options.c makes it, and only format.c reads it. */
struct OutboxFormat
{
	MemoryContext cxt;
	const char *name;
	const OutboxFormatDef *def; /* NULL: there is none of that name */
	void	   *options;		/* def's own */
	const char *broken;			/* NULL, or why nothing can be sent in it */
	const char *type;			/* template of names; NULL: those listed only */
	bool		type_needs_key; /* it is empty without aggregate_type and _id */
	int			ntypes;			/* exceptions from it */
	OutboxFormatType *types;
};

/* All formats, in the order in which people are told of them. */
#define OUTBOX_FORMATS(format) \
	format(cloudevents) \
	format(debezium) \
	format(spring) \
	format(masstransit) \
	format(nservicebus) \
	format(cap) \
	format(celery) \
	format(laravel)

#define OUTBOX_FORMAT_DECLARE(format) extern const OutboxFormatDef outbox_format_##format;
OUTBOX_FORMATS(OUTBOX_FORMAT_DECLARE)

/* NULL: the value is no string, or an empty one. */
extern char *outbox_format_string(const JsonbValue *value);

/* The next key of an object, and its value; false at the end. */
extern bool outbox_format_next(JsonbIterator **it, JsonbValue *key,
							   JsonbValue *value);

/* The one of choices, which ends with NULL, that the value is; NULL: another one. */
extern const char *outbox_format_choice(const JsonbValue *value,
										const char *const *choices);

/* A template with what the message has. */
extern char *outbox_format_render(const char *template,
								  const OutboxFormatMessage *message);

/* The header traceparent, if it is one; else NULL. */
extern const char *outbox_format_traceparent(const OutboxFormatMessage *message);

/* The message's, or what it is sent with if it has none. */
extern const char *outbox_format_content_type(const OutboxFormatMessage *message);

/* NULL, or why the property content_encoding does not fit "in FORM NAME", which is JSON. */
extern const char *outbox_format_refuse_encoding(const OutboxFormatMessage *message,
												 const char *form, const char *name);

/* A NULL text is no header. */
extern void outbox_format_add_header(OutboxFormatted *out, const char *name,
									 const char *text);

/* ', "name": "text"' as JSON; nothing for a NULL text. */
extern void outbox_format_put_member(StringInfo json, const char *name,
									 const char *text);

/* Is it one of these, which end with NULL? */
extern bool outbox_format_is_one_of(const char *name, size_t len,
									const char *const *names);

#endif							/* OUTBOX_FORMAT_DEF_H */
