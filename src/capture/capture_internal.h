/*-------------------------------------------------------------------------
 *
 * capture_internal.h
 *		outbox_capture(): changes of a table as messages.
 *
 * capture_args.c reads the arguments of a trigger, capture_table.c finds out what
 * they mean for its table, capture_row.c makes the key of a row and
 * capture_payload.c the payload, capture.c stores messages of rows,
 * capture_statement.c those of a whole statement; capture_create.c looks at a
 * trigger when it is created.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_CAPTURE_INTERNAL_H
#define OUTBOX_CAPTURE_INTERNAL_H

#include "access/tupdesc.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "utils/relcache.h"

typedef enum CaptureOp
{
	CAPTURE_INSERT,
	CAPTURE_UPDATE,
	CAPTURE_DELETE,
	CAPTURE_TRUNCATE
} CaptureOp;

#define CAPTURE_OPS 4

typedef enum CapturePayload
{
	CAPTURE_ROW,				/* the row as it is now, or was */
	CAPTURE_CHANGED,			/* of an UPDATE the key and what it changed */
	CAPTURE_BOTH,				/* {"old": row, "new": row} */
	CAPTURE_DIFF				/* both, of an UPDATE the key and what it
								 * changed */
} CapturePayload;

/* What becomes of a row that cannot be published as it is. */
typedef enum CaptureUnpublishable
{
	CAPTURE_REFUSE_NEW,			/* a new row is refused, of an old one parts
								 * go */
	CAPTURE_REFUSE,				/* refused */
	CAPTURE_OMIT				/* the parts that cannot be published are left
								 * out */
} CaptureUnpublishable;

#define CAPTURE_HEADER_OP		0x01
#define CAPTURE_HEADER_SCHEMA	0x02
#define CAPTURE_HEADER_TABLE	0x04
#define CAPTURE_HEADER_TXID		0x08

/* A trigger as it was created; what errors say. */
typedef struct CaptureTrigger
{
	const char *name;
	int			nargs;
	char	  **args;
} CaptureTrigger;

/* Its arguments; NULL where one was not given. */
typedef struct CaptureArgs
{
	const char *event;
	const char *event_type;
	const char *aggregate_type;
	const char *key;
	const char *columns;
	const char *except;
	const char *route;
	const char *routing_key;
	CapturePayload payload;
	bool		emit_unchanged;
	CaptureUnpublishable unpublishable;
	int			headers;		/* CAPTURE_HEADER_... */
} CaptureArgs;

/* What all messages of one operation have. */
typedef struct CaptureConstants
{
	bool		known;
	Datum		event_type;		/* text */
	Datum		routing_key;	/* text; 0: none was given */
	Datum		headers;		/* jsonb; 0: none were asked for */
} CaptureConstants;

/* A trigger and its table, for as long as the statement runs. */
typedef struct Capture
{
	CaptureArgs args;
	MemoryContext cxt;			/* of all that is here */
	const char *trigger;
	const char *schema;			/* of the table that CREATE TRIGGER named ... */
	const char *table;
	Oid			owner;			/* ... as whose owner all of it is done */
	const char *owner_name;
	Oid			function;		/* outbox_capture() */
	TupleDesc	desc;			/* of the rows, which may be of a partition */
	int			nkey;
	AttrNumber *key;
	FmgrInfo   *key_out;
	int			ncolumns;		/* of the payload */
	AttrNumber *columns;
	FmgrInfo   *column_to_jsonb;	/* of those whose values may fail; else 0 */
	TupleDesc	columns_desc;	/* a row of their base types, jsonb of those
								 * that may fail */
	TupleDesc	pair_desc;		/* a row of old and new, both jsonb */
	FmgrInfo	to_jsonb;		/* of such rows */
	Datum		route;			/* text */
	Datum		aggregate_type; /* text */
	CaptureConstants constants[CAPTURE_OPS];
} Capture;

/* A row, with all columns of its table. */
typedef struct CaptureImage
{
	Datum	   *values;
	bool	   *isnull;
} CaptureImage;

/* One that is made of a row. */
typedef struct CaptureMessage
{
	CaptureOp	op;
	const CaptureImage *old;	/* NULL for an INSERT */
	const CaptureImage *new;	/* NULL for a DELETE */
	text	   *key;			/* NULL: it has none */
	bool		key_omitted;	/* because it cannot be one */
	Datum		payload;		/* jsonb */
	bool	   *omitted;		/* columns of the payload; NULL: none */
} CaptureMessage;

/* capture_args.c */
extern void outbox_capture_read_args(CaptureArgs *args,
									 const CaptureTrigger *trigger);

/* Replaces {schema}, {table} and, where op is not NULL, {op}. */
extern char *outbox_capture_expand(const char *argument, const char *template,
								   const Capture *capture, const char *op);

/* capture_table.c */
extern Capture *outbox_capture_make(Relation rel, const CaptureTrigger *trigger,
									Oid function, Oid named, MemoryContext cxt);

/* The table that CREATE TRIGGER named, of which this trigger may be a clone. */
extern Oid	outbox_capture_named_table(const Trigger *trigger, Oid relid);
extern void outbox_capture_check_type(int16 tgtype, bool has_old, bool has_new,
									  const char *trigger);
extern const CaptureConstants *outbox_capture_constants(Capture *capture,
														CaptureOp op);

/* May the table's owner use outbox_capture() at all?  An ERROR (42501) if not. */
extern void outbox_capture_check_owner(const Capture *capture);

/* capture_row.c */
extern bool outbox_capture_same(const Capture *capture, int attnum,
								const CaptureImage *one,
								const CaptureImage *other);
extern bool outbox_capture_same_key(const Capture *capture,
									const CaptureImage *one,
									const CaptureImage *other);
extern bool outbox_capture_unchanged(const Capture *capture,
									 const CaptureImage *old,
									 const CaptureImage *new);
extern bool outbox_capture_in_key(const Capture *capture, int attnum);
extern text *outbox_capture_key(Capture *capture, const CaptureImage *image);
/* Between them values become text in one way, whatever the session has set. */
extern int	outbox_capture_format_begin(void);
extern void outbox_capture_format_end(int nestlevel);

/* capture_payload.c: fills key and payload; an ERROR where they are to be whole and cannot. */
extern void outbox_capture_fill(Capture *capture, Relation outbox,
								CaptureMessage *message);

/* capture.c: old is NULL for an INSERT, new for a DELETE. */
extern void outbox_capture_change(Capture *capture, Relation outbox,
								  const CaptureImage *old,
								  const CaptureImage *new);

/* capture_statement.c: all rows of the transition tables. */
extern void outbox_capture_statement(Capture *capture, Relation outbox,
									 const TriggerData *trigdata);

#endif							/* OUTBOX_CAPTURE_INTERNAL_H */
