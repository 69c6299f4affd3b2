/*-------------------------------------------------------------------------
 *
 * catalog.c
 *		What the catalogs say of the extension's objects.
 *
 * One owner for all that belongs to it:
 *
 * Statements of the worker and of outbox_enqueue() run as the owner of the table
 * "outbox", the functions for operators as theirs.  What somebody has added to a
 * table (triggers, checks, policies, expressions of indexes) runs with them, and
 * whoever is given one of the tables may add to it.  So that nobody gets more
 * rights that way than he has,
 *
 *		each relation and composite type has the owner of "outbox", or a superuser,
 *		each function has the owner of "outbox"; if that is a superuser, or it is no member
 *		of the extension, any superuser,
 *		the schema outbox_internal, in which all of them look for names, has the owner
 *		of "outbox" or a superuser, its name, and nobody else who may create in it.
 *
 * A partitioned table hands indexes and triggers down, so one that such a relation is a
 * partition of counts, too.  A plain table has no children: their rows would be read as its
 * own, without its triggers and unique indexes.
 *
 * These are the members of the extension, and whatever else is in outbox_internal: a
 * function there may fit a call better than the member of its name.  "outbox" is the
 * table in the chosen schema, and not the view outbox_internal.outbox.
 *
 * It is looked at before anything runs: also planning a statement evaluates
 * expressions of indexes and constraints.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "own_relations.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

/*
 * A look at the members of the extension, partitions of them that somebody has attached,
 * and objects in outbox_internal.
 */
typedef struct Look
{
	Oid			owner;			/* of the table "outbox" */
	Oid			schema;			/* outbox_internal */
	bool		members;		/* only they are looked at */
	List	   *relations;		/* that were looked at */
	List	   *roles;			/* asked whether superusers: hashes */
	char	   *unsafe;			/* the first one that is, or NULL */
	bool		inherits;		/* it is a child */
} Look;

/*
 * What has been looked at stays right until one of these relations or roles, or any
 * function or schema changes.
 */
static bool known = false;
static bool looking_stale;		/* a change came while it was looked at */
static List *watched = NIL;		/* relations, in TopMemoryContext */
static List *watched_roles = NIL;	/* as in Look */

static void
forget(void)
{
	known = false;
	looking_stale = true;
}

static void
member_changed(Datum arg, Oid relid)
{
	if (!known || !OidIsValid(relid) || list_member_oid(watched, relid))
		forget();
}

static void
something_changed(Datum arg, int cacheid, uint32 hash)
{
	forget();
}

/* hash 0: any of them */
static void
role_changed(Datum arg, int cacheid, uint32 hash)
{
	if (!known || hash == 0 || list_member_int(watched_roles, (int) hash))
		forget();
}

static void
register_callbacks(void)
{
	static bool registered = false;

	if (registered)
		return;
	registered = true;
	CacheRegisterRelcacheCallback(member_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(PROCOID, something_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, something_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, role_changed, (Datum) 0);
}

/* InvalidOid: the object is gone. */
static Oid
owner_of(int cacheid, Oid object, AttrNumber column)
{
	HeapTuple	tuple = SearchSysCache1(cacheid, ObjectIdGetDatum(object));
	bool		isnull;
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	owner = DatumGetObjectId(SysCacheGetAttr(cacheid, tuple, column, &isnull));
	ReleaseSysCache(tuple);
	return owner;
}

Oid
outbox_owner_of_relation(Oid relid)
{
	return owner_of(RELOID, relid, Anum_pg_class_relowner);
}

static char *
complaint(const char *kind, const char *name, Oid its, Oid owner)
{
	return psprintf("%s \"%s\" belongs to role \"%s\", and the table \"outbox\" to \"%s\"",
					kind, name, GetUserNameFromId(its, true),
					GetUserNameFromId(owner, true));
}

static bool
is_superuser(Look *look, Oid role)
{
	look->roles = list_append_unique_int(look->roles,
										 (int) GetSysCacheHashValue1(AUTHOID, ObjectIdGetDatum(role)));
	return superuser_arg(role);
}

static void look_at_relation(Look *look, Oid relid);

static void
refuse_child(Look *look, Oid child, Oid parent)
{
	if (look->unsafe != NULL)
		return;
	look->unsafe = psprintf("table \"%s\" inherits from table \"%s\"",
							get_rel_name(child), get_rel_name(parent));
	look->inherits = true;
}

/*
 * Its children, or what it is a partition of.  Not find_all_inheritors(): nothing is
 * locked here, and it fails where a partition is dropped meanwhile.
 */
static void
look_at_relatives(Look *look, Oid relid, bool children)
{
	Relation	inherits = table_open(InheritsRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, children ? Anum_pg_inherits_inhparent : Anum_pg_inherits_inhrelid,
				BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(inherits, children ? InheritsParentIndexId : InheritsRelidSeqnoIndexId,
							  true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_inherits link = (Form_pg_inherits) GETSTRUCT(tuple);

		if (children && get_rel_relkind(relid) == RELKIND_RELATION)
			refuse_child(look, link->inhrelid, relid);
		else
			look_at_relation(look, children ? link->inhrelid : link->inhparent);
	}
	systable_endscan(scan);
	table_close(inherits, AccessShareLock);
}

static void
look_at_relation(Look *look, Oid relid)
{
	Oid			its = outbox_owner_of_relation(relid);
	char		kind = get_rel_relkind(relid);

	if (list_member_oid(look->relations, relid))
		return;
	look->relations = lappend_oid(look->relations, relid);
	if (OidIsValid(its) && its != look->owner && !is_superuser(look, its) &&
		look->unsafe == NULL)
		look->unsafe = complaint("relation", get_rel_name(relid), its, look->owner);
	if (kind == RELKIND_RELATION || kind == RELKIND_PARTITIONED_TABLE)
		look_at_relatives(look, relid, true);
	if (get_rel_relispartition(relid))
		look_at_relatives(look, relid, false);
}

static void
look_at_function(Look *look, Oid function)
{
	Oid			its = owner_of(PROCOID, function, Anum_pg_proc_proowner);

	if (OidIsValid(its) && its != look->owner &&
		!(is_superuser(look, its) && (!look->members || is_superuser(look, look->owner))) &&
		look->unsafe == NULL)
		look->unsafe = complaint("function", get_func_name(function), its, look->owner);
}

static void
look_at_object(Look *look, Oid class, Oid object)
{
	if (class == RelationRelationId)
		look_at_relation(look, object);
	else if (class == ProcedureRelationId)
		look_at_function(look, object);
	else if (class == NamespaceRelationId)
		look->schema = object;
	else if (class == TypeRelationId && OidIsValid(get_typ_typrelid(object)))
		look_at_relation(look, get_typ_typrelid(object));
}

/* Catalogs of what lies in a schema. */
typedef struct Catalog
{
	Oid			class;
	Oid			index;
	AttrNumber	oid;
	AttrNumber	namespace;
} Catalog;

static const Catalog catalogs[] = {
	{ProcedureRelationId, ProcedureOidIndexId, Anum_pg_proc_oid, Anum_pg_proc_pronamespace},
	{RelationRelationId, ClassOidIndexId, Anum_pg_class_oid, Anum_pg_class_relnamespace},
	{TypeRelationId, TypeOidIndexId, Anum_pg_type_oid, Anum_pg_type_typnamespace}
};

/*
 * A dependent of a schema may only name it: a constant in a stranger's function.  No cache
 * is asked, which would keep the whole row in memory, and strangers write what they like.
 */
static bool
lies_in(Oid schema, Oid class, Oid object, Relation *opened)
{
	for (int i = 0; i < (int) lengthof(catalogs); i++)
	{
		const Catalog *catalog = &catalogs[i];
		ScanKeyData key;
		SysScanDesc scan;
		HeapTuple	tuple;
		bool		isnull;
		bool		lies;

		if (catalog->class != class)
			continue;
		if (opened[i] == NULL)
			opened[i] = table_open(class, AccessShareLock);
		ScanKeyInit(&key, catalog->oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(object));
		scan = systable_beginscan(opened[i], catalog->index, true, NULL, 1, &key);
		tuple = systable_getnext(scan);
		lies = HeapTupleIsValid(tuple) &&
			DatumGetObjectId(heap_getattr(tuple, catalog->namespace,
										  RelationGetDescr(opened[i]), &isnull)) == schema;
		systable_endscan(scan);
		return lies;
	}
	return false;
}

/* What depends on an object in that way, and of a schema what lies in it. */
static void
look_at_dependents(Look *look, Oid class, Oid object, char deptype)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	Relation	opened[lengthof(catalogs)] = {NULL};
	ScanKeyData key[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(class));
	ScanKeyInit(&key[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(object));
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, 2, key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend dependent = (Form_pg_depend) GETSTRUCT(tuple);

		if (dependent->deptype == deptype &&
			(class != NamespaceRelationId ||
			 lies_in(object, dependent->classid, dependent->objid, opened)))
			look_at_object(look, dependent->classid, dependent->objid);
	}
	systable_endscan(scan);
	for (int i = 0; i < (int) lengthof(catalogs); i++)
		if (opened[i] != NULL)
			table_close(opened[i], AccessShareLock);
	table_close(depend, AccessShareLock);
}

/* Somebody beside its owner who may create in it; "" is everybody. */
static char *
may_create(const Acl *acl, Oid owner)
{
	for (int i = 0; i < ACL_NUM(acl); i++)
	{
		const AclItem *item = &ACL_DAT(acl)[i];

		if ((ACLITEM_GET_PRIVS(*item) & ACL_CREATE) && item->ai_grantee != owner)
			return item->ai_grantee == ACL_ID_PUBLIC ? "" :
				GetUserNameFromId(item->ai_grantee, true);
	}
	return NULL;
}

static char *
compare_schema(Look *look)
{
	HeapTuple	tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(look->schema));
	char	   *different = NULL;
	Form_pg_namespace form;
	Datum		acl;
	bool		isnull;

	if (!HeapTupleIsValid(tuple))
		return pstrdup("schema \"outbox_internal\" does not belong to the extension \"outbox\"");
	form = (Form_pg_namespace) GETSTRUCT(tuple);
	acl = SysCacheGetAttr(NAMESPACEOID, tuple, Anum_pg_namespace_nspacl, &isnull);
	if (strcmp(NameStr(form->nspname), "outbox_internal") != 0)
		different = psprintf("schema \"outbox_internal\" of the extension \"outbox\" was renamed to \"%s\"",
							 NameStr(form->nspname));
	else if (form->nspowner != look->owner && !is_superuser(look, form->nspowner))
		different = complaint("schema", NameStr(form->nspname), form->nspowner, look->owner);
	else if (!isnull)
	{
		char	   *who = may_create(DatumGetAclP(acl), form->nspowner);

		if (who != NULL)
			different = psprintf("role \"%s\" may create in schema \"outbox_internal\"",
								 *who == '\0' ? "public" : who);
	}
	ReleaseSysCache(tuple);
	return different;
}

static void
watch(List **kept, const List *looked_at)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	List	   *copy = list_copy(looked_at);

	MemoryContextSwitchTo(old);
	list_free(*kept);
	*kept = copy;
}

/*
 * Returns the table in *outbox, and not a view of its name; InvalidOid: there is none.
 * *inherits: what is returned is about a child.
 */
static char *
look_at_all(Oid extension, Oid *outbox, bool *inherits)
{
	Look		look = {0};
	char	   *unsafe;

	looking_stale = false;
	*outbox = creating_extension || IsBinaryUpgrade ?
		outbox_find_relation(OUTBOX_REL_OUTBOX) : outbox_relation(OUTBOX_REL_OUTBOX);
	if (!OidIsValid(*outbox))
		return NULL;
	look.owner = outbox_owner_of_relation(*outbox);
	look.members = true;
	look_at_dependents(&look, ExtensionRelationId, extension, DEPENDENCY_EXTENSION);
	look.members = false;
	if (OidIsValid(look.schema))
		look_at_dependents(&look, NamespaceRelationId, look.schema, DEPENDENCY_NORMAL);
	unsafe = compare_schema(&look);
	*inherits = unsafe == NULL && look.inherits;
	if (unsafe == NULL)
		unsafe = look.unsafe;
	if (unsafe == NULL)
	{
		watch(&watched, look.relations);
		watch(&watched_roles, look.roles);
		known = !looking_stale;
	}
	return unsafe;
}

/*
 * Caller is in a transaction.  Looks at some 300 rows of catalogs the first time,
 * and at nothing after that.
 */
char *
outbox_unsafe_object(const char **detail, const char **hint)
{
	Oid			extension;
	Oid			outbox;
	Oid			again;
	char	   *unsafe;
	bool		inherits;

	if (known)
		return NULL;
	register_callbacks();
	extension = get_extension_oid("outbox", true);
	if (!OidIsValid(extension))
		return NULL;
	unsafe = look_at_all(extension, &outbox, &inherits);
	if (unsafe != NULL)
	{
		/*
		 * A commit that gave all of them another owner may have been seen in
		 * half: its lock goes after its rows and its invalidations are there.
		 */
		LockRelationOid(outbox, AccessShareLock);
		unsafe = look_at_all(extension, &again, &inherits);
		UnlockRelationOid(outbox, AccessShareLock);
	}
	*detail = inherits ?
		"Triggers and unique indexes of a table do not count for the rows of its children." :
		"What the owner of a table adds to it (triggers, checks, policies) would run with the rights of another role.";
	*hint = inherits ? "Use ALTER TABLE ... NO INHERIT, or drop the child." :
		"Give all objects of the extension one owner, by ALTER TABLE ... OWNER TO, ALTER FUNCTION ... OWNER TO or REASSIGN OWNED.";
	return unsafe;
}

static bool
has_columns(Relation index, AttrNumber first, AttrNumber second)
{
	AttrNumber	columns[] = {first, second};
	int			n = second == 0 ? 1 : 2;

	if (!index->rd_index->indisvalid || index->rd_rel->relam != BTREE_AM_OID ||
		index->rd_index->indnkeyatts < n)
		return false;
	for (int i = 0; i < n; i++)
		if (index->rd_index->indkey.values[i] != columns[i] ||
			(index->rd_indoption[i] & INDOPTION_DESC) != 0)
			return false;
	return true;
}

Relation
outbox_open_index(Relation rel, const char *name, AttrNumber first,
				  AttrNumber second)
{
	List	   *indexes = RelationGetIndexList(rel);
	Relation	found = NULL;
	ListCell   *cell;

	foreach(cell, indexes)
	{
		char	   *its = get_rel_name(lfirst_oid(cell));

		if (its != NULL && strcmp(its, name) == 0)
			found = index_open(lfirst_oid(cell), AccessShareLock);
	}
	list_free(indexes);
	if (found == NULL || has_columns(found, first, second))
		return found;
	index_close(found, NoLock);
	return NULL;
}

/*
 * Deferred triggers on the tables, which cannot be run for the owner.
 *
 * A deferred trigger runs at the end of the transaction, when the statement that
 * was run as the owner is over.  Until PostgreSQL 17 the user is another one
 * then; from 18 on it is the owner, with the search_path of the caller.  The server
 * refuses it in a security-restricted operation, but does not say which it is.
 */

/* Is it deferred, and fired by such an event? */
static bool
defers(const Trigger *trigger, TriggerEvent event)
{
	if (!trigger->tgdeferrable || !trigger->tginitdeferred ||
		trigger->tgenabled == TRIGGER_DISABLED ||
		trigger->tgenabled == TRIGGER_FIRES_ON_REPLICA)
		return false;
	/* Queued only for rows that would break the constraint. */
	if (trigger->tgfoid == F_UNIQUE_KEY_RECHECK)
		return false;
	return TRIGGER_FIRED_BY_INSERT(event) ? TRIGGER_FOR_INSERT(trigger->tgtype) :
		TRIGGER_FIRED_BY_DELETE(event) ? TRIGGER_FOR_DELETE(trigger->tgtype) :
		TRIGGER_FOR_UPDATE(trigger->tgtype);
}

void
outbox_refuse_deferred(Relation rel, TriggerEvent event)
{
	if (!InSecurityRestrictedOperation() || rel->trigdesc == NULL)
		return;
	for (int i = 0; i < rel->trigdesc->numtriggers; i++)
	{
		const Trigger *trigger = &rel->trigdesc->triggers[i];
		char	   *constraint;

		if (!defers(trigger, event))
			continue;
		constraint = OidIsValid(trigger->tgconstraint) ?
			get_constraint_name(trigger->tgconstraint) : NULL;
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("deferred trigger \"%s\" on table \"%s\" is not supported",
						constraint != NULL ? constraint : trigger->tgname,
						RelationGetRelationName(rel)),
				 errdetail("Messages are stored and settled as the owner of the table, and a trigger cannot run for it at the end of the transaction."),
				 errhint("Make the trigger or constraint INITIALLY IMMEDIATE.")));
	}
}
