/*-------------------------------------------------------------------------
 *
 * cdc.c
 *		Messages of routes with relay = 'cdc', which are read out of the log.
 *
 * Such a message is a row of the table outbox, with all checks, that is deleted
 * again by the statement that has stored it.  What stays is the INSERT in the
 * write-ahead log: change data capture (Debezium and the like) reads it there, when
 * the transaction has committed, by a publication of inserts only.  So no worker
 * and no claim ever sees one, nothing has to be settled, and a rollback leaves
 * nothing.
 *
 * The log is kept for replication slots and for nobody else.  Without one the
 * message would be gone with the COMMIT, silently; so enqueue looks for one, and so
 * does the end of the transaction.  It need not be active, since a reader that comes
 * back goes on where its slot is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "columns.h"
#include "commands/trigger.h"
#include "compat.h"
#include "debezium.h"
#include "enqueue.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "replication/slot.h"
#include "shared.h"
#include "storage/lwlock.h"
#include "storage/spin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(outbox_cdc_trigger);
PG_FUNCTION_INFO_V1(outbox_remade_slots);

/* -------------------------------------------------------------------- slots */

/*
 * Is it that one, of this database, there to stay, and has its WAL?  A slot becomes persistent
 * when it has found the place from which it can tell all that commits later, and
 * what was in progress there has ended by then: who finds it here commits later.
 */
static bool
is_reader(ReplicationSlot *slot, const char *name)
{
	bool		is;

	if (!slot->in_use)
		return false;
	SpinLockAcquire(&slot->mutex);
	is = slot->data.database == MyDatabaseId &&
		(name == NULL || strcmp(NameStr(slot->data.name), name) == 0) &&
		slot->data.persistency == RS_PERSISTENT &&
		!XLogRecPtrIsInvalid(slot->data.restart_lsn) &&
		!compat_slot_invalidated(slot);
	SpinLockRelease(&slot->mutex);
	return is;
}

static bool
has_slot(const char *name)
{
	bool		found = false;

	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < max_replication_slots && !found; i++)
		found = is_reader(&ReplicationSlotCtl->replication_slots[i], name);
	LWLockRelease(ReplicationSlotControlLock);
	return found;
}

/* What this transaction has enqueued for, or written in outbox_route. */
typedef struct NeededSlot
{
	const char *route;			/* one of those that need it; NULL: it was
								 * written */
	const char *slot;			/* NULL: any of this database */
	SubTransactionId subid;		/* without which nothing needs it */
} NeededSlot;

static List *needed = NIL;		/* in TopTransactionContext */

static void
require_slot(const char *route, const char *slot)
{
	const char *name = slot == NULL ? "outbox_cdc" : slot;

	if (has_slot(slot))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("no replication slot would keep a message of route \"%s\"",
					route),
			 slot == NULL ?
			 errdetail("The route has relay = 'cdc': its messages are in the write-ahead log only, and without a logical replication slot of this database nobody would ever see them.") :
			 errdetail("The route has relay = 'cdc': its messages are in the write-ahead log only, and without the logical replication slot \"%s\" of this database nobody would ever see them.", name),
			 wal_level < WAL_LEVEL_LOGICAL ?
			 errhint("Set \"wal_level\" to logical, restart the server, and create the reader's publication, then its slot.") :
			 errhint("Create the reader's publication, then its slot: SELECT pg_create_logical_replication_slot(%s::name, 'pgoutput'::name).",
					 quote_literal_cstr(name))));
}

/* COMMIT PREPARED calls nobody, and the slot may be gone by then. */
static void
refuse_prepare(const NeededSlot *need)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot PREPARE a transaction that has enqueued on route \"%s\"",
					need->route),
			 errdetail("The route has relay = 'cdc': nothing would keep its messages if the replication slot were dropped before COMMIT PREPARED."),
			 errhint("Use COMMIT, or a route with another relay.")));
}

/*
 * With the commit, as another session may have had the slot forgotten since the first
 * message.  Cannot fail.
 */
static void
know_slots(bool written)
{
	ListCell   *cell;

	foreach(cell, needed)
	{
		NeededSlot *need = lfirst(cell);

		if ((need->route == NULL) != written || need->slot == NULL)
			continue;
		if (written)
			outbox_cdc_slot_forget(need->slot);
		else
			(void) outbox_cdc_slot_look(need->slot);
	}
}

/*
 * Once more, before what was enqueued is committed: the slot may have been dropped
 * since.  One that was made again since does not count, as it becomes persistent only
 * when the transactions that it found in progress have ended.
 */
static void
look_at_end(XactEvent event, void *arg)
{
	ListCell   *cell;

	foreach(cell, needed)
	{
		NeededSlot *need = lfirst(cell);

		if (event == XACT_EVENT_PRE_PREPARE && need->route != NULL)
			refuse_prepare(need);
		if (event == XACT_EVENT_PRE_COMMIT && need->route != NULL)
			require_slot(need->route, need->slot);
	}
	if (event == XACT_EVENT_COMMIT)
	{
		know_slots(true);
		know_slots(false);
	}
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
		event == XACT_EVENT_PREPARE)
		needed = NIL;
}

/* What a savepoint has enqueued or written goes with it, or is its parent's. */
static void
look_at_subend(SubXactEvent event, SubTransactionId subid,
			   SubTransactionId parent, void *arg)
{
	ListCell   *cell;

	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	foreach(cell, needed)
	{
		NeededSlot *need = lfirst(cell);

		if (need->subid != subid)
			continue;
		if (event == SUBXACT_EVENT_COMMIT_SUB)
			need->subid = parent;
		else
			needed = foreach_delete_current(needed, cell);
	}
}

static void
add_slot(const char *route, const char *slot)
{
	static bool callback_registered = false;
	MemoryContext old;
	NeededSlot *need;

	if (!callback_registered)
	{
		RegisterXactCallback(look_at_end, NULL);
		RegisterSubXactCallback(look_at_subend, NULL);
		callback_registered = true;
	}
	old = MemoryContextSwitchTo(TopTransactionContext);
	need = palloc(sizeof(NeededSlot));
	need->route = route == NULL ? NULL : pstrdup(route);
	need->slot = slot == NULL ? NULL : pstrdup(slot);
	need->subid = GetCurrentSubTransactionId();
	needed = lappend(needed, need);
	MemoryContextSwitchTo(old);
}

/*
 * outbox_route.slot was written: when the transaction commits, an administrator knows
 * what has become of the slot until then.
 */
static void
forget_slot(const char *slot)
{
	add_slot(NULL, slot);
}

/* Returns whether it is new in this transaction. */
static bool
remember(const OutboxRoute *route)
{
	ListCell   *cell;

	/* One that is there is of this subtransaction or of one around it. */
	foreach(cell, needed)
	{
		NeededSlot *need = lfirst(cell);

		if (need->route != NULL &&
			(route->slot == NULL ? need->slot == NULL :
			 need->slot != NULL && strcmp(need->slot, route->slot) == 0))
			return false;
	}
	add_slot(route->name, route->slot);
	return true;
}

/*
 * What is read out of the log goes when it is committed, and from an INSERT only, to
 * slots that are there now, and when the transaction ends.
 */
static void
judge(const OutboxRoute *route, OutboxNewRow *row)
{
	if (!row->insert)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a message cannot be moved to route \"%s\"", route->name),
				 errdetail("The route has relay = 'cdc': what reads its messages sees those that are inserted."),
				 errhint("Discard the message, and enqueue one to that route.")));
	if (!row->pending)
		ereport(ERROR,
				(errcode(ERRCODE_CHECK_VIOLATION),
				 errmsg("status must be 'pending' on route \"%s\"", route->name),
				 errdetail("The route has relay = 'cdc'."),
				 errhint("Leave it to its default.")));
	if (row->available_at > GetCurrentTimestamp())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a message on route \"%s\" cannot be scheduled", route->name),
				 errdetail("The route has relay = 'cdc': its messages are read as soon as they are committed, whatever available_at says."),
				 errhint("Leave available_at out, or use a route that the workers publish.")));
	row->available_at = DT_NOBEGIN;
	require_slot(route->name, route->slot);
	if (remember(route) && route->slot != NULL)
		(void) outbox_cdc_slot_look(route->slot);
}

#define REMADE_COLS	2

/* Slots that were dropped and made again since messages were enqueued for them. */
Datum
outbox_remade_slots(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; outbox_shared != NULL && i < OUTBOX_CDC_SLOTS; i++)
	{
		OutboxCdcSlot slot;
		Datum		values[REMADE_COLS];
		bool		nulls[REMADE_COLS] = {false};

		if (!outbox_cdc_slot_get(i, &slot) || slot.remade_at == 0)
			continue;
		values[0] = CStringGetTextDatum(NameStr(slot.name));
		values[1] = TimestampTzGetDatum(slot.remade_at);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* ------------------------------------------------------------------ removal */

/* By its place: the statistics of such a table say nothing of what an index saves. */
#define REMOVE_SQL "DELETE FROM outbox_internal.outbox WHERE ctid OPERATOR(pg_catalog.=) $1"

static int	removing = 0;

static bool
is_removing(void)
{
	return removing > 0;
}

const OutboxOutlet outbox_debezium_outlet = {
	.name = "cdc",
	.excluded = true,
	.transient = true,
	.judge = judge,
	.releases = is_removing,
	.forget_slot = forget_slot
};

static void
require_logged(Relation rel)
{
	if (RelationIsLogicallyLogged(rel))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s\" must be logged for routes with relay = 'cdc'",
					RelationGetRelationName(rel)),
			 errdetail("Messages of such a route are in the write-ahead log only, and an unlogged table writes nothing to it."),
			 errhint("Run ALTER TABLE %s SET LOGGED.",
					 quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
												RelationGetRelationName(rel)))));
}

static void
remove_row(Relation rel, HeapTuple tuple)
{
	static OutboxKeptPlan kept;
	Oid			types[1] = {TIDOID};
	Datum		values[1] = {PointerGetDatum(&tuple->t_self)};
	OutboxActing acting;
	int			result;

	SPI_connect();
	outbox_act_begin(&acting, rel->rd_rel->relowner, false);
	result = outbox_kept_plan_execute(&kept, REMOVE_SQL, 1, types, values, NULL,
									  false);
	if (result != SPI_OK_DELETE)
	{
		/* What the server has made of it is for no table, and would be kept. */
		outbox_kept_plan_forget(&kept);
		if (result != SPI_OK_REWRITTEN)
			elog(ERROR, "could not delete from outbox: %s",
				 SPI_result_code_string(result));
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a rule on table \"%s\" replaces the DELETE of messages",
						RelationGetRelationName(rel)),
				 errhint("Drop the rule, or use a trigger instead.")));
	}
	if (SPI_processed != 1)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a message that is read out of the write-ahead log stays in the table \"%s\"",
						RelationGetRelationName(rel)),
				 errdetail("A trigger or a policy that somebody has added to the table keeps its row, or has changed it.")));
	outbox_act_end(&acting);
	SPI_finish();
}

static bool
is_for_log(Relation rel, HeapTuple tuple)
{
	TupleDesc	desc = RelationGetDescr(rel);
	bool		isnull;
	Datum		value;

	outbox_expect_message_columns(desc, RelationGetRelationName(rel));
	value = heap_getattr(tuple, COL_OUTLET, desc, &isnull);
	return !isnull && strcmp(TextDatumGetCString(value), outbox_debezium_outlet.name) == 0;
}

/* AFTER INSERT ... FOR EACH ROW on outbox. */
Datum
outbox_cdc_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = outbox_fired_after_row(fcinfo, "outbox_cdc_trigger");

	if (!TRIGGER_FIRED_BY_INSERT(trigdata->tg_event) ||
		!is_for_log(trigdata->tg_relation, trigdata->tg_trigtuple))
		return PointerGetDatum(NULL);
	require_logged(trigdata->tg_relation);
	removing++;
	PG_TRY();
	{
		remove_row(trigdata->tg_relation, trigdata->tg_trigtuple);
	}
	PG_FINALLY();
	{
		removing--;
	}
	PG_END_TRY();
	return PointerGetDatum(NULL);
}
