/*-------------------------------------------------------------------------
 *
 * turns.c
 *		What the launcher decides when databases share too few processes.
 *
 * The launcher's files are included as they are, with the processes, the catalog and
 * the time that it sees here.  A worker attaches, publishes while its database has
 * work, and leaves when it is told to.
 *
 *-------------------------------------------------------------------------
 */
#include "launcher_turns.c"
#include "launcher_workers.c"
#include <launcher.c>
#include "ddl.c"

#include "launcher_server.h"

#define DATABASES	12
#define SLOTS		8
#define STEP_MS		10
#define ATTACH_MS	20			/* from its start until a worker publishes */
#define FOREVER		INT_MAX
#define REST_MS		3600000		/* for which a worker without work says that it is not missed */
/* What the documents promise. */
#define BUSY_MS		3000
#define SOON_MS		500

typedef struct Database
{
	bool		template;
	bool		stuck;			/* its workers hang, and hear nothing */
	bool		locked;			/* its table is: its workers turn, and are never ready */
	bool		plain;			/* without the extension */
	int			connect_ms;		/* that its broker takes for a connection */
	int			work_ms;		/* to be published */
	int64		due_us;			/* a scheduled message; 0: none */
	int			starts;			/* of its workers, so far */
	int64		written;		/* rows, as the server counts them */
	int64		waits_us;		/* work waits since then; 0: it does not */
	int64		served_us;		/* it is published since then; 0: it is not */
	int64		longest_ms;		/* that work has waited */
	int64		shortest_ms;	/* turn that ended before the work did */
} Database;

/* The process of the slot with the same number; its handle is a pointer to it. */
typedef struct Process
{
	bool		runs;
	int64		started_us;
} Process;

static int64 look_us;			/* the launcher looks again then ... */
static bool woken;				/* ... or now */
static int	processes;			/* that the server has */
static int	group;				/* outbox.workers */
static int	twins;				/* workers that shared a number */
static int	lines;				/* in the log */
static int	most;				/* workers at the same time */
static Database databases[DATABASES];	/* their oids are 1, 2, 3, ... */
static Process process[SLOTS];
static OutboxRequest requests[DATABASES];
static int	nrequests;
static bool requests_lost;

/* ------------------------------------------------------- what the launcher sees */

int			max_worker_processes = SLOTS;
int			outbox_workers = 1;
int			outbox_max_workers;

bool
errstart(int elevel, const char *domain)
{
	lines++;
	return false;
}

void
errfinish(const char *filename, int lineno, const char *funcname)
{
}

int
errcode(int sqlerrcode)
{
	return 0;
}

int
errmsg(const char *fmt,...)
{
	return 0;
}

int
errdetail(const char *fmt,...)
{
	return 0;
}

int
errhint(const char *fmt,...)
{
	return 0;
}

void *
palloc0(Size size)
{
	return calloc(1, size);
}

void
pfree(void *pointer)
{
	if ((Process *) pointer < process || (Process *) pointer >= process + SLOTS)
		free(pointer);
}

List *
lappend(List *list, void *datum)
{
	if (list == NULL)
	{
		list = calloc(1, sizeof(List));
		list->elements = calloc(DATABASES, sizeof(ListCell));
	}
	list->elements[list->length++].ptr_value = datum;
	return list;
}

List *
list_delete_nth_cell(List *list, int n)
{
	list->length--;
	memmove(&list->elements[n], &list->elements[n + 1], (list->length - n) * sizeof(ListCell));
	return list;
}

/* Before PostgreSQL 17. */
List *
list_delete_cell(List *list, ListCell *cell)
{
	return list_delete_nth_cell(list, cell - list->elements);
}

void
list_sort(List *list, list_sort_comparator cmp)
{
	for (int i = 1; i < list->length; i++)
		for (int j = i; j > 0 && cmp(&list->elements[j - 1], &list->elements[j]) > 0; j--)
		{
			ListCell	cell = list->elements[j];

			list->elements[j] = list->elements[j - 1];
			list->elements[j - 1] = cell;
		}
}

/* pg_database */

static int	scanned;
static RelationData relation;

static void
end_scan(TableScanDesc scan)
{
}

LockAcquireResult
LockAcquire(const LOCKTAG *tag, LOCKMODE mode, bool session_lock, bool dont_wait)
{
	return LOCKACQUIRE_OK;
}

void
StartTransactionCommand(void)
{
}

void
CommitTransactionCommand(void)
{
}

Snapshot
GetTransactionSnapshot(void)
{
	return NULL;
}

Relation
table_open(Oid relationId, LOCKMODE lockmode)
{
	return &relation;
}

void
table_close(Relation rel, LOCKMODE lockmode)
{
}

TableScanDesc
table_beginscan_catalog(Relation rel, int nkeys, struct ScanKeyData *key)
{
	static const TableAmRoutine am = {.scan_end = end_scan};
	static TableScanDescData scan = {.rs_rd = &relation};

	relation.rd_tableam = &am;
	scanned = 0;
	return &scan;
}

HeapTuple
heap_getnext(TableScanDesc scan, ScanDirection direction)
{
	static union
	{
		HeapTupleHeaderData header;
		char		bytes[1024];
	}			row;
	static HeapTupleData tuple = {.t_data = &row.header};
	Form_pg_database form;

	if (scanned == DATABASES)
		return NULL;
	row.header.t_hoff = MAXALIGN(sizeof(row.header));
	form = (Form_pg_database) GETSTRUCT(&tuple);
	form->oid = scanned + 1;
	form->datallowconn = true;
	form->datistemplate = databases[scanned].template;
	form->datconnlimit = -1;
	scanned++;
	return &tuple;
}

char *
defGetString(DefElem *def)
{
	return (char *) "true";
}

/* By a clock that is set forward by so much. */
static int64 clock_ahead_us;

TimestampTz
GetCurrentTimestamp(void)
{
	return now_us + clock_ahead_us;
}

/* statistics */

int64
outbox_rows_written(Oid dboid)
{
	return databases[dboid - 1].written;
}

/* shared memory */

OutboxSlot *
outbox_slot_assign(Oid dboid, int worker, int nworkers, uint64 *generation)
{
	for (int i = 0; i < SLOTS; i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];

		if (slot->in_use)
			continue;
		memset(slot, 0, sizeof(*slot));
		slot->in_use = true;
		slot->dboid = dboid;
		slot->worker = worker;
		slot->nworkers = slot->wanted_workers = nworkers;
		slot->generation = *generation = ++outbox_shared->last_generation;
		return slot;
	}
	return NULL;
}

void
outbox_stats_crashed(Oid dboid)
{
	(void) dboid;
}

bool
outbox_slot_free(OutboxSlot *slot, uint64 generation)
{
	slot->in_use = false;
	return slot->inbox.signals != 0 || slot->inbox.nranges > 0;
}

int
outbox_shared_tell_workers(Oid dboid, int signals)
{
	int			told = 0;

	for (int i = 0; i < SLOTS; i++)
		if (outbox_shared->slots[i].in_use && outbox_shared->slots[i].dboid == dboid)
		{
			outbox_shared->slots[i].inbox.signals |= signals;
			told++;
		}
	return told;
}

int
outbox_shared_take_requests(OutboxRequest *taken, bool *lost, bool *lost_work)
{
	int			count = nrequests;

	memcpy(taken, requests, count * sizeof(OutboxRequest));
	nrequests = 0;
	*lost = *lost_work = requests_lost;
	requests_lost = false;
	return count;
}

void
outbox_shared_wake_launcher(void)
{
	woken = true;
}

void
outbox_shared_set_resting(const Oid *dboids, int count)
{
}

const char *
outbox_workers_advice(void)
{
	return "";
}

/* processes */

bool
RegisterDynamicBackgroundWorker(BackgroundWorker *worker, BackgroundWorkerHandle **handle)
{
	OutboxWorkerArgs args;
	OutboxSlot *slot;
	int			running = 0;

	for (int i = 0; i < SLOTS; i++)
		running += process[i].runs;
	if (running >= processes)
		return false;
	memcpy(&args, worker->bgw_extra, sizeof(args));
	if (args.slot < 0)
		return true;
	slot = &outbox_shared->slots[args.slot];
	for (int i = 0; i < SLOTS; i++)
		if (process[i].runs && outbox_shared->slots[i].dboid == slot->dboid &&
			(outbox_shared->slots[i].worker == slot->worker ||
			 outbox_shared->slots[i].nworkers != slot->nworkers))
			twins++;
	slot->pid = 100 + args.slot;
	process[args.slot].runs = true;
	process[args.slot].started_us = now_us;
	databases[args.dboid - 1].starts++;
	*handle = (BackgroundWorkerHandle *) &process[args.slot];
	most = Max(most, running + 1);
	return true;
}

BgwHandleStatus
GetBackgroundWorkerPid(BackgroundWorkerHandle *handle, pid_t *pid)
{
	return ((Process *) handle)->runs ? BGWH_STARTED : BGWH_STOPPED;
}

/* Of a worker that hangs in its start, where SIGTERM is die(). */
void
TerminateBackgroundWorker(BackgroundWorkerHandle *handle)
{
	Process    *worker = (Process *) handle;
	OutboxSlot *slot = &outbox_shared->slots[worker - process];

	slot->exit_reason = OUTBOX_EXIT_STOPPED;
	slot->state = OUTBOX_WORKER_STOPPED;
	worker->runs = false;
	woken = true;
}

PGPROC *
BackendPidGetProc(int pid)
{
	return process[pid - 100].runs ? (PGPROC *) &process[pid - 100] : NULL;
}

/* -------------------------------------------------------------------- the world */

/* A transaction tells the workers of its database, or asks for them. */
static void
announce(Database *db, bool row, int signals)
{
	Oid			dboid = db - databases + 1;

	for (int i = 0; row && i < SLOTS; i++)
		if (outbox_shared->slots[i].dboid == dboid)
			outbox_shared->slots[i].inbox.nranges = 1;
	if (outbox_shared_tell_workers(dboid, signals) > 0)
		return;
	requests[nrequests++] = (OutboxRequest) {dboid, row || (signals & ~OUTBOX_SIGNAL_STOP) != 0};
	outbox_shared_wake_launcher();
}

/* More databases ask than there is room for. */
static void
lose_requests(void)
{
	nrequests = 0;
	requests_lost = true;
}

static void
enqueue(Database *db, int work_ms)
{
	db->work_ms = work_ms;
	announce(db, true, 0);
}

/* ALTER DATABASE ... IS_TEMPLATE */
static void
set_template(Database *db, bool template)
{
	Node		value = {T_Invalid};
	DefElem		option = {.type = T_DefElem,.defname = "is_template",.arg = &value};
	ListCell	cell = {.ptr_value = &option};
	List		options = {.type = T_List,.length = 1,.elements = &cell};
	AlterDatabaseStmt stmt = {.type = T_AlterDatabaseStmt,.options = &options};

	db->template = template;
	announce(db, false, signals_for_workers((Node *) &stmt));
}

static void
worker_step(Process *worker, OutboxSlot *slot)
{
	Database   *db = &databases[slot->dboid - 1];
	int			signals = slot->inbox.signals;

	if (db->stuck || now_us < worker->started_us + ATTACH_MS * 1000)
		return;
	if (db->plain)
	{
		slot->exit_reason = OUTBOX_EXIT_ABSENT;
		slot->state = OUTBOX_WORKER_STOPPED;
		worker->runs = now_us < worker->started_us + (ATTACH_MS + SOON_MS) * 1000;
		woken |= !worker->runs;
		return;
	}
	if (!slot->ready)
		woken = true;
	slot->ready = !db->locked;
	slot->wanted_workers = group;
	slot->state = db->locked ? OUTBOX_WORKER_DATABASE_ERROR : now_us < worker->started_us + db->connect_ms * INT64CONST(1000) ?
		OUTBOX_WORKER_CONNECTING : db->work_ms > 0 ? OUTBOX_WORKER_PUBLISHING : OUTBOX_WORKER_IDLE;
	if (slot->state == OUTBOX_WORKER_PUBLISHING)
		slot->published_at = outbox_mono_now();
	memset(&slot->inbox, 0, sizeof(slot->inbox));
	if ((signals & (OUTBOX_SIGNAL_RESTART | OUTBOX_SIGNAL_STOP | OUTBOX_SIGNAL_YIELD)) == 0)
		return;
	slot->exit_reason = signals & OUTBOX_SIGNAL_YIELD ? OUTBOX_EXIT_YIELDED :
		signals & OUTBOX_SIGNAL_STOP ? OUTBOX_EXIT_STOPPED : OUTBOX_EXIT_RESTART;
	slot->rest_ms = db->work_ms > 0 ? 0 : db->due_us != 0 && slot->worker == 0 ?
		(db->due_us - now_us) / 1000 : REST_MS;
	worker->runs = false;
	woken = true;
}

static int
count_workers(const Database *db, bool that_publish)
{
	int			count = 0;

	for (int i = 0; i < SLOTS; i++)
	{
		OutboxSlot *slot = &outbox_shared->slots[i];

		count += process[i].runs && slot->dboid == db - databases + 1 &&
			(!that_publish || (slot->state == OUTBOX_WORKER_PUBLISHING && !db->stuck));
	}
	return count;
}

static void
database_step(Database *db)
{
	bool		served = count_workers(db, true) > 0;

	if (db->due_us != 0 && now_us >= db->due_us)
	{
		db->due_us = 0;
		db->work_ms = STEP_MS;
	}
	if (db->served_us != 0 && !served && db->work_ms > 0)
		db->shortest_ms = Min(db->shortest_ms, (now_us - db->served_us) / 1000);
	db->served_us = !served ? 0 : db->served_us != 0 ? db->served_us : now_us;
	if (db->waits_us != 0)
		db->longest_ms = Max(db->longest_ms, (now_us - db->waits_us) / 1000);
	db->waits_us = served || db->work_ms == 0 ? 0 : db->waits_us != 0 ? db->waits_us : now_us;
	if (served && db->work_ms != FOREVER)
		db->work_ms = Max(db->work_ms - STEP_MS, 0);
}

static void
pass(int ms)
{
	for (int64 end = now_us + ms * INT64CONST(1000); now_us < end; now_us += STEP_MS * 1000)
	{
		for (int i = 0; i < SLOTS; i++)
			if (process[i].runs)
				worker_step(&process[i], &outbox_shared->slots[i]);
		for (int i = 0; i < DATABASES; i++)
			database_step(&databases[i]);
		if (!woken && now_us < look_us)
			continue;
		woken = false;
		take_requests();
		look_us = now_us + Max(manage_databases(), 10) * 1000;
	}
}

/* Another one knows nothing of the workers that there are. */
static void
start_launcher(void)
{
	while (list_length(outbox_databases) > 0)
	{
		pfree(linitial(outbox_databases));
		outbox_databases = list_delete_nth_cell(outbox_databases, 0);
	}
	report_at = OUTBOX_MONO_UNSET;
	init_old_workers();
	(void) scan_databases(InvalidOid);
	woken = true;
}

/* The first ones have the extension, the others are templates. */
static void
start_world(int ndatabases, int nprocesses, int workers)
{
	Size		size = offsetof(OutboxShared, slots) + SLOTS * sizeof(OutboxSlot);

	if (outbox_shared == NULL)
		outbox_shared = malloc(size);
	memset(outbox_shared, 0, size);
	outbox_shared->nslots = SLOTS;
	memset(process, 0, sizeof(process));
	memset(databases, 0, sizeof(databases));
	for (int i = 0; i < DATABASES; i++)
	{
		databases[i].template = i >= ndatabases;
		databases[i].shortest_ms = FOREVER;
	}
	processes = nprocesses;
	group = outbox_workers = workers;
	outbox_max_workers = SLOTS;
	nrequests = lines = twins = most = 0;
	start_launcher();
}

/* -------------------------------------------------------------------- the tests */

/* outbox.max_workers is written, and the server reloads it. */
static void
set_limit(int limit)
{
	outbox_max_workers = limit;
	outbox_shared_wake_launcher();
}

static void
test_busy(void)
{
	int64		longest = 0;
	int64		shortest = FOREVER;

	start_world(3, 1, 1);
	for (int i = 0; i < 3; i++)
		databases[i].work_ms = FOREVER;
	pass(120000);
	for (int i = 0; i < 3; i++)
	{
		longest = Max(longest, databases[i].longest_ms);
		shortest = Min(shortest, databases[i].shortest_ms);
	}
	check(shortest >= BUSY_MS, "a busy database keeps its worker for 3 s: %d ms", (int) shortest);
	check(longest <= 2 * (BUSY_MS + SOON_MS),
		  "the one that has waited longest is next, of three busy ones: %d ms", (int) longest);
	check(lines == 1, "the log says once that processes are scarce: %d", lines);
}

static void
test_idle(void)
{
	start_world(2, 1, 1);
	pass(1000);
	for (int i = 0; i < 10; i++)
	{
		enqueue(&databases[i % 2], STEP_MS);
		for (int j = 0; j < 1000 && databases[i % 2].work_ms > 0; j++)
			pass(STEP_MS);
	}
	check(Max(databases[0].longest_ms, databases[1].longest_ms) <= SOON_MS,
		  "an idle database makes room within 0.5 s: %d ms",
		  (int) Max(databases[0].longest_ms, databases[1].longest_ms));

	start_world(2, 2, 1);
	pass(1000);
	set_template(&databases[2], false);
	enqueue(&databases[2], STEP_MS);
	pass(SOON_MS);
	check(count_workers(&databases[0], false) + count_workers(&databases[1], false) == 1,
		  "one makes room for one that waits, and no other");
}

/* Two processes, one database that publishes ten times a second, two that only look. */
static void
test_works(void)
{
	Database   *works = &databases[0];
	int64		longest = 0;

	start_world(3, 2, 1);
	pass(5000);
	enqueue(works, STEP_MS);
	pass(5000);
	works->starts = 0;
	for (int i = 0; i < 600; i++)
	{
		enqueue(works, STEP_MS);
		if (i % 2 == 0)
			announce(&databases[1 + i / 2 % 2], false, 0);
		pass(100);
	}
	check(works->starts <= 1, "a database that works keeps its worker, while others take turns: %d starts",
		  works->starts);
	check(databases[1].starts > 50 && databases[2].starts > 50,
		  "which they do: %d and %d starts", databases[1].starts, databases[2].starts);

	/* Of which several wait at a time. */
	start_world(4, 2, 1);
	works->work_ms = FOREVER;
	pass(2000);
	works->starts = 0;
	for (int i = 0; i < 60; i++)
	{
		for (int j = 1; j < 4; j++)
			announce(&databases[j], false, 0);
		pass(1000);
	}
	check(works->starts == 0, "however many wait: %d starts", works->starts);
	check(databases[3].starts >= 30, "which one after the other gets a worker: %d starts", databases[3].starts);

	start_world(3, 2, 1);
	databases[0].work_ms = databases[1].work_ms = databases[2].work_ms = FOREVER;
	pass(60000);
	for (int i = 0; i < 3; i++)
		longest = Max(longest, databases[i].longest_ms);
	check(longest <= BUSY_MS + 2 * SOON_MS, "where too many work, they take turns: %d ms", (int) longest);
}

static void
test_connect(void)
{
	start_world(2, 1, 1);
	databases[0].work_ms = databases[1].work_ms = FOREVER;
	databases[0].connect_ms = 5000;
	pass(60000);
	check(databases[0].shortest_ms >= BUSY_MS && databases[0].shortest_ms < FOREVER,
		  "connecting is not part of a turn: %d ms", (int) databases[0].shortest_ms);
	databases[0].connect_ms = FOREVER;
	databases[1].longest_ms = 0;
	pass(60000);
	check(databases[1].longest_ms <= 10000 + SOON_MS,
		  "but others wait for it for 10 s at most: %d ms", (int) databases[1].longest_ms);
}

static void
test_scheduled(void)
{
	Database   *rests = &databases[0];
	int			starts;

	start_world(2, 1, 1);
	pass(1000);
	rests->due_us = now_us + 10000 * 1000;
	announce(rests, true, 0);
	pass(SOON_MS);
	check(count_workers(rests, false) == 1, "a worker comes for a scheduled message, and sees when it is due");
	enqueue(&databases[1], STEP_MS);
	pass(2000);
	starts = rests->starts;
	check(count_workers(rests, false) == 0, "its database makes room until then");
	pass(7000);
	check(rests->starts == starts, "it does not come back earlier");
	pass(2000);
	check(rests->due_us == 0 && rests->work_ms == 0 && rests->longest_ms <= SOON_MS,
		  "and is there in time: after %d ms", (int) rests->longest_ms);
}

/* At a server's start all databases wait for the one process; in the last one there is work. */
static void
test_asked(void)
{
	int			fewest = FOREVER;

	start_world(3, 1, 1);
	pass(100);
	enqueue(&databases[2], STEP_MS);
	for (int i = 0; i < 1000 && databases[2].work_ms > 0; i++)
		pass(STEP_MS);
	check(databases[1].starts == 0 && databases[2].longest_ms <= SOON_MS,
		  "one with work comes before one that may have none: after %d ms", (int) databases[2].longest_ms);
	pass(1000);
	check(databases[1].starts == 1, "which is next");
	/* one that asks again and again */
	start_world(3, 1, 1);
	databases[0].work_ms = databases[2].work_ms = FOREVER;
	for (int i = 0; i < 300; i++)
	{
		announce(&databases[0], true, 0);
		announce(&databases[2], true, 0);
		pass(100);
	}
	check(databases[1].starts > 0, "and does not wait for ever: %d starts", databases[1].starts);
	/* many whose brokers do not answer, and which nobody uses */
	start_world(DATABASES, 2, 1);
	for (int i = 1; i < DATABASES; i++)
	{
		databases[i].connect_ms = databases[i].work_ms = FOREVER;
		databases[i].starts = 0;
	}
	pass(60000);
	databases[0].longest_ms = 0;
	for (int i = 0; i < 10; i++)
	{
		enqueue(&databases[0], STEP_MS);
		pass(60000 + i * 1000);
	}
	check(databases[0].longest_ms <= 10000 + 2 * SOON_MS,
		  "one with work waits for one that connects, however many do: %d ms", (int) databases[0].longest_ms);
	for (int i = 1; i < DATABASES; i++)
		fewest = Min(fewest, databases[i].starts);
	check(fewest >= 5, "and these take turns: %d starts", fewest);
}

/* Two databases that nobody uses share a process. */
static void
test_rests(void)
{
	Database   *db = &databases[0];
	int			starts;

	start_world(2, 1, 1);
	pass(5000);
	/* now it is without a worker */
	enqueue(&databases[1], STEP_MS);
	pass(2000);
	starts = db->starts;
	pass(10 * 60000);
	check(db->starts == starts, "nothing was written in a database: no worker comes to look, %d did",
		  db->starts - starts);
	db->written++;
	pass(60000 + SOON_MS);
	check(db->starts == starts + 1, "a row that nobody has announced: one comes within a minute, %d did",
		  db->starts - starts);
	enqueue(&databases[1], STEP_MS);
	pass(2000);
	starts = db->starts;
	pass(REST_MS + SOON_MS);
	check(db->starts == starts + 1, "and else each hour, for its archive: %d did", db->starts - starts);
	enqueue(&databases[1], STEP_MS);
	pass(2000);
	starts = db->starts;
	announce(db, true, 0);
	pass(SOON_MS);
	check(db->starts == starts + 1, "or when a transaction asks for it");

	enqueue(&databases[1], STEP_MS);
	pass(2000);
	starts = db->starts;
	enqueue(db, STEP_MS);
	lose_requests();
	pass(SOON_MS);
	check(db->starts == starts + 1, "or when it may be one of those that asked, and did not fit");

	enqueue(&databases[1], STEP_MS);
	pass(2000);
	db->written++;
	pass(60000 + SOON_MS);
	starts = db->starts;
	announce(db, false, OUTBOX_SIGNAL_RESTART);
	pass(60000 + SOON_MS);
	check(db->starts == starts + 1, "the worker that looks is restarted: one comes back, %d did",
		  db->starts - starts);

	enqueue(&databases[1], STEP_MS);
	pass(2000);
	starts = db->starts;
	clock_ahead_us = REST_MS * INT64CONST(1000);
	pass(60000 + SOON_MS);
	check(db->starts == starts + 1, "the clock is set forward: what is scheduled may be due, %d came",
		  db->starts - starts);

	start_world(1, 2, 2);
	db->due_us = now_us + 600000 * INT64CONST(1000);
	pass(1000);
	set_template(&databases[1], false);
	enqueue(&databases[1], STEP_MS);
	pass(2000);
	starts = db->starts;
	clock_ahead_us += 600000 * INT64CONST(1000);
	pass(60000 + SOON_MS);
	check(db->starts > starts, "whichever of its workers knew of it, %d came", db->starts - starts);
	clock_ahead_us = 0;
}

static void
test_group(void)
{
	Database   *db = &databases[0];
	int			starts;

	start_world(1, 2, 3);
	db->work_ms = FOREVER;
	pass(2000);
	check(count_workers(db, true) == 2 && outbox_shared->fewer_workers,
		  "a database that wants three workers and gets two makes do");
	starts = db->starts;
	pass(30000);
	check(db->starts == starts, "they are left alone while no process is free");
	processes = 3;
	pass(11000);
	check(count_workers(db, true) == 3 && !outbox_shared->fewer_workers,
		  "there is a process for one more: it gets it");
	check(twins == 0, "all workers of a database always divide its keys by the same number");
}

static void
test_limit(void)
{
	int64		longest = 0;
	int			running = 0;

	start_world(3, SLOTS, 1);
	set_limit(2);
	for (int i = 0; i < 3; i++)
		databases[i].work_ms = FOREVER;
	pass(60000);
	for (int i = 0; i < 3; i++)
		longest = Max(longest, databases[i].longest_ms);
	check(most == 2, "no more workers run than outbox.max_workers allows, whatever the server has: %d", most);
	check(longest <= BUSY_MS + 2 * SOON_MS, "three busy databases take turns with them: %d ms", (int) longest);
	check(outbox_shared->at_limit && lines == 1, "the log says once what it is that limits them: %d", lines);

	set_limit(1);
	pass(SOON_MS);
	for (int i = 0; i < 3; i++)
		running += count_workers(&databases[i], false);
	check(running == 1, "it is lowered: what is too much leaves at once, and %d is left", running);
	set_limit(3);
	pass(NO_WORKER_MS + SOON_MS);
	for (int i = 0; i < 3; i++)
		check(count_workers(&databases[i], true) == 1, "it is raised: each database has its worker, database %d too", i);
	check(!outbox_shared->out_of_workers, "and nobody waits");

	start_world(2, SLOTS, 3);
	set_limit(0);
	databases[0].work_ms = databases[1].work_ms = FOREVER;
	pass(30000);
	check(most == SLOTS / 2, "by default it is half of max_worker_processes: %d", most);
	check(count_workers(&databases[0], true) > 0 && count_workers(&databases[1], true) > 0,
		  "two databases that want six workers share four: %d and %d",
		  count_workers(&databases[0], true), count_workers(&databases[1], true));
	running = databases[0].starts + databases[1].starts;
	pass(60000);
	check(databases[0].starts + databases[1].starts == running, "and are left alone while that is so");
	check(twins == 0, "all workers of each divide its keys by the same number");
	max_worker_processes = 1;
	check(outbox_worker_limit() == 1, "and never less than one");
	max_worker_processes = SLOTS;
}

static void
test_stuck(void)
{
	start_world(3, 4, 1);
	databases[0].stuck = databases[1].stuck = true;
	databases[2].work_ms = STEP_MS;
	pass(10000);
	check(databases[2].work_ms == 0 && databases[2].longest_ms <= 5000 + SOON_MS,
		  "two databases whose workers hang in their start delay another one by 5 s at most: %d ms",
		  (int) databases[2].longest_ms);

	start_world(1, 2, 1);
	pass(1000);
	set_template(&databases[1], false);
	pass(1000);
	databases[0].stuck = true;
	set_template(&databases[2], false);
	enqueue(&databases[2], STEP_MS);
	pass(10000);
	check(databases[2].work_ms == 0 && databases[2].longest_ms <= 5000 + SOON_MS,
		  "so does one that was asked for room and hangs: %d ms", (int) databases[2].longest_ms);

	start_world(2, 1, 1);
	databases[0].stuck = true;
	pass(1000);
	enqueue(&databases[1], FOREVER);
	pass(HANG_MS + SOON_MS - 1000);
	check(count_workers(&databases[1], true) == 1,
		  "one that hangs in its start is terminated after 30 s, when another one waits");
	pass(60000);
	check(databases[0].starts >= 2 && databases[0].starts <= 3,
		  "and comes again in its turn: %d starts", databases[0].starts);
	databases[0].stuck = false;
	enqueue(&databases[0], STEP_MS);
	pass(HANG_MS);
	check(databases[0].work_ms == 0, "until it can start");

	start_world(2, 2, 1);
	databases[0].stuck = true;
	pass(120000);
	check(databases[0].starts == 1, "nobody waits: it may hang as long as it likes, %d starts", databases[0].starts);

	start_world(1, 3, 3);
	pass(2000);
	databases[0].stuck = true;
	process[0].runs = false;
	woken = true;
	pass(5000);
	set_template(&databases[1], false);
	enqueue(&databases[1], STEP_MS);
	pass(HANG_MS + SOON_MS);
	check(databases[0].starts == 4 && databases[1].work_ms == 0,
		  "so is one that starts again beside others of its database: %d ms", (int) databases[1].longest_ms);
}

/* What a worker cannot use before it is ready must not keep others from a process. */
static void
test_locked(void)
{
	Database   *good = &databases[1];

	start_world(2, 1, 1);
	databases[0].locked = true;
	pass(1000);
	for (int i = 0; i < 10; i++)
	{
		announce(&databases[0], true, 0);
		pass(SOON_MS);
		enqueue(good, STEP_MS);
		for (int j = 0; j < 1000 && good->work_ms > 0; j++)
			pass(STEP_MS);
	}
	check(good->longest_ms <= 2 * SOON_MS && good->work_ms == 0,
		  "a database whose table is locked makes room as an idle one does: %d ms", (int) good->longest_ms);

	start_world(2, 2, 1);
	databases[0].locked = good->locked = true;
	pass(1000);
	set_limit(1);
	pass(SOON_MS);
	check(count_workers(&databases[0], false) + count_workers(good, false) == 1,
		  "and so it does when fewer workers may run");

	start_world(3, 1, 1);
	databases[0].plain = databases[1].plain = true;
	enqueue(&databases[2], FOREVER);
	pass(10000);
	check(databases[0].starts == 1 && databases[1].starts == 1,
		  "a database without the extension is looked at once, whoever waits: %d and %d starts",
		  databases[0].starts, databases[1].starts);
}

/* Their owners alter databases without the extension all the time, so these are looked at again and again. */
static void
test_altered(void)
{
	Database   *good = &databases[DATABASES - 1];
	int			others = 0;
	int			waits[2] = {0, 0};

	start_world(DATABASES, SLOTS, 1);
	for (int i = 0; i < DATABASES - 1; i++)
		databases[i].plain = true;
	pass(10000);
	for (int round = 0; round < 2; round++)
	{
		good->starts = 0;
		for (int i = 0; i < 1000; i++)
		{
			for (int j = 0; j < DATABASES - 1; j++)
				announce(&databases[j], false, 0);
			if (i == 100 && round == 0)
				announce(good, false, OUTBOX_SIGNAL_RESTART);
			else if (i == 100)
				start_launcher();
			pass(STEP_MS);
			if (i >= 100 && good->starts == 0)
				waits[round] += STEP_MS;
		}
	}
	for (int i = 0; i < DATABASES - 1; i++)
		others += databases[i].starts;
	check(others > 4 * DATABASES, "they get workers: %d", others);
	check(waits[0] <= 100, "a database that has lost its worker does not wait for them: %d ms", waits[0]);
	check(waits[1] <= DATABASES / MAX_PROBES * (ATTACH_MS + SOON_MS + 100),
		  "one that the launcher has not looked at yet waits for each of them once: %d ms", waits[1]);
}

static void
test_old(void)
{
	Database   *youngest = &databases[1];

	start_world(2, 4, 1);
	databases[0].work_ms = youngest->work_ms = FOREVER;
	pass(1000);
	youngest->stuck = true;
	start_launcher();
	pass(5000);
	check(databases[0].starts == 2 && databases[0].longest_ms <= SOON_MS,
		  "a launcher after a crash replaces the workers that it finds: after %d ms",
		  (int) databases[0].longest_ms);
	check(youngest->starts == 1, "it waits for one that hangs, in its database");
	youngest->stuck = false;
	pass(1500);
	check(youngest->starts == 2 && count_workers(youngest, true) == 1,
		  "and starts another one when that has left");
	check(twins == 0, "two workers never share a number");
}

static void
test_templates(void)
{
	start_world(2, 4, 1);
	pass(1000);
	check(databases[2].starts == 0, "no worker is connected to a template");
	set_template(&databases[0], true);
	pass(SOON_MS);
	check(count_workers(&databases[0], false) == 0, "workers leave a database that becomes one");
	pass(60000);
	check(databases[0].starts == 1, "and do not come back");
	set_template(&databases[0], false);
	pass(SOON_MS);
	check(count_workers(&databases[0], false) == 1, "until it is none any more");
}

int
main(void)
{
	int			failed;

	test_templates();
	test_busy();
	test_idle();
	test_works();
	test_connect();
	test_scheduled();
	test_rests();
	test_asked();
	test_group();
	test_limit();
	test_stuck();
	test_locked();
	test_altered();
	test_old();
	failed = done();
	if (failed == 0)
		printf("sim: %d decisions of the launcher about turns, all promises kept\n", checks_run);
	return failed;
}
