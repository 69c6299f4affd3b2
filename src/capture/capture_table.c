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
 * What a trigger is fired by, of pg_trigger.tgtype.  Before the row is stored it
 * may still change, or not be stored at all; and a statement shows its rows by
 * transition tables only.
 */
void
outbox_capture_check_type(int16 tgtype, bool has_old, bool has_new,
						  const char *trigger)
{
	bool		needs_old = TRIGGER_FOR_UPDATE(tgtype) || TRIGGER_FOR_DELETE(tgtype);
	bool		needs_new = TRIGGER_FOR_UPDATE(tgtype) || TRIGGER_FOR_INSERT(tgtype);

	if (!TRIGGER_FOR_AFTER(tgtype))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" with outbox_capture() must be an AFTER trigger",
						trigger),
				 errdetail("Before the row is stored, another trigger may change it or leave it out.")));
	if (TRIGGER_FOR_ROW(tgtype))
		return;
	if ((needs_old && !has_old) || (needs_new && !has_new))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" with outbox_capture() FOR EACH STATEMENT needs transition tables",
						trigger),
				 errhint("Create it FOR EACH ROW, or one for INSERT with REFERENCING NEW TABLE, one for UPDATE with OLD TABLE and NEW TABLE, and one for DELETE with OLD TABLE.")));
}

static Oid
trigger_parent(Oid trigger, Oid *relid)
{
	Relation	catalog = table_open(TriggerRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			parent;

	ScanKeyInit(&key, Anum_pg_trigger_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(trigger));
	scan = systable_beginscan(catalog, TriggerOidIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "could not find trigger %u", trigger);
	parent = ((Form_pg_trigger) GETSTRUCT(tuple))->tgparentid;
	*relid = ((Form_pg_trigger) GETSTRUCT(tuple))->tgrelid;
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return parent;
}

Oid
outbox_capture_named_table(const Trigger *trigger, Oid relid)
{
	Oid			current = trigger->tgoid;

	if (!trigger->tgisclone)
		return relid;
	while (OidIsValid(current))
		current = trigger_parent(current, &relid);
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
static int
find_columns(const Capture *capture, const char *argument, const char *list,
			 AttrNumber **columns)
{
	List	   *names;
	ListCell   *cell;
	int			n = 0;

	if (!SplitIdentifierString(pstrdup(list), ',', &names))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" of trigger \"%s\" is not a list of columns",
						argument, capture->trigger),
				 errhint("Separate names by commas, and quote them as in SQL.")));
	*columns = palloc(sizeof(AttrNumber) * Max(list_length(names), 1));
	foreach(cell, names)
	{
		AttrNumber	attnum = find_column(capture, argument, lfirst(cell));

		for (int i = 0; i < n; i++)
			if ((*columns)[i] == attnum)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("argument \"%s\" of trigger \"%s\" names column \"%s\" twice",
								argument, capture->trigger,
								(char *) lfirst(cell))));
		(*columns)[n++] = attnum;
	}
	return n;
}

/* Its columns in the order of the primary key; 0: there is none. */
static int
primary_key(Relation rel, AttrNumber **columns)
{
	ListCell   *cell;
	int			n = 0;

	foreach(cell, RelationGetIndexList(rel))
	{
		HeapTuple	tuple = SearchSysCache1(INDEXRELID,
											ObjectIdGetDatum(lfirst_oid(cell)));
		Form_pg_index index;

		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "cache lookup failed for index %u", lfirst_oid(cell));
		index = (Form_pg_index) GETSTRUCT(tuple);
		if (index->indisprimary)
		{
			*columns = palloc(sizeof(AttrNumber) * index->indnkeyatts);
			for (n = 0; n < index->indnkeyatts; n++)
				(*columns)[n] = index->indkey.values[n];
		}
		ReleaseSysCache(tuple);
	}
	return n;
}

static void
find_key(Capture *capture, Relation rel)
{
	if (capture->args.key != NULL)
		capture->nkey = find_columns(capture, "key", capture->args.key,
									 &capture->key);
	else if ((capture->nkey = primary_key(rel, &capture->key)) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("trigger \"%s\" has no argument \"key\", and table \"%s\" has no primary key",
						capture->trigger, RelationGetRelationName(rel)),
				 errhint("Name the columns of the key, as in 'key=id', or say 'key=' for messages that have no order.")));
	capture->key_out = palloc(sizeof(FmgrInfo) * Max(capture->nkey, 1));
	for (int i = 0; i < capture->nkey; i++)
	{
		Oid			type = TupleDescAttr(capture->desc, capture->key[i] - 1)->atttypid;
		Oid			output;
		bool		varlena;

		getTypeOutputInfo(type, &output, &varlena);
		fmgr_info_cxt(output, &capture->key_out[i], capture->cxt);
	}
}

/* All but the excluded ones. */
static int
remaining_columns(const Capture *capture, const AttrNumber *excluded,
				  int nexcluded, AttrNumber **columns)
{
	int			n = 0;

	*columns = palloc(sizeof(AttrNumber) * Max(capture->desc->natts, 1));
	for (AttrNumber attnum = 1; attnum <= capture->desc->natts; attnum++)
	{
		bool		take = can_capture(TupleDescAttr(capture->desc, attnum - 1));

		for (int i = 0; i < nexcluded; i++)
			take = take && excluded[i] != attnum;
		if (take)
			(*columns)[n++] = attnum;
	}
	return n;
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

static void
prepare_columns(Capture *capture)
{
	capture->column_to_jsonb = palloc0(sizeof(FmgrInfo) * Max(capture->ncolumns, 1));
	for (int i = 0; i < capture->ncolumns; i++)
	{
		Form_pg_attribute att = TupleDescAttr(capture->desc, capture->columns[i] - 1);

		if (is_fallible(getBaseType(att->atttypid)))
			prepare_to_jsonb(capture, &capture->column_to_jsonb[i], att->atttypid);
	}
}

static TupleDesc
describe_columns(const Capture *capture)
{
	List	   *names = NIL;
	List	   *types = NIL;
	List	   *typmods = NIL;
	List	   *collations = NIL;

	for (int i = 0; i < capture->ncolumns; i++)
	{
		Form_pg_attribute att = TupleDescAttr(capture->desc, capture->columns[i] - 1);
		bool		json = OidIsValid(capture->column_to_jsonb[i].fn_oid);

		names = lappend(names, makeString(NameStr(att->attname)));
		types = lappend_oid(types, json ? JSONBOID : getBaseType(att->atttypid));
		typmods = lappend_int(typmods, json ? -1 : att->atttypmod);
		collations = lappend_oid(collations, json ? InvalidOid : att->attcollation);
	}
	return BlessTupleDesc(BuildDescFromLists(names, types, typmods, collations));
}

static TupleDesc
describe_pair(void)
{
	return BlessTupleDesc(BuildDescFromLists(list_make2(makeString("old"), makeString("new")),
											 list_make2_oid(JSONBOID, JSONBOID),
											 list_make2_int(-1, -1),
											 list_make2_oid(InvalidOid, InvalidOid)));
}

static void
find_payload(Capture *capture)
{
	AttrNumber *excluded = NULL;
	int			nexcluded = 0;

	if (capture->args.columns != NULL)
		capture->ncolumns = find_columns(capture, "columns",
										 capture->args.columns,
										 &capture->columns);
	else
	{
		if (capture->args.except != NULL)
			nexcluded = find_columns(capture, "except", capture->args.except,
									 &excluded);
		capture->ncolumns = remaining_columns(capture, excluded, nexcluded,
											  &capture->columns);
	}
	prepare_columns(capture);
	capture->columns_desc = describe_columns(capture);
	capture->pair_desc = describe_pair();
}

/* ---------------------------------------------------------------- message */

static void
name_table(Capture *capture, Oid named)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(named));
	Form_pg_class form;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", named);
	form = (Form_pg_class) GETSTRUCT(tuple);
	capture->table = pstrdup(NameStr(form->relname));
	capture->schema = get_namespace_name(form->relnamespace);
	capture->owner = form->relowner;
	capture->owner_name = GetUserNameFromId(form->relowner, false);
	ReleaseSysCache(tuple);
}

static const char *
default_aggregate_type(const Capture *capture)
{
	if (capture->args.aggregate_type != NULL)
		return outbox_capture_expand("aggregate_type",
									 capture->args.aggregate_type, capture, NULL);
	if (capture->args.event != NULL)
		return outbox_capture_expand("event", capture->args.event, capture, NULL);
	return capture->table;
}

static char *
make_event_type(const Capture *capture, const char *word)
{
	const char *prefix = capture->table;

	if (capture->args.event_type != NULL)
		return outbox_capture_expand("event_type", capture->args.event_type,
									 capture, word);
	if (capture->args.event != NULL)
		prefix = outbox_capture_expand("event", capture->args.event, capture, NULL);
	return psprintf("%s.%s", prefix, word);
}

static void
add_header(StringInfo json, const char *name, const char *value)
{
	appendStringInfo(json, "%s\"%s\": ", json->len == 1 ? "" : ", ", name);
	escape_json(json, value);
}

/* As text, since the interface that builds a jsonb is another one from 19 on. */
static Datum
make_headers(const Capture *capture, const char *tg_op)
{
	int			asked = capture->args.headers;
	StringInfoData json;

	if (asked == 0)
		return (Datum) 0;
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
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(json.data));
}

const CaptureConstants *
outbox_capture_constants(Capture *capture, CaptureOp op)
{
	static const char *const words[CAPTURE_OPS] = {
		"inserted", "updated", "deleted", "truncated"
	};
	static const char *const tg_ops[CAPTURE_OPS] = {
		"INSERT", "UPDATE", "DELETE", "TRUNCATE"
	};
	CaptureConstants *constants = &capture->constants[op];
	MemoryContext old;

	if (constants->known)
		return constants;
	old = MemoryContextSwitchTo(capture->cxt);
	constants->event_type = CStringGetTextDatum(make_event_type(capture, words[op]));
	if (capture->args.routing_key != NULL)
		constants->routing_key =
			CStringGetTextDatum(outbox_capture_expand("routing_key",
													  capture->args.routing_key,
													  capture, words[op]));
	constants->headers = make_headers(capture, tg_ops[op]);
	constants->known = true;
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
outbox_capture_make(Relation rel, const CaptureTrigger *trigger, Oid function,
					Oid named, MemoryContext cxt)
{
	MemoryContext old = MemoryContextSwitchTo(cxt);
	Capture    *capture = palloc0(sizeof(Capture));

	capture->cxt = cxt;
	capture->trigger = pstrdup(trigger->name);
	capture->function = function;
	capture->desc = RelationGetDescr(rel);
	outbox_capture_read_args(&capture->args, trigger);
	refuse_own_table(rel, function, named);
	name_table(capture, named);
	find_key(capture, rel);
	find_payload(capture);
	prepare_to_jsonb(capture, &capture->to_jsonb, RECORDOID);
	capture->route = CStringGetTextDatum(capture->args.route == NULL ? "default" :
										 capture->args.route);
	capture->aggregate_type = CStringGetTextDatum(default_aggregate_type(capture));
	MemoryContextSwitchTo(old);
	return capture;
}
