/*-------------------------------------------------------------------------
 *
 * batch_enqueue.c
 *		outbox_enqueue_batch(): many messages by one statement.
 *
 * The elements are read, judged and, with outbox.strict_keys, locked one after the other,
 * and put into a tuplestore; then one INSERT ... SELECT stores them all, as the owner,
 * through the executor, as for a single message (enqueue.c).  So all are stored, or none.
 * The ids go from its RETURNING into the tuplestore that is the result, so that memory is
 * bounded by work_mem beside the array itself.
 *
 * The row trigger and the server say what is wrong with a row, but not which it is.  So
 * the statement calls outbox_batch_element() for each row before it is stored, for the
 * context of an error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "enqueue_internal.h"
#include "executor/spi.h"
#include "executor/tstoreReceiver.h"
#include "executor/tuptable.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(outbox_enqueue_batch);
PG_FUNCTION_INFO_V1(outbox_batch_element);

/*
 * The tuplestore has the number of the element, and behind it the columns that the
 * INSERT names.
 */
#define MAX_ATTRS		(1 + OUTBOX_COLUMNS)
#define ELEMENT_ATTR	1

/* Found before any table of that name, as it has no schema. */
#define ROWS_NAME "outbox_batch_rows"

#define BATCH_SQL \
	"INSERT INTO outbox_internal.outbox (%s) SELECT %s" \
	" FROM " ROWS_NAME " b WHERE outbox_internal.outbox_batch_element(b.element::pg_catalog.int4)" \
	" RETURNING id"

/* Behind the last row: an error from here on is of no element. */
#define NO_ELEMENT	(-1)

typedef struct Batch
{
	int			element;		/* at which it is, or NO_ELEMENT */
	const char *key;			/* of that element, or NULL */
	int			n;				/* messages */
	TupleDesc	desc;			/* of rows */
	int			id_attr;		/* of rows */
	Tuplestorestate *rows;
	MemoryContext result_cxt;	/* of what outlives the call: */
	TupleDesc	id_desc;
	Tuplestorestate *ids;		/* of those that were stored; the result */
} Batch;

static OutboxKeptPlan kept;

/* The innermost one whose INSERT runs: a trigger may call us again. */
static Batch *running = NULL;

static void
name_element(void *arg)
{
	Batch	   *batch = arg;

	if (batch->element == NO_ELEMENT)
		return;
	if (batch->key != NULL)
		errcontext("key \"%s\" of element %d of messages, counted from 0",
				   batch->key, batch->element);
	else
		errcontext("element %d of messages, counted from 0", batch->element);
}

Datum
outbox_batch_element(PG_FUNCTION_ARGS)
{
	int			element = PG_GETARG_INT32(0);

	if (running != NULL)
		running->element = element;
	PG_RETURN_BOOL(element != NO_ELEMENT);
}

/* ------------------------------------------------------------ reading them */

static void
make_desc(Batch *batch)
{
	List	   *names = list_make1(makeString(pstrdup("element")));
	List	   *types = list_make1_oid(INT4OID);
	List	   *typmods = list_make1_int(-1);
	List	   *collations = list_make1_oid(InvalidOid);

	for (int col = 1; col <= OUTBOX_COLUMNS; col++)
	{
		const OutboxColumn *column = &outbox_columns[col - 1];

		if (!outbox_is_inserted(col, false))
			continue;
		names = lappend(names, makeString(pstrdup(column->name)));
		types = lappend_oid(types, outbox_column_types[col - 1]);
		typmods = lappend_int(typmods, -1);
		collations = lappend_oid(collations, get_typcollation(outbox_column_types[col - 1]));
		if (col == COL_ID)
			batch->id_attr = list_length(names);
	}
	batch->desc = BuildDescFromLists(names, types, typmods, collations);
}

/* Those of the row are those of the INSERT, by their names. */
static char *
batch_sql(const Batch *batch)
{
	StringInfoData names;

	initStringInfo(&names);
	for (int i = ELEMENT_ATTR; i < batch->desc->natts; i++)
		appendStringInfo(&names, "%s%s", i > ELEMENT_ATTR ? ", " : "",
						 NameStr(TupleDescAttr(batch->desc, i)->attname));
	return psprintf(BATCH_SQL, names.data, names.data);
}

static void
put_row(Batch *batch, const Datum *values, const bool *isnull)
{
	Datum		row[MAX_ATTRS];
	bool		nulls[MAX_ATTRS];
	int			n = ELEMENT_ATTR;

	row[ELEMENT_ATTR - 1] = Int32GetDatum(batch->element);
	nulls[ELEMENT_ATTR - 1] = false;
	for (int i = 0; i < OUTBOX_COLUMNS; i++)
		if (outbox_is_inserted(i + 1, false))
		{
			row[n] = values[i];
			nulls[n++] = isnull[i];
		}
	tuplestore_putvalues(batch->rows, batch->desc, row, nulls);
}

static void
read_elements(Batch *batch, Relation rel, Jsonb *messages)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "outbox batch element",
											  ALLOCSET_DEFAULT_SIZES);
	Datum		values[OUTBOX_COLUMNS];
	bool		isnull[OUTBOX_COLUMNS];
	JsonbIterator *it = JsonbIteratorInit(&messages->root);
	JsonbIteratorToken token;
	JsonbValue	value;

	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		MemoryContext old;

		if (token != WJB_ELEM)
			continue;
		CHECK_FOR_INTERRUPTS();
		old = MemoryContextSwitchTo(cxt);
		batch->element = batch->n++;
		outbox_read_element(&value, batch->element, values, isnull, &batch->key);
		outbox_enqueue_prepare(rel, GetUserId(), values, isnull);
		put_row(batch, values, isnull);
		MemoryContextSwitchTo(old);
		MemoryContextReset(cxt);
	}
	MemoryContextDelete(cxt);
	batch->element = NO_ELEMENT;
	memset(isnull, true, sizeof(isnull));
	put_row(batch, values, isnull);
}

static void
expect_array(Jsonb *messages)
{
	JsonbValue	value;

	if (JB_ROOT_IS_ARRAY(messages) && !JB_ROOT_IS_SCALAR(messages))
		return;
	if (!JsonbExtractScalar(&messages->root, &value))
	{
		value.type = jbvBinary;
		value.val.binary.data = &messages->root;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("messages must be a JSON array"),
			 errdetail("It is %s.", outbox_json_kind(&value)),
			 errhint("Wrap a single message in an array.")));
}

/* ------------------------------------------------------------ storing them */

/* Returns how many were stored. */
static uint64
insert_rows(Batch *batch, Relation rel)
{
	EphemeralNamedRelation enr = palloc0(sizeof(EphemeralNamedRelationData));
	DestReceiver *dest = CreateTuplestoreDestReceiver();
	OutboxActing acting;
	Batch	   *outer = running;
	uint64		result;

	SPI_connect();
	enr->md.name = ROWS_NAME;
	enr->md.reliddesc = InvalidOid;
	enr->md.tupdesc = batch->desc;
	enr->md.enrtype = ENR_NAMED_TUPLESTORE;
	enr->md.enrtuples = batch->n;
	enr->reldata = batch->rows;
	if (SPI_register_relation(enr) != SPI_OK_REL_REGISTER)
		elog(ERROR, "could not register the rows of a batch");
	outbox_act_begin(&acting, rel->rd_rel->relowner, false);
	SetTuplestoreDestReceiverParams(dest, batch->ids, batch->result_cxt, false,
									NULL, NULL);
	running = batch;
	PG_TRY();
	{
		int			code;

		code = outbox_kept_plan_execute_into(&kept, kept.plan == NULL ? batch_sql(batch) : NULL,
											 dest);
		if (code != SPI_OK_INSERT_RETURNING)
			outbox_fail_rewritten(&kept, rel, code);
		result = SPI_processed;
	}
	PG_FINALLY();
	{
		running = outer;
	}
	PG_END_TRY();
	outbox_act_end(&acting);
	SPI_finish();
	return result;
}

/* ---------------------------------------------------------------- the ids */

static pg_uuid_t *
next_id(Tuplestorestate *store, TupleTableSlot *slot, int attr)
{
	bool		isnull;

	if (!tuplestore_gettupleslot(store, true, false, slot))
		return NULL;
	return DatumGetUUIDP(slot_getattr(slot, attr, &isnull));
}

static Tuplestorestate *
begin_ids(Batch *batch)
{
	MemoryContext old = MemoryContextSwitchTo(batch->result_cxt);
	Tuplestorestate *ids = tuplestore_begin_heap(true, false, work_mem);

	MemoryContextSwitchTo(old);
	return ids;
}

/*
 * A trigger of the administrator's has left some out: NULL in their places, as
 * outbox_enqueue() returns it.
 */
static void
fill_gaps(Batch *batch)
{
	Tuplestorestate *ids = begin_ids(batch);
	TupleTableSlot *row = MakeSingleTupleTableSlot(batch->desc, &TTSOpsMinimalTuple);
	TupleTableSlot *id = MakeSingleTupleTableSlot(batch->id_desc, &TTSOpsMinimalTuple);
	pg_uuid_t  *inserted = next_id(batch->ids, id, 1);

	/* The scan has read by another one. */
	tuplestore_select_read_pointer(batch->rows, 0);
	tuplestore_rescan(batch->rows);
	for (int i = 0; i < batch->n; i++)
	{
		pg_uuid_t  *given = next_id(batch->rows, row, batch->id_attr);
		bool		isnull = inserted == NULL ||
			memcmp(given, inserted, sizeof(pg_uuid_t)) != 0;
		Datum		value = UUIDPGetDatum(given);

		tuplestore_putvalues(ids, batch->id_desc, &value, &isnull);
		if (!isnull)
			inserted = next_id(batch->ids, id, 1);
	}
	ExecDropSingleTupleTableSlot(row);
	ExecDropSingleTupleTableSlot(id);
	tuplestore_end(batch->ids);
	batch->ids = ids;
}

static void
enqueue_all(Batch *batch, Jsonb *messages)
{
	ErrorContextCallback context;
	Relation	rel = outbox_open_table();

	context.callback = name_element;
	context.arg = batch;
	context.previous = error_context_stack;
	error_context_stack = &context;
	read_elements(batch, rel, messages);
	if (batch->n > 0 && insert_rows(batch, rel) < (uint64) batch->n)
		fill_gaps(batch);
	error_context_stack = context.previous;
	table_close(rel, NoLock);
}

Datum
outbox_enqueue_batch(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext old;
	Jsonb	   *messages;
	Batch		batch;

	if (rsinfo == NULL || !IsA(rsinfo, ReturnSetInfo) ||
		rsinfo->expectedDesc == NULL ||
		(rsinfo->allowedModes & SFRM_Materialize) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("messages must not be null"),
				 errhint("For no messages pass '[]'.")));
	messages = PG_GETARG_JSONB_P(0);
	expect_array(messages);

	memset(&batch, 0, sizeof(batch));
	batch.element = NO_ELEMENT;
	make_desc(&batch);
	batch.rows = tuplestore_begin_heap(false, false, work_mem);
	batch.result_cxt = rsinfo->econtext->ecxt_per_query_memory;
	old = MemoryContextSwitchTo(batch.result_cxt);
	batch.id_desc = CreateTupleDescCopy(rsinfo->expectedDesc);
	MemoryContextSwitchTo(old);
	batch.ids = begin_ids(&batch);

	enqueue_all(&batch, messages);
	tuplestore_end(batch.rows);
	rsinfo->returnMode = SFRM_Materialize;
	rsinfo->setResult = batch.ids;
	rsinfo->setDesc = batch.id_desc;
	return (Datum) 0;
}
