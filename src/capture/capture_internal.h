/*-------------------------------------------------------------------------
 *
 * capture_internal.h
 *		outbox_capture(): changes of a table as messages.
 *
 * capture_args.c reads the arguments of a trigger, capture_table.c finds out what
 * they mean for its table, capture_payload.c makes the payload of a row, capture.c
 * its key, and stores messages of rows, capture_statement.c those of a whole
 * statement; capture_create.c looks at a trigger when it is created.
 *
 * A row is a slot whose columns are all in tts_values and tts_isnull.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_CAPTURE_INTERNAL_H
#define OUTBOX_CAPTURE_INTERNAL_H

#include "access/tupdesc.h"
#include "commands/trigger.h"
#include "enqueue.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

typedef enum CaptureOp
{
	CAPTURE_INSERT,
	CAPTURE_UPDATE,
	CAPTURE_DELETE,
	CAPTURE_TRUNCATE
} CaptureOp;

#define CAPTURE_OPS 4

/* The payload is a row as it is now, or was; bits of what it is else. */
#define CAPTURE_CHANGED	0x01	/* of an UPDATE the key and what it changed */
#define CAPTURE_BOTH	0x02	/* {"old": row, "new": row} */

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

/* The arguments of a trigger; NULL where one was not given. */
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
	int			payload;		/* CAPTURE_CHANGED, CAPTURE_BOTH */
	int			emit_unchanged;
	int			unpublishable;	/* CaptureUnpublishable */
	int			headers;		/* CAPTURE_HEADER_... */
} CaptureArgs;

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
	List	   *key;			/* numbers of its columns */
	FmgrInfo   *key_out;
	List	   *columns;		/* of the payload */
	FmgrInfo   *column_to_jsonb;	/* of those whose values may fail; else 0 */
	TupleDesc	columns_desc;	/* a row of their base types, jsonb of those
								 * that may fail */
	TupleDesc	pair_desc;		/* a row of old and new, both jsonb */
	FmgrInfo	to_jsonb;		/* of such rows */
	Datum		route;			/* text */
	text	   *aggregate_type;
	OutboxFields constants[CAPTURE_OPS];	/* what all messages of one have;
											 * event_type NULL: not yet known */
} Capture;

/* One that is made of a row. */
typedef struct CaptureMessage
{
	OutboxFields fields;
	const TupleTableSlot *old;	/* NULL for an INSERT */
	const TupleTableSlot *new;	/* NULL for a DELETE */
	List	   *omitted_key;	/* columns of a key that cannot be one; NIL:
								 * none */
} CaptureMessage;

/* The name of a column by its number. */
#define capture_column_name(capture, attnum) \
	NameStr(TupleDescAttr((capture)->desc, (attnum) - 1)->attname)

/* capture_args.c: the name and the arguments of the trigger are read */
extern void outbox_capture_read_args(CaptureArgs *args, const Trigger *trigger);

/* Replaces {schema}, {table} and, where op is not NULL, {op}. */
extern char *outbox_capture_expand(const char *argument, const char *template,
								   const Capture *capture, const char *op);

/* capture_table.c */

/* A copy of the row in pg_trigger, by that snapshot or (NULL) the latest; NULL: it is gone. */
extern HeapTuple outbox_capture_find_trigger(Oid trigger, Snapshot snapshot);
extern Capture *outbox_capture_make(Relation rel, const Trigger *trigger,
									MemoryContext cxt);
extern const OutboxFields *outbox_capture_constants(Capture *capture, CaptureOp op);

/* Those of CAPTURE_HEADER_... that are asked for, as an object; NULL: there are none. */
extern Jsonb *outbox_capture_headers(const Capture *capture, int asked,
									 const char *tg_op);

/* May the table's owner use outbox_capture() at all?  An ERROR (42501) if not. */
extern void outbox_capture_check_owner(const Capture *capture);

/* capture_payload.c: fills the fields that are of the row; an ERROR where they are to be whole and cannot. */
extern void outbox_capture_fill(Capture *capture, Relation outbox,
								CaptureMessage *message);

/* capture.c */

/* Adds the headers that name what the message is without: columns of the payload, and its key. */
extern void outbox_capture_name_omitted(const Capture *capture, CaptureMessage *message,
										const List *omitted);
extern bool outbox_capture_same(const Capture *capture, int attnum,
								const TupleTableSlot *one,
								const TupleTableSlot *other);
extern bool outbox_capture_same_columns(const Capture *capture, const List *columns,
										const TupleTableSlot *one,
										const TupleTableSlot *other);
extern text *outbox_capture_key(Capture *capture, const TupleTableSlot *row);

/* Between them values become text in one way, whatever the session has set. */
extern int	outbox_capture_format_begin(void);
extern void outbox_capture_format_end(int nestlevel);

/* old is NULL for an INSERT, new for a DELETE. */
extern void outbox_capture_change(Capture *capture, Relation outbox,
								  const TupleTableSlot *old,
								  const TupleTableSlot *new);

/* capture_statement.c: all rows of the transition tables. */
extern void outbox_capture_statement(Capture *capture, Relation outbox,
									 const TriggerData *trigdata);

#endif							/* OUTBOX_CAPTURE_INTERNAL_H */
