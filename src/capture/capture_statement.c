/*-------------------------------------------------------------------------
 *
 * capture_statement.c
 *		Messages of all rows of a statement, out of its transition tables.
 *
 * An UPDATE has its old rows in one table and its new ones in another.  The server puts
 * both of a row there before it comes to the next one, so they are read in step.  One
 * thing only breaks the step: a row goes to another partition, whose trigger leaves it
 * out, so that only the old one is there (a foreign partition may lack the old one
 * instead, in older releases).  Then the tables differ in length, and no row has a pair.
 *
 * Deleted rows go first, and so do old ones whose key changes: else a row that gives
 * its key to the next one could end the key's messages.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture_internal.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
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
	TupleTableSlot *row;
	bool		has_row;
} Reader;

static void
store_change(const Statement *statement, const TupleTableSlot *old,
			 const TupleTableSlot *new)
{
	MemoryContext cxt;

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
	CHECK_FOR_INTERRUPTS();
	tuplestore_select_read_pointer(reader->rows, reader->pointer);
	reader->has_row = tuplestore_gettupleslot(reader->rows, true, false, reader->row);
	if (reader->has_row)
		slot_getallattrs(reader->row);
	return reader->has_row;
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

static void
capture_update(const Statement *statement, Tuplestorestate *old_rows,
			   Tuplestorestate *new_rows)
{
	const Capture *capture = statement->capture;
	bool		paired = tuplestore_tuple_count(old_rows) == tuplestore_tuple_count(new_rows);
	Reader		old;
	Reader		new;

	open_reader(&old, old_rows, capture->desc);
	open_reader(&new, new_rows, capture->desc);
	for (int pass = 0; pass < 2; pass++)
	{
		while (next_step(&old, &new))
		{
			bool		update = paired &&
				outbox_capture_same_columns(capture, capture->key, old.row, new.row);

			if (pass == 0 && old.has_row && !update)
				store_change(statement, old.row, NULL);
			if (pass == 1 && new.has_row)
				store_change(statement, update ? old.row : NULL, new.row);
		}
		rewind_reader(&old);
		rewind_reader(&new);
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
		capture_update(&statement, trigdata->tg_oldtable, trigdata->tg_newtable);
	else if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
		capture_rows(&statement, trigdata->tg_newtable, true);
	else
		capture_rows(&statement, trigdata->tg_oldtable, false);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(cxt);
}
