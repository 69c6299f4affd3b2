/*-------------------------------------------------------------------------
 *
 * production.c
 *		The relay's store, and its text of JSON, compiled into this module as they
 *		are.
 *
 * The sources are included because outbox.so exports no C functions from
 * PostgreSQL 16 on, and because here the schema must be set within somebody
 * else's transaction.  What the store calls outside of itself is at the end.
 *
 *-------------------------------------------------------------------------
 */
#include "../../../src/base/catalog.c"
#include "../../../src/base/encode_json.c"
#include "../../../src/base/own_relations.c"
#include "../../../src/base/reason_codes.c"
#include "../../../src/config/environment.c"
#include "../../../src/message/identity.c"
#include "../../../src/message/columns.c"
#include "../../../src/message/route.c"
#include "../../../src/store/store.c"
#include "../../../src/store/store_claim.c"
#include "../../../src/store/store_claim_direct.c"
#include "../../../src/store/store_control.c"
#include "../../../src/store/store_entries.c"
#include "../../../src/store/store_fence.c"
#include "../../../src/store/store_look.c"
#include "../../../src/store/store_message.c"
#include "../../../src/store/store_route.c"
#include "../../../src/store/store_settle.c"
#include "../../../src/store/store_settle_direct.c"
#include "../../../src/store/store_statement.c"
#include "../../../src/store/store_upkeep.c"

#include "fmgr.h"
#include "production.h"

static const OutboxOutlet external = {.name = "external", .excluded = true};
static const OutboxOutlet *const outlets[] = {&outbox_internal_outlet, &external};

void
outbox_test_attach(void)
{
	char		version[64];

	outbox_outlets = outlets;
	outbox_noutlets = lengthof(outlets);
	if (look_up_extension(version, sizeof(version)) == OUTBOX_EXTENSION_ABSENT)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"outbox\" does not exist")));
}

/* How a claim without filters is run now, and by which index. */
char *
outbox_test_claim_way_now(void)
{
	static OutboxStatement statement;
	CachedPlan *cached;
	const IndexScan *scan;
	Run			run;
	char	   *way = "executor";

	memcpy(statement.types, claim_types, sizeof(claim_types));
	statement.sql = claim_text(CLAIM_READY, 0);
	(void) outbox_store_prepare(&statement);
	cached = GetCachedPlan(linitial(SPI_plan_get_plan_sources(statement.plan)), NULL,
						   CurrentResourceOwner, NULL);
	scan = find_scan(linitial_node(PlannedStmt, cached->stmt_list));
	if (scan != NULL && open_index(&run, scan->indexid))
	{
		way = psprintf("direct, by %s", RelationGetRelationName(run.index));
		index_close(run.index, NoLock);
	}
	ReleaseCachedPlan(cached, CurrentResourceOwner);
	return way;
}

/* The setting of that name is outbox.so's; here nobody has set it. */
char	   *outbox_environment = "";

/* The store hands it on with the route, and nothing here sends. */
OutboxFormat *
outbox_format_make(MemoryContext parent, const char *name, const Jsonb *options,
				   OutboxFormatError *error)
{
	return NULL;
}

void
outbox_format_free(OutboxFormat *format)
{
}

/* There is no socket to watch over. */
void
outbox_watchdog_guard_sql(void)
{
}

void
outbox_watchdog_guard_commit(void)
{
}

bool
outbox_watchdog_release(void)
{
	return false;
}
