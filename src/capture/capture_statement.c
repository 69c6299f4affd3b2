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

/* A transition table that is read. */
typedef struct Reader
{
	Tuplestorestate *rows;
	int			pointer;
	TupleTableSlot *slot;
	CaptureImage image;
} Reader;

/* A row out of step. */
typedef struct Stray
{
	const char *key;			/* NULL: its key is */
	int64		position;		/* among the strays of its table */
	MinimalTuple tuple;			/* of an old row */
	struct Stray *partner;		/* in the other table, or NULL */
} Stray;

typedef struct Strays
{
	Stray	  **rows;			/* by their positions */
	int64		count;
	int64		room;
} Strays;

static void
store_change(const Statement *statement, const CaptureImage *old,
			 const CaptureImage *new)
{
	MemoryContext cxt;

	CHECK_FOR_INTERRUPTS();
	MemoryContextReset(statement->per_row);
	cxt = MemoryContextSwitchTo(statement->per_row);
	outbox_capture_change(statement->capture, statement->outbox, old, new);
	MemoryContextSwitchTo(cxt);
}

static void
open_reader(Reader *reader, Tuplestorestate *rows, TupleDesc desc)
{
	reader->rows = rows;
	reader->slot = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	reader->pointer = tuplestore_alloc_read_pointer(rows, EXEC_FLAG_REWIND);
	tuplestore_select_read_pointer(rows, reader->pointer);
	tuplestore_rescan(rows);
}

static void
read_again(Reader *reader)
{
	tuplestore_select_read_pointer(reader->rows, reader->pointer);
	tuplestore_rescan(reader->rows);
}

static void
look_at(Reader *reader)
{
	slot_getallattrs(reader->slot);
	reader->image.values = reader->slot->tts_values;
	reader->image.isnull = reader->slot->tts_isnull;
}

/* Others read it, too, and leave their own position. */
static bool
next_row(Reader *reader)
{
	tuplestore_select_read_pointer(reader->rows, reader->pointer);
	if (!tuplestore_gettupleslot(reader->rows, true, false, reader->slot))
		return false;
	look_at(reader);
	return true;
}

/* ------------------------------------------------------------------ strays */

static void
keep_stray(Strays *strays, Capture *capture, const Reader *reader, bool old)
{
	int			nestlevel = outbox_capture_format_begin();
	text	   *key = outbox_capture_key(capture, &reader->image);
	Stray	   *stray;

	CHECK_FOR_INTERRUPTS();
	outbox_capture_format_end(nestlevel);
	if (strays->count == strays->room)
	{
		strays->room = Max(strays->room * 2, 64);
		strays->rows = strays->rows == NULL ?
			palloc(sizeof(Stray *) * strays->room) :
			repalloc_huge(strays->rows, sizeof(Stray *) * strays->room);
	}
	stray = palloc(sizeof(Stray));
	stray->key = key == NULL ? NULL : text_to_cstring(key);
	stray->position = strays->count;
	stray->tuple = old ? ExecCopySlotMinimalTuple(reader->slot) : NULL;
	stray->partner = NULL;
	strays->rows[strays->count++] = stray;
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
sort_strays(const Strays *strays)
{
	Size		size = sizeof(Stray *) * Max(strays->count, 1);
	Stray	  **sorted = palloc_extended(size, MCXT_ALLOC_HUGE);

	if (strays->count > 0)
	{
		memcpy(sorted, strays->rows, size);
		qsort(sorted, strays->count, sizeof(Stray *), compare_strays);
	}
	return sorted;
}

static void
pair_strays(const Strays *olds, const Strays *news)
{
	Stray	  **old = sort_strays(olds);
	Stray	  **new = sort_strays(news);
	int64		i = 0;
	int64		j = 0;

	while (i < olds->count && j < news->count)
	{
		int			order = compare_keys(old[i]->key, new[j]->key);

		if (order == 0)
		{
			old[i]->partner = new[j];
			new[j]->partner = old[i];
		}
		i += order <= 0;
		j += order >= 0;
	}
}

/* -------------------------------------------------------------- statements */

/* Both rows of a step; false: there are no more. */
static bool
next_step(Reader *old, Reader *new, bool *has_old, bool *has_new)
{
	*has_old = *has_old && next_row(old);
	*has_new = *has_new && next_row(new);
	return *has_old || *has_new;
}

static bool
in_step(const Capture *capture, const Reader *old, const Reader *new, bool has_old,
		bool has_new)
{
	return has_old && has_new &&
		outbox_capture_same_key(capture, &old->image, &new->image);
}

static void
collect_strays(Capture *capture, Reader *old, Strays *olds, Reader *new, Strays *news)
{
	bool		has_old = true;
	bool		has_new = true;

	while (next_step(old, new, &has_old, &has_new))
	{
		if (in_step(capture, old, new, has_old, has_new))
			continue;
		if (has_old)
			keep_stray(olds, capture, old, true);
		if (has_new)
			keep_stray(news, capture, new, false);
	}
	pair_strays(olds, news);
	read_again(old);
	read_again(new);
}

/* What has become of a new row, whose old one may have been read before or not. */
static void
store_new(const Statement *statement, const Stray *stray, const Reader *new)
{
	Reader		partner;

	if (stray->partner == NULL)
	{
		store_change(statement, NULL, &new->image);
		return;
	}
	partner.slot = MakeSingleTupleTableSlot(statement->capture->desc, &TTSOpsMinimalTuple);
	ExecStoreMinimalTuple(stray->partner->tuple, partner.slot, false);
	look_at(&partner);
	store_change(statement, &partner.image, &new->image);
	ExecDropSingleTupleTableSlot(partner.slot);
}

static void
capture_update(const Statement *statement, Tuplestorestate *old_rows,
			   Tuplestorestate *new_rows)
{
	Capture    *capture = statement->capture;
	Strays		olds = {NULL, 0, 0};
	Strays		news = {NULL, 0, 0};
	Reader		old;
	Reader		new;
	bool		has_old = true;
	bool		has_new = true;
	int64		i = 0;
	int64		j = 0;

	open_reader(&old, old_rows, capture->desc);
	open_reader(&new, new_rows, capture->desc);
	collect_strays(capture, &old, &olds, &new, &news);
	while (next_step(&old, &new, &has_old, &has_new))
	{
		if (in_step(capture, &old, &new, has_old, has_new))
		{
			store_change(statement, &old.image, &new.image);
			continue;
		}
		if (has_old && olds.rows[i++]->partner == NULL)
			store_change(statement, &old.image, NULL);
		if (has_new)
			store_new(statement, news.rows[j++], &new);
	}
	ExecDropSingleTupleTableSlot(old.slot);
	ExecDropSingleTupleTableSlot(new.slot);
}

static void
capture_rows(const Statement *statement, Tuplestorestate *rows, bool inserted)
{
	Reader		reader;

	open_reader(&reader, rows, statement->capture->desc);
	while (next_row(&reader))
		store_change(statement, inserted ? NULL : &reader.image,
					 inserted ? &reader.image : NULL);
	ExecDropSingleTupleTableSlot(reader.slot);
}

static void
refuse_unpaired(const Capture *capture)
{
	if (capture->nkey == 0)
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
