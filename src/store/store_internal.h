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
#include "nodes/plannodes.h"
#include "store.h"

#define OUTBOX_STATEMENT_ARGS	15

/*
 * A statement of the worker, prepared at first use and kept.  It names objects of
 * pg_catalog and outbox_internal only: others may be anybody's by the time that it
 * is planned again.
 */
typedef struct OutboxStatement
{
	const char *sql;
	int			result;			/* the code that SPI has to return */
	Oid			types[OUTBOX_STATEMENT_ARGS + 1];	/* of parameters; 0 ends
													 * them */
	bool		read_only;		/* it reads in the active snapshot */
	SPIPlanPtr	plan;
	struct OutboxStatement *next;	/* in the list of what is prepared */
} OutboxStatement;

/* Prepares it with a generic plan, unless it is already; returns its parameters' number. */
extern int	outbox_store_prepare(OutboxStatement *statement);

/* Executes it; no parameter is null. */
extern void outbox_store_run(OutboxStatement *statement, Datum *values);

/* Of what it has returned; isnull may be NULL. */
extern Datum outbox_store_get(uint64 row, int column, bool *isnull);

/* Of its first row; NULL for NULL, and if there is no row. */
extern char *outbox_store_get_text(int column);

/* Elements of an array in its first row, and their number; 0 for NULL.  nulls: or NULL. */
extern int	outbox_store_get_array(int column, Oid type, Datum **elems, bool **nulls);

/* The text of its first column, in cxt. */
extern char *outbox_store_keep_text(MemoryContext cxt);

/* The hash of a row's key, as the indexes have it; NULL for a row without a key. */
#define KEY_HASH "outbox_internal.outbox_key_hash(route, aggregate_type, aggregate_id)"

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
	CLAIM_XMIN,
	OUTBOX_CLAIM_COLUMNS		/* how many */
};

#define ROW_COLUMNS OUTBOX_MESSAGE_COLUMNS(OUTBOX_CAST_FIRST, OUTBOX_CAST_LISTED)
enum
{
	OUTBOX_MESSAGE_COLUMNS(OUTBOX_ROW_NUMBER, OUTBOX_ROW_NUMBER)
};

/* Rows that can go now, and those that wait for a time; not those of other outlets. */
#define READY "status = 'pending' AND available_at IS NULL AND outlet IS NULL"
#define WAITING "status = 'pending' AND available_at IS NOT NULL AND outlet IS NULL"

/* ------------------------------------------------------------------ store.c */

extern Oid	outbox_store_control_relid(void);

/* Begins a transaction that looks at catalogs only, with or without the extension. */
extern void outbox_store_begin_catalogs(const char *activity, bool guarded);

/* Is this the worker, in a transaction of store.c, and no session? */
extern bool outbox_store_in_transaction(void);

/* -------------------------------------------------------- store_statement.c */

/* The tables are attached: plans are made again. */
extern void outbox_store_forget_plans(void);

/* Text of this database; utf8 came from it, and so has a form in it. */
extern Datum outbox_store_own_text(const char *utf8);

extern Datum outbox_store_array(Datum *elems, int n, Oid type);
extern Datum outbox_store_int64_array(const int64 *numbers, int n);

/* Own texts of these. */
extern Datum outbox_store_text_array(const char *const *texts, int n);

/* Of ids that are stride bytes apart, as in an array of structs. */
extern Datum outbox_store_id_array(const pg_uuid_t *first, size_t stride, int n);

/*
 * Which of n such ids the last statement has returned, and the second columns; marks or
 * numbers may be NULL.
 */
extern void outbox_store_find_ids(const pg_uuid_t *ids, size_t stride, int n,
								  bool *marks, uint64 *numbers);

/* ---------------------------------------------------------- store_control.c */

/* The tables may be others: the next load runs its statement. */
extern void outbox_store_forget_control(void);

/* ------------------------------------------------------------ store_claim.c */

/* Parameters that every claim has, whether its text uses them or not. */
enum
{
	ARG_AFTER,
	ARG_UPTO,
	ARG_LIMIT,
	ARG_ROUTES,
	ARG_KEYS,
	ARG_WORKER,
	ARG_NWORKERS,
	ARG_DUE,
	ARG_KEY_HASH,
	ARG_IDS,
	ARG_TIDS,
	ARG_DUE_UPTO,
	ARG_KEY_ROUTES,
	ARG_KEY_UPTO,
	ARG_KEY_IDS
};

/* Runs a SELECT of ROW_COLUMNS in the claim's snapshot. */
extern void outbox_store_visit_rows(OutboxStatement *statement, Datum *values,
									OutboxRowVisit visit, void *arg);

/* ----------------------------------------------------- store_claim_direct.c */

/*
 * Runs a claim's plan, of at most so many rows, in the active snapshot; columns: what
 * the receiver gets; skipped: a row could not be locked.  Returns false, with nothing
 * done, when it is for the executor.
 */
extern bool outbox_store_claim_direct(const PlannedStmt *stmt, ParamListInfo params,
									  TupleDesc columns, int limit,
									  DestReceiver *receiver, bool *skipped);

/* ------------------------------------------------------------- store_look.c */

/* Their ids and their places, as arrays. */
extern void outbox_store_version_arrays(const OutboxUnreadableRow *rows, int n,
										Datum *ids, Datum *tids);

/* ------------------------------------------------------------ store_fence.c */

/* The tables were attached; a claim begins; a row was locked that xid has written. */
extern void outbox_store_fence_forget(void);
extern void outbox_store_fence_reset(void);
extern void outbox_store_fence_row(TransactionId xid);

/* ---------------------------------------------------- store_settle_direct.c */

/*
 * Settles what it finds where it was claimed and nobody has locked.  Returns how
 * many; remains (n bools) are false for those.
 */
extern int	outbox_store_settle_direct(const OutboxSettled *rows, int n,
									   OutboxArchive archive, bool *remains);

/* ---------------------------------------------------------- store_message.c */

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
