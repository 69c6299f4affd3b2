/*-------------------------------------------------------------------------
 *
 * launcher_databases.c
 *		Which databases there are.
 *
 * Those that can be connected to are found at the start, and later because a
 * transaction that enqueued there, or created the extension, reported its own.
 * Whether the extension is there only a worker can see, so the first worker of a
 * database is also the probe.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "launcher_internal.h"
#include "settings.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

MemoryContext outbox_launcher_cxt;
List	   *outbox_databases = NIL;

static DatabaseEntry *
find_database(Oid dboid)
{
	ListCell   *cell;

	foreach(cell, outbox_databases)
	{
		DatabaseEntry *db = lfirst(cell);

		if (db->dboid == dboid)
			return db;
	}
	return NULL;
}

#ifdef USE_ASSERT_CHECKING
/* The diagram is in launcher_internal.h. */
static bool
may_become(DatabaseState from, DatabaseState to)
{
	switch (to)
	{
		case DATABASE_WAITING:
			return from == DATABASE_AWAY;
		case DATABASE_AWAY:
			return from != DATABASE_ABSENT;
		case DATABASE_STARTING:
			return from == DATABASE_AWAY || from == DATABASE_WAITING;
		case DATABASE_RUNNING:
			return from == DATABASE_STARTING;
		case DATABASE_YIELDING:
			return from == DATABASE_RUNNING;
		case DATABASE_REGROUPING:
			return from == DATABASE_STARTING || from == DATABASE_RUNNING ||
				from == DATABASE_ABSENT;
		case DATABASE_ABSENT:
			return true;
	}
	return false;
}
#endif

/* The only writer of db->state. */
void
outbox_database_set_state(DatabaseEntry *db, DatabaseState state)
{
	if (db->state == state)
		return;
	Assert(may_become(db->state, state));
	db->state = state;
	db->since = outbox_mono_now();
	if (state == DATABASE_YIELDING)
		(void) outbox_shared_tell_workers(db->dboid, OUTBOX_SIGNAL_YIELD);
	else if (state == DATABASE_REGROUPING)
		(void) outbox_shared_tell_workers(db->dboid, OUTBOX_SIGNAL_RESTART);
	else if (state == DATABASE_ABSENT)
		(void) outbox_shared_tell_workers(db->dboid, OUTBOX_SIGNAL_STOP);
}

static void
add_database(Oid dboid)
{
	MemoryContext old;
	DatabaseEntry *db = find_database(dboid);

	if (db != NULL)
	{
		/* Perhaps the extension was created a moment ago. */
		if (db->state == DATABASE_ABSENT)
			outbox_database_set_state(db, DATABASE_REGROUPING);
		return;
	}
	old = MemoryContextSwitchTo(outbox_launcher_cxt);
	db = palloc0(sizeof(DatabaseEntry));
	db->dboid = dboid;
	db->state = DATABASE_AWAY;
	db->since = outbox_mono_now();
	db->nworkers = outbox_workers;
	outbox_databases = lappend(outbox_databases, db);
	MemoryContextSwitchTo(old);
}

/*
 * Calls visit for every database that can be connected to and is no template,
 * in which nothing should be kept open.
 */
static void
scan_databases(void (*visit) (Oid dboid, void *arg), void *arg)
{
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;
	MemoryContext old = CurrentMemoryContext;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);

		/* A negative limit other than -1 marks an interrupted DROP. */
		if (form->datallowconn && !form->datistemplate &&
			form->datconnlimit >= -1)
			visit(form->oid, arg);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(old);
}

static void
visit_add(Oid dboid, void *arg)
{
	(void) arg;
	add_database(dboid);
}

void
outbox_databases_scan(void)
{
	scan_databases(visit_add, NULL);
}

typedef struct Exists
{
	Oid			dboid;
	bool		exists;
} Exists;

static void
visit_compare(Oid dboid, void *arg)
{
	Exists	   *exists = arg;

	if (exists->dboid == dboid)
		exists->exists = true;
}

bool
outbox_database_exists(Oid dboid)
{
	Exists		exists = {dboid, false};

	scan_databases(visit_compare, &exists);
	return exists.exists;
}

/*
 * Databases that a transaction reported, or whose hold has ended: they are
 * looked at now, unless their workers keep crashing.
 */
void
outbox_databases_take_requests(void)
{
	Oid			dboids[OUTBOX_MAX_REQUESTS];
	bool		lost;
	int			count = outbox_shared_take_requests(dboids, &lost);

	for (int i = 0; i < count; i++)
	{
		DatabaseEntry *db = find_database(dboids[i]);

		add_database(dboids[i]);
		if (db != NULL && db->failures == 0)
			db->retry_at = outbox_mono_now();
	}
	if (lost)
		outbox_databases_scan();
}
