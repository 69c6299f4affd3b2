/*-------------------------------------------------------------------------
 *
 * capture_statement.c
 *		Messages of all rows of a statement, out of its transition tables.
 *
 * An UPDATE has its old rows in one table and its new ones in another.  The server
 * fills both row by row, so they are read in step, and as long as the keys agree,
 * each pair is one row.  That need not stay so: a key may have been changed, or a row
 * have gone to a partition whose trigger left it out.  So both tables are read twice:
 * first those out of step are collected and paired by key, then the messages are
 * stored in the order of the rows, as FOR EACH ROW has it.  A row out of step without a
 * partner was deleted, or inserted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture_internal.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

typedef struct Statement
{
	Capture    *capture;
	Relation	outbox;
	MemoryContext per_row;		/* of one message, in the statement's own */
} Statement;

/* A row out of step. */
typedef struct Stray
{
	const char *key;			/* NULL: its key is */
	int64		position;		/* among the strays of its table */
	MinimalTuple tuple;			/* of an old row */
	struct Stray *partner;		/* in the other table, or NULL */
} Stray;

/* A transition table that is read. */
typedef struct Reader
{
	Tuplestorestate *rows;
	int			pointer;
	TupleTableSlot *row;
	bool		has_row;
	Stray	  **strays;			/* by their positions */
	int64		nstrays;
	int64		room;
} Reader;

static void
store_change(const Statement *statement, const TupleTableSlot *old,
			 const TupleTableSlot *new)
{
	MemoryContext cxt;

	CHECK_FOR_INTERRUPTS();
	MemoryContextReset(statement->per_row);
	cxt = MemoryContextSwitchTo(statement->per_row);
	outbox_capture_change(statement->capture, statement->outbox, old, new);
	MemoryContextSwitchTo(cxt);
}

static void
rewind_reader(Reader *reader)
{
	reader->has_row = true;
	tuplestore_select_read_pointer(reader->rows, reader->pointer);
	tuplestore_rescan(reader->rows);
}

static void
open_reader(Reader *reader, Tuplestorestate *rows, TupleDesc desc)
{
	memset(reader, 0, sizeof(*reader));
	reader->rows = rows;
	reader->row = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	reader->pointer = tuplestore_alloc_read_pointer(rows, EXEC_FLAG_REWIND);
	rewind_reader(reader);
}

/* Others read it, too, and leave their own position. */
static bool
next_row(Reader *reader)
{
	tuplestore_select_read_pointer(reader->rows, reader->pointer);
	reader->has_row = tuplestore_gettupleslot(reader->rows, true, false, reader->row);
	if (reader->has_row)
		slot_getallattrs(reader->row);
	return reader->has_row;
}

/* ------------------------------------------------------------------ strays */

static void
keep_stray(Capture *capture, Reader *reader, bool old)
{
	int			nestlevel = outbox_capture_format_begin();
	text	   *key = outbox_capture_key(capture, reader->row);
	Stray	   *stray = palloc0(sizeof(Stray));

	CHECK_FOR_INTERRUPTS();
	outbox_capture_format_end(nestlevel);
	if (reader->nstrays == reader->room)
	{
		reader->room = Max(reader->room * 2, 64);
		reader->strays = reader->strays == NULL ?
			palloc(sizeof(Stray *) * reader->room) :
			repalloc_huge(reader->strays, sizeof(Stray *) * reader->room);
	}
	stray->key = key == NULL ? NULL : text_to_cstring(key);
	stray->position = reader->nstrays;
	stray->tuple = old ? ExecCopySlotMinimalTuple(reader->row) : NULL;
	reader->strays[reader->nstrays++] = stray;
}

static int
compare_keys(const char *one, const char *other)
{
	if (one == NULL || other == NULL)
		return (other == NULL) - (one == NULL);
	return strcmp(one, other);
}

/* qsort */
static int
compare_strays(const void *one, const void *other)
{
	const Stray *a = *(Stray *const *) one;
	const Stray *b = *(Stray *const *) other;
	int			order = compare_keys(a->key, b->key);

	if (order != 0)
		return order;
	return (a->position > b->position) - (a->position < b->position);
}

static Stray **
sort_strays(const Reader *reader)
{
	Size		size = sizeof(Stray *) * reader->nstrays;
	Stray	  **sorted = palloc_extended(size, MCXT_ALLOC_HUGE);

	if (reader->nstrays > 0)
	{
		memcpy(sorted, reader->strays, size);
		qsort(sorted, reader->nstrays, sizeof(Stray *), compare_strays);
	}
	return sorted;
}

static void
pair_strays(const Reader *old, const Reader *new)
{
	Stray	  **olds = sort_strays(old);
	Stray	  **news = sort_strays(new);
	int64		i = 0;
	int64		j = 0;

	while (i < old->nstrays && j < new->nstrays)
	{
		int			order = compare_keys(olds[i]->key, news[j]->key);

		if (order == 0)
		{
			olds[i]->partner = news[j];
			news[j]->partner = olds[i];
		}
		i += order <= 0;
		j += order >= 0;
	}
}

/* -------------------------------------------------------------- statements */

/* Both rows of a step; false: there are no more. */
static bool
next_step(Reader *old, Reader *new)
{
	old->has_row = old->has_row && next_row(old);
	new->has_row = new->has_row && next_row(new);
	return old->has_row || new->has_row;
}

static bool
in_step(const Capture *capture, const Reader *old, const Reader *new)
{
	return old->has_row && new->has_row &&
		outbox_capture_same_columns(capture, capture->key, old->row, new->row);
}

static void
collect_strays(Capture *capture, Reader *old, Reader *new)
{
	while (next_step(old, new))
	{
		if (in_step(capture, old, new))
			continue;
		if (old->has_row)
			keep_stray(capture, old, true);
		if (new->has_row)
			keep_stray(capture, new, false);
	}
	pair_strays(old, new);
	rewind_reader(old);
	rewind_reader(new);
}

/* What has become of a new row, whose old one may have been read before or not. */
static void
store_new(const Statement *statement, const Stray *stray, const Reader *new)
{
	TupleTableSlot *old;

	if (stray->partner == NULL)
	{
		store_change(statement, NULL, new->row);
		return;
	}
	old = MakeSingleTupleTableSlot(statement->capture->desc, &TTSOpsMinimalTuple);
	ExecStoreMinimalTuple(stray->partner->tuple, old, false);
	slot_getallattrs(old);
	store_change(statement, old, new->row);
	ExecDropSingleTupleTableSlot(old);
}

static void
capture_update(const Statement *statement, Tuplestorestate *old_rows,
			   Tuplestorestate *new_rows)
{
	Capture    *capture = statement->capture;
	Reader		old;
	Reader		new;
	int64		i = 0;
	int64		j = 0;

	open_reader(&old, old_rows, capture->desc);
	open_reader(&new, new_rows, capture->desc);
	collect_strays(capture, &old, &new);
	while (next_step(&old, &new))
	{
		if (in_step(capture, &old, &new))
		{
			store_change(statement, old.row, new.row);
			continue;
		}
		if (old.has_row && old.strays[i++]->partner == NULL)
			store_change(statement, old.row, NULL);
		if (new.has_row)
			store_new(statement, new.strays[j++], &new);
	}
	ExecDropSingleTupleTableSlot(old.row);
	ExecDropSingleTupleTableSlot(new.row);
}

static void
capture_rows(const Statement *statement, Tuplestorestate *rows, bool inserted)
{
	Reader		reader;

	open_reader(&reader, rows, statement->capture->desc);
	while (next_row(&reader))
		store_change(statement, inserted ? NULL : reader.row, inserted ? reader.row : NULL);
	ExecDropSingleTupleTableSlot(reader.row);
}

static void
refuse_unpaired(const Capture *capture)
{
	if (capture->key == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("trigger \"%s\" needs a key to pair the old and the new rows of an UPDATE",
						capture->trigger),
				 errhint("Name the columns of the key, as in 'key=id', or create the trigger FOR EACH ROW.")));
}

void
outbox_capture_statement(Capture *capture, Relation outbox,
						 const TriggerData *trigdata)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "outbox captured statement",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(cxt);
	Statement	statement = {capture, outbox, NULL};

	statement.per_row = AllocSetContextCreate(cxt, "outbox captured row",
											  ALLOCSET_DEFAULT_SIZES);
	if (TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event))
	{
		refuse_unpaired(capture);
		capture_update(&statement, trigdata->tg_oldtable, trigdata->tg_newtable);
	}
	else if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
		capture_rows(&statement, trigdata->tg_newtable, true);
	else
		capture_rows(&statement, trigdata->tg_oldtable, false);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(cxt);
}
