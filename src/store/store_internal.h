/*-------------------------------------------------------------------------
 *
 * store_internal.h
 *		What the files of the store share; nobody else includes it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_STORE_INTERNAL_H
#define OUTBOX_STORE_INTERNAL_H

#include "columns.h"
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
 * Columns of a claim and of a list (OutboxRow), numbered from 0 as in a slot.  The
 * casts are nothing unless somebody has changed the type of a column, which would be
 * read as another then.
 */
#define OUTBOX_CAST_FIRST(NAME, name, TYPE, type, ...) \
	#name "::pg_catalog." #type
#define OUTBOX_CAST_READ(NAME, name, TYPE, type, null, value, set_by, archive, relay) \
	OUTBOX_IF_READ_##relay(", " #name "::pg_catalog." #type)
#define OUTBOX_CAST_LISTED(NAME, name, TYPE, type, null, value, set_by, archive, relay) \
	OUTBOX_IF_LISTED_##relay(", " #name "::pg_catalog." #type)
#define OUTBOX_CLAIM_NUMBER(NAME, name, TYPE, type, null, value, set_by, archive, relay) \
	OUTBOX_IF_READ_##relay(CLAIM_##NAME,)
#define OUTBOX_ROW_NUMBER(NAME, name, TYPE, type, null, value, set_by, archive, relay) \
	OUTBOX_IF_LISTED_##relay(ROW_##NAME,)

#define CLAIM_COLUMNS \
	"ctid, " OUTBOX_MESSAGE_COLUMNS(OUTBOX_CAST_FIRST, OUTBOX_CAST_READ) ", xmin"
enum
{
	CLAIM_TID,
	OUTBOX_MESSAGE_COLUMNS(OUTBOX_CLAIM_NUMBER, OUTBOX_CLAIM_NUMBER)
	CLAIM_XMIN
};

#define ROW_COLUMNS OUTBOX_MESSAGE_COLUMNS(OUTBOX_CAST_FIRST, OUTBOX_CAST_LISTED)
enum
{
	OUTBOX_MESSAGE_COLUMNS(OUTBOX_ROW_NUMBER, OUTBOX_ROW_NUMBER)
};

/* Rows that can go now, and those that wait for a time; not those of other outlets. */
#define READY "status = 'pending' AND available_at IS NULL AND outlet IS NULL"
#define WAITING "status = 'pending' AND available_at IS NOT NULL AND outlet IS NULL"

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
extern Datum outbox_store_error(const OutboxFailure *failure);
extern Datum outbox_store_reason(const OutboxFailure *failure);
extern Datum outbox_store_array(Datum *elems, int n, Oid type);

/*
 * Which of n ids the last statement has returned, and their second columns if they are
 * asked for; they are stride bytes apart, as in an array of structs.
 */
extern void outbox_store_find_ids(const pg_uuid_t *ids, size_t stride, int n,
								  bool *marks, uint64 *numbers);

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
