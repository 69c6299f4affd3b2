/*-------------------------------------------------------------------------
 *
 * capture_table.c
 *		What the arguments of a trigger with outbox_capture() mean for its table.
 *
 * Columns are found by their names, so that each partition may have them in an
 * order of its own.  A name that is not there any more is an error when the
 * trigger fires: nothing makes ALTER TABLE aware of it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "capture_internal.h"
#include "catalog.h"
#include "catalog/dependency.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

/*
 * attgenerated of a virtual column, from PostgreSQL 18 on.  Nobody computes it for
 * triggers, which find anything in its place.
 */
#define GENERATED_VIRTUAL 'v'

/* ---------------------------------------------------------------- trigger */

/*
 * Before the row is stored it may still change, or not be stored at all; and a
 * statement shows its rows by transition tables only.
 */
static void
check_type(const Trigger *trigger)
{
	int16		tgtype = trigger->tgtype;
	bool		needs_old = TRIGGER_FOR_UPDATE(tgtype) || TRIGGER_FOR_DELETE(tgtype);
	bool		needs_new = TRIGGER_FOR_UPDATE(tgtype) || TRIGGER_FOR_INSERT(tgtype);

	if (!TRIGGER_FOR_AFTER(tgtype))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" with outbox_capture() must be an AFTER trigger",
						trigger->tgname),
				 errdetail("Before the row is stored, another trigger may change it or leave it out.")));
	if (TRIGGER_FOR_ROW(tgtype))
		return;
	if ((needs_old && trigger->tgoldtable == NULL) ||
		(needs_new && trigger->tgnewtable == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" with outbox_capture() FOR EACH STATEMENT needs transition tables",
						trigger->tgname),
				 errhint("Create it FOR EACH ROW, or one for INSERT with REFERENCING NEW TABLE, one for UPDATE with OLD TABLE and NEW TABLE, and one for DELETE with OLD TABLE.")));
}

HeapTuple
outbox_capture_find_trigger(Oid trigger, Snapshot snapshot)
{
	Relation	catalog = table_open(TriggerRelationId, AccessShareLock);
	HeapTuple	tuple;
	ScanKeyData key;
	SysScanDesc scan;

	ScanKeyInit(&key, Anum_pg_trigger_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(trigger));
	scan = systable_beginscan(catalog, TriggerOidIndexId, true, snapshot, 1, &key);
	tuple = heap_copytuple(systable_getnext(scan));
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return tuple;
}

/* The table that CREATE TRIGGER named, of which this trigger may be a clone. */
static Oid
find_named_table(const Trigger *trigger, Oid relid)
{
	Oid			current = trigger->tgisclone ? trigger->tgoid : InvalidOid;

	while (OidIsValid(current))
	{
		HeapTuple	tuple = outbox_capture_find_trigger(current, NULL);

		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "could not find trigger %u", current);
		current = ((Form_pg_trigger) GETSTRUCT(tuple))->tgparentid;
		relid = ((Form_pg_trigger) GETSTRUCT(tuple))->tgrelid;
	}
	return relid;
}

/*
 * All tables of the extension have names that begin so.  Others need no look into
 * pg_depend, which each statement would pay.
 */
static bool
is_ours(Oid relid, Oid function)
{
	Oid			extension;

	if (strncmp(get_rel_name(relid), "outbox", strlen("outbox")) != 0)
		return false;
	extension = getExtensionOfObject(ProcedureRelationId, function);
	return OidIsValid(extension) &&
		getExtensionOfObject(RelationRelationId, relid) == extension;
}

/*
 * A message for each message has no end: neither the table of messages nor the
 * archive, whose partitions the extension makes, but does not own.
 */
static void
refuse_own_table(Relation rel, Oid function, Oid named)
{
	bool		ours = is_ours(named, function);

	/* A partition with a trigger of its own. */
	if (rel->rd_rel->relispartition && named == RelationGetRelid(rel))
	{
		ListCell   *cell;

		foreach(cell, get_partition_ancestors(named))
			ours = ours || is_ours(lfirst_oid(cell), function);
	}
	if (ours)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("outbox_capture() cannot be used on table \"%s\", which belongs to outbox",
						RelationGetRelationName(rel))));
}

/* ---------------------------------------------------------------- columns */

static bool
can_capture(Form_pg_attribute att)
{
	return !att->attisdropped && att->attgenerated != GENERATED_VIRTUAL;
}

static AttrNumber
find_column(const Capture *capture, const char *argument, const char *name)
{
	for (int i = 0; i < capture->desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(capture->desc, i);

		if (att->attisdropped || strcmp(NameStr(att->attname), name) != 0)
			continue;
		if (!can_capture(att))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("argument \"%s\" of trigger \"%s\" names column \"%s\", which is a virtual generated one",
							argument, capture->trigger, name),
					 errdetail("It is not computed for triggers."),
					 errhint("Make it a stored one, or leave it out.")));
		return att->attnum;
	}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("argument \"%s\" of trigger \"%s\" names column \"%s\", which table \"%s\" does not have",
					argument, capture->trigger, name, capture->table)));
	return InvalidAttrNumber;
}

/* Numbers of the columns of a list of names, written as in SQL. */
static List *
find_columns(const Capture *capture, const char *argument, const char *list)
{
	List	   *columns = NIL;
	List	   *names;
	ListCell   *cell;

	if (!SplitIdentifierString(pstrdup(list), ',', &names))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" of trigger \"%s\" is not a list of columns",
						argument, capture->trigger),
				 errhint("Separate names by commas, and quote them as in SQL.")));
	foreach(cell, names)
	{
		AttrNumber	attnum = find_column(capture, argument, lfirst(cell));

		if (list_member_int(columns, attnum))
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_COLUMN),
					 errmsg("argument \"%s\" of trigger \"%s\" names column \"%s\" twice",
							argument, capture->trigger, (char *) lfirst(cell))));
		columns = lappend_int(columns, attnum);
	}
	return columns;
}

/* Its columns in the order of the primary key; NIL: there is none. */
static List *
primary_key(Relation rel)
{
	List	   *columns = NIL;
	ListCell   *cell;

	foreach(cell, RelationGetIndexList(rel))
	{
		HeapTuple	tuple = SearchSysCache1(INDEXRELID,
											ObjectIdGetDatum(lfirst_oid(cell)));
		Form_pg_index index;

		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "cache lookup failed for index %u", lfirst_oid(cell));
		index = (Form_pg_index) GETSTRUCT(tuple);
		for (int i = 0; index->indisprimary && i < index->indnkeyatts; i++)
			columns = lappend_int(columns, index->indkey.values[i]);
		ReleaseSysCache(tuple);
	}
	return columns;
}

static void
find_key(Capture *capture, Relation rel)
{
	ListCell   *cell;

	capture->key = capture->args.key == NULL ? primary_key(rel) :
		find_columns(capture, "key", capture->args.key);
	if (capture->args.key == NULL && capture->key == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("trigger \"%s\" has no argument \"key\", and table \"%s\" has no primary key",
						capture->trigger, RelationGetRelationName(rel)),
				 errhint("Name the columns of the key, as in 'key=id', or say 'key=' for messages that have no order.")));
	capture->key_out = palloc(sizeof(FmgrInfo) * list_length(capture->key));
	foreach(cell, capture->key)
	{
		Oid			output;
		bool		varlena;

		getTypeOutputInfo(TupleDescAttr(capture->desc, lfirst_int(cell) - 1)->atttypid,
						  &output, &varlena);
		fmgr_info_cxt(output, &capture->key_out[foreach_current_index(cell)], capture->cxt);
	}
}

static List *
find_payload(const Capture *capture)
{
	List	   *except = NIL;
	List	   *columns = NIL;

	if (capture->args.columns != NULL)
		return find_columns(capture, "columns", capture->args.columns);
	if (capture->args.except != NULL)
		except = find_columns(capture, "except", capture->args.except);
	for (int attnum = 1; attnum <= capture->desc->natts; attnum++)
		if (can_capture(TupleDescAttr(capture->desc, attnum - 1)) &&
			!list_member_int(except, attnum))
			columns = lappend_int(columns, attnum);
	return columns;
}

static void
prepare_to_jsonb(const Capture *capture, FmgrInfo *function, Oid type)
{
	List	   *args = list_make1(makeNullConst(type, -1, InvalidOid));

	/* It asks its call for the type of what it is given. */
	fmgr_info_cxt(F_TO_JSONB, function, capture->cxt);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_TO_JSONB, JSONBOID, args,
											 InvalidOid, InvalidOid,
											 COERCE_EXPLICIT_CALL),
					   function);
}

/*
 * May to_jsonb() fail for a value of that type?  The json in it may be invalid, the
 * cast of a user's type may fail, and its text may be too long: of the types of varying
 * length only those below have a known size in a jsonb.  A value that has no form in
 * UTF-8 is not sent.
 */
static bool
is_fallible(Oid base)
{
	if (GetDatabaseEncoding() != PG_UTF8 || base >= FirstNormalObjectId)
		return true;
	return get_typlen(base) == -1 &&
		base != TEXTOID && base != VARCHAROID && base != BPCHAROID &&
		base != BYTEAOID && base != JSONBOID && base != NUMERICOID;
}

/* Bytes pass through a database without an encoding; names are sent as UTF-8. */
static void
check_name(const Capture *capture, const char *name)
{
	if (GetDatabaseEncoding() != PG_SQL_ASCII ||
		pg_verify_mbstr(PG_UTF8, name, (int) strlen(name), true))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("column \"%s\" of table \"%s\" cannot be in the payload of a message",
					name, capture->table),
			 errdetail("Its name is not UTF-8."),
			 errhint("Leave the column out by the argument 'except=%s' of trigger \"%s\".",
					 quote_identifier(name), capture->trigger)));
}

/* The record of the columns, and those that become jsonb before. */
static void
prepare_columns(Capture *capture)
{
	List	   *names = NIL;
	List	   *types = NIL;
	List	   *typmods = NIL;
	List	   *collations = NIL;
	ListCell   *cell;

	capture->column_to_jsonb = palloc0(sizeof(FmgrInfo) * list_length(capture->columns));
	foreach(cell, capture->columns)
	{
		Form_pg_attribute att = TupleDescAttr(capture->desc, lfirst_int(cell) - 1);
		Oid			base = getBaseType(att->atttypid);
		bool		json = is_fallible(base);

		check_name(capture, NameStr(att->attname));
		if (json)
			prepare_to_jsonb(capture, &capture->column_to_jsonb[foreach_current_index(cell)],
							 att->atttypid);
		names = lappend(names, makeString(NameStr(att->attname)));
		types = lappend_oid(types, json ? JSONBOID : base);
		typmods = lappend_int(typmods, json ? -1 : att->atttypmod);
		collations = lappend_oid(collations, json ? InvalidOid : att->attcollation);
	}
	capture->columns_desc = BlessTupleDesc(BuildDescFromLists(names, types, typmods, collations));
}

static TupleDesc
describe_pair(void)
{
	return BlessTupleDesc(BuildDescFromLists(list_make2(makeString("old"), makeString("new")),
											 list_make2_oid(JSONBOID, JSONBOID),
											 list_make2_int(-1, -1),
											 list_make2_oid(InvalidOid, InvalidOid)));
}

/* ---------------------------------------------------------------- message */

/* What messages are about, unless an argument of their own says it. */
static const char *
subject(const Capture *capture)
{
	return capture->args.event == NULL ? capture->table :
		outbox_capture_expand("event", capture->args.event, capture, NULL);
}

static void
add_header(StringInfo json, const char *name, const char *value)
{
	appendStringInfo(json, "%s\"%s\": ", json->len == 1 ? "" : ", ", name);
	escape_json(json, value);
}

/* As text, since the interface that builds a jsonb is another one from 19 on. */
Jsonb *
outbox_capture_headers(const Capture *capture, int asked, const char *tg_op)
{
	StringInfoData json;

	if (asked == 0)
		return NULL;
	initStringInfo(&json);
	appendStringInfoChar(&json, '{');
	if (asked & CAPTURE_HEADER_OP)
		add_header(&json, "op", tg_op);
	if (asked & CAPTURE_HEADER_SCHEMA)
		add_header(&json, "schema", capture->schema);
	if (asked & CAPTURE_HEADER_TABLE)
		add_header(&json, "table", capture->table);
	if (asked & CAPTURE_HEADER_TXID)
		appendStringInfo(&json, "%s\"txid\": " UINT64_FORMAT,
						 json.len == 1 ? "" : ", ",
						 U64FromFullTransactionId(GetTopFullTransactionId()));
	appendStringInfoChar(&json, '}');
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(json.data)));
}

const OutboxFields *
outbox_capture_constants(Capture *capture, CaptureOp op)
{
	static const struct
	{
		const char *word;
		const char *tg_op;
	}			ops[CAPTURE_OPS] = {
		{"inserted", "INSERT"}, {"updated", "UPDATE"},
		{"deleted", "DELETE"}, {"truncated", "TRUNCATE"}
	};
	const CaptureArgs *args = &capture->args;
	OutboxFields *constants = &capture->constants[op];
	MemoryContext old;
	char	   *event_type;

	if (constants->event_type != NULL)
		return constants;
	old = MemoryContextSwitchTo(capture->cxt);
	event_type = args->event_type == NULL ?
		psprintf("%s.%s", subject(capture), ops[op].word) :
		outbox_capture_expand("event_type", args->event_type, capture, ops[op].word);
	constants->event_type = cstring_to_text(event_type);
	if (args->routing_key != NULL)
		constants->routing_key =
			cstring_to_text(outbox_capture_expand("routing_key", args->routing_key,
												  capture, ops[op].word));
	constants->headers = outbox_capture_headers(capture, args->headers, ops[op].tg_op);
	MemoryContextSwitchTo(old);
	return constants;
}

void
outbox_capture_check_owner(const Capture *capture)
{
	if (compat_may_execute(capture->function, capture->owner))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for function outbox_capture"),
			 errdetail("Messages of a trigger are enqueued with the rights of the table's owner, \"%s\".",
					   capture->owner_name),
			 errhint("An administrator can GRANT EXECUTE ON FUNCTION outbox_capture to that role.")));
}

Capture *
outbox_capture_make(Relation rel, const Trigger *trigger, MemoryContext cxt)
{
	MemoryContext old = MemoryContextSwitchTo(cxt);
	Capture    *capture = palloc0(sizeof(Capture));
	const CaptureArgs *args = &capture->args;
	Oid			named;

	check_type(trigger);
	capture->cxt = cxt;
	capture->trigger = pstrdup(trigger->tgname);
	capture->function = trigger->tgfoid;
	capture->desc = RelationGetDescr(rel);
	outbox_capture_read_args(&capture->args, trigger);
	named = find_named_table(trigger, RelationGetRelid(rel));
	refuse_own_table(rel, trigger->tgfoid, named);
	capture->table = get_rel_name(named);
	capture->schema = get_namespace_name(get_rel_namespace(named));
	capture->owner = outbox_owner_of_relation(named);
	capture->owner_name = GetUserNameFromId(capture->owner, false);
	find_key(capture, rel);
	capture->columns = find_payload(capture);
	prepare_columns(capture);
	capture->pair_desc = describe_pair();
	prepare_to_jsonb(capture, &capture->to_jsonb, RECORDOID);
	capture->route = CStringGetTextDatum(args->route == NULL ? "default" : args->route);
	capture->aggregate_type =
		cstring_to_text(args->aggregate_type == NULL ? subject(capture) :
						outbox_capture_expand("aggregate_type", args->aggregate_type,
											  capture, NULL));
	MemoryContextSwitchTo(old);
	return capture;
}
