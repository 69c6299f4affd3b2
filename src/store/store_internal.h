/*-------------------------------------------------------------------------
 *
 * store_internal.h
 *		What the files of the store share; nobody else includes it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_STORE_INTERNAL_H
#define OUTBOX_STORE_INTERNAL_H

#include "executor/spi.h"
#include "executor/tuptable.h"
#include "message.h"
#include "store.h"

/*
 * A statement of the worker, prepared at first use and kept.  It names objects of
 * pg_catalog and outbox_internal only: others may be anybody's by the time that it
 * is planned again.
 */
typedef struct OutboxStatement
{
	SPIPlanPtr	plan;
	struct OutboxStatement *next;	/* in the list of what is prepared */
} OutboxStatement;

/* Prepares sql (complete) with a generic plan unless it is already. */
extern SPIPlanPtr outbox_store_plan(OutboxStatement *statement,
									const char *sql, int nargs,
									const Oid *types);

/* Executes and checks the result code. */
extern void outbox_store_execute(SPIPlanPtr plan, Datum *values,
								 const char *nulls, int expected);

/*
 * Columns of a claim, numbered from 0 as in a slot.  The casts are nothing unless
 * somebody has changed the type of a column, which would be read as another then.
 */
#define CLAIM_COLUMNS \
	"ctid, seq::pg_catalog.int8, id::pg_catalog.uuid, route::pg_catalog.text," \
	" event_type::pg_catalog.text, aggregate_type::pg_catalog.text," \
	" aggregate_id::pg_catalog.text, payload::pg_catalog.jsonb," \
	" body::pg_catalog.bytea, headers::pg_catalog.jsonb," \
	" properties::pg_catalog.jsonb, routing_key::pg_catalog.text," \
	" created_at::pg_catalog.timestamptz," \
	" available_at::pg_catalog.timestamptz, attempts::pg_catalog.int4," \
	" origin::pg_catalog.int8, xmin"
#define CLAIM_TID				0
#define CLAIM_SEQ				1
#define CLAIM_ID				2
#define CLAIM_ROUTE				3
#define CLAIM_EVENT_TYPE		4
#define CLAIM_AGGREGATE_TYPE	5
#define CLAIM_AGGREGATE_ID		6
#define CLAIM_PAYLOAD			7
#define CLAIM_BODY				8
#define CLAIM_HEADERS			9
#define CLAIM_PROPERTIES		10
#define CLAIM_ROUTING_KEY		11
#define CLAIM_CREATED_AT		12
#define CLAIM_AVAILABLE_AT		13
#define CLAIM_ATTEMPTS			14
#define CLAIM_ORIGIN			15
#define CLAIM_XMIN				16

/* Columns of a list: OutboxRow. */
#define ROW_COLUMNS \
	"seq::pg_catalog.int8, id::pg_catalog.uuid," \
	" route::pg_catalog.text, aggregate_type::pg_catalog.text," \
	" aggregate_id::pg_catalog.text"
#define ROW_SEQ				0
#define ROW_ID				1
#define ROW_ROUTE			2
#define ROW_AGGREGATE_TYPE	3
#define ROW_AGGREGATE_ID	4

/* Rows that can go now, and those that wait for a time; not those of external relays. */
#define READY "status = 'pending' AND available_at IS NULL AND external IS NULL"
#define WAITING "status = 'pending' AND available_at IS NOT NULL AND external IS NULL"

/* store_claim.c */

extern Datum outbox_store_int64_array(const int64 *numbers, int n);

/* Runs a SELECT of ROW_COLUMNS in the claim's snapshot; returns how many rows. */
extern int	outbox_store_visit_rows(SPIPlanPtr plan, int nargs,
									const Oid *types, Datum *values,
									OutboxRowVisit visit, void *arg);

/* store_unreadable.c */

/* Their ids and their places, as arrays. */
extern void outbox_store_version_arrays(const OutboxUnreadableRow *rows, int n,
										Datum *ids, Datum *tids);

/* store_fence.c */

/* A claim begins; a row was locked, in the version that xid has written. */
extern void outbox_store_fence_reset(void);
extern void outbox_store_fence_row(TransactionId xid);

/* store_settle_direct.c */
extern int	outbox_store_settle_direct(const OutboxSettled *rows, int n,
									   bool archive, bool *remains);

/* store_settle.c */

/* What is not ours to trust, as text of this database: '?' where it has no form. */
extern Datum outbox_store_text(const char *utf8);
/* What came from this database, and so has a form in it. */
extern Datum outbox_store_own_text(const char *utf8);
/* One or the other, as the failure says. */
extern Datum outbox_store_reason(const OutboxFailure *failure);
extern Datum outbox_store_array(Datum *elems, int n, Oid type);
/* Of ids that are stride bytes apart. */
extern Datum outbox_store_id_array(const pg_uuid_t *first, size_t stride, int n);

/* store_dead_letter.c */

/* Moves those that have a death, of which there are some; returns their ids by SPI. */
extern void outbox_store_move(const OutboxFailure *failures, int n);

/* store_message.c */

/* An ERROR when one of these columns is null: its NOT NULL was taken away. */
extern void outbox_store_require(TupleTableSlot *slot, const int *columns,
								 int n);
/* The message of a claimed row, one chunk in the claim's cxt; NULL: it is known. */
extern OutboxMessage *outbox_store_message(TupleTableSlot *slot,
										   const OutboxClaim *claim);
/* The transaction has ended: no row is being read. */
extern void outbox_store_message_abort(void);
/* A column of type text as UTF-8, NULL for NULL. */
extern char *outbox_store_utf8(TupleTableSlot *slot, int column);
/* Hash of the key in these columns; 0 when it has none. */
extern int64 outbox_store_key_hash(TupleTableSlot *slot, int route_column,
								   int type_column, int id_column);

#endif							/* OUTBOX_STORE_INTERNAL_H */
