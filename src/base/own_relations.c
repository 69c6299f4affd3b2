/*-------------------------------------------------------------------------
 *
 * own_relations.c
 *		The extension's relations that C code opens, by their OIDs.
 *
 * SQL reaches the tables through views in outbox_internal, which are bound to OIDs.  C
 * code finds them by name in a schema where other roles may create objects: so a relation
 * of that name counts only if it is a member of the extension and has the right kind.
 * A table that was renamed or moved is an error until it is put back: no other object
 * ever takes its place.  This is the only file that looks a relation up by name.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "own_relations.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

static const struct
{
	const char *name;
	char		relkind;
}			own[OUTBOX_RELATIONS] = {
	[OUTBOX_REL_OUTBOX] = {"outbox", RELKIND_RELATION},
	[OUTBOX_REL_ROUTE] = {"outbox_route", RELKIND_RELATION},
	[OUTBOX_REL_CONTROL] = {"outbox_control", RELKIND_RELATION},
	[OUTBOX_REL_ARCHIVE] = {"outbox_archive", RELKIND_PARTITIONED_TABLE},
	[OUTBOX_REL_JOB] = {"outbox_job", RELKIND_RELATION},
	[OUTBOX_REL_KEY_NUMBER] = {"outbox_key_number", RELKIND_RELATION},
	[OUTBOX_REL_LEASE] = {"outbox_lease", RELKIND_RELATION},
	[OUTBOX_REL_SEQ] = {"outbox_seq_seq", RELKIND_SEQUENCE},
};

/* Until the relation changes.  InvalidOid: not known. */
static Oid	kept_oids[OUTBOX_RELATIONS];
static bool own_changed;		/* a relation has, while one was looked up */

/* CacheRegisterRelcacheCallback */
static void
own_relation_changed(Datum arg, Oid relid)
{
	(void) arg;
	own_changed = true;
	for (int i = 0; i < OUTBOX_RELATIONS; i++)
		if (!OidIsValid(relid) || kept_oids[i] == relid)
			kept_oids[i] = InvalidOid;
}

Oid
outbox_extension_schema(void)
{
	Relation	extensions = table_open(ExtensionRelationId, AccessShareLock);
	Oid			schema = InvalidOid;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum("outbox"));
	scan = systable_beginscan(extensions, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		schema = ((Form_pg_extension) GETSTRUCT(tuple))->extnamespace;
	systable_endscan(scan);
	table_close(extensions, AccessShareLock);
	return schema;
}

/* InvalidOid: there is none, or it is not the extension's. */
static Oid
look_up_own(OutboxRelation which)
{
	Oid			extension = get_extension_oid("outbox", true);
	Oid			relid;

	if (!OidIsValid(extension))
		return InvalidOid;
	relid = get_relname_relid(own[which].name, which == OUTBOX_REL_LEASE ?
							  get_namespace_oid("outbox_internal", true) : outbox_extension_schema());
	if (!OidIsValid(relid) || get_rel_relkind(relid) != own[which].relkind ||
		getExtensionOfObject(RelationRelationId, relid) != extension)
		return InvalidOid;
	return relid;
}

Oid
outbox_find_relation(OutboxRelation which)
{
	static bool registered = false;
	Oid			relid;

	if (OidIsValid(kept_oids[which]))
		return kept_oids[which];
	if (!registered)
		CacheRegisterRelcacheCallback(own_relation_changed, (Datum) 0);
	registered = true;
	own_changed = false;
	relid = look_up_own(which);
	if (!own_changed)
		kept_oids[which] = relid;
	return relid;
}

void
outbox_fail_relation(OutboxRelation which)
{
	const char *name = own[which].name;
	bool		sequence = own[which].relkind == RELKIND_SEQUENCE;

	(void) get_extension_oid("outbox", false);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_TABLE),
			 errmsg("%s \"%s\" of the extension \"outbox\" was renamed or moved",
					sequence ? "sequence" : "table", name),
			 errdetail("Schema \"%s\" has no %s \"%s\" that belongs to the extension.",
					   get_namespace_name(outbox_extension_schema()),
					   sequence ? "sequence" : "table", name),
			 errhint("Put it back with ALTER %s ... RENAME TO %s, or SET SCHEMA.",
					 sequence ? "SEQUENCE" : "TABLE", name)));
}

Oid
outbox_relation(OutboxRelation which)
{
	Oid			relid = outbox_find_relation(which);

	if (!OidIsValid(relid))
		outbox_fail_relation(which);
	return relid;
}
