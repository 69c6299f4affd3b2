/*-------------------------------------------------------------------------
 *
 * numbering.c
 *		Numbers of messages that consumers can check order and gaps by.
 *
 * They are given where the message is enqueued and stored in its headers, so that
 * what is sent once more, replayed, or published by somebody else's relay has the
 * number that it had.
 *
 * The number of a key is that of its last message and one, in a row of
 * outbox_key_number which stays locked until the transaction ends: a rollback
 * gives the number back, and two messages of a key never have their numbers in
 * another order than they become visible in.  seq is drawn under the same lock,
 * since that is the order in which they are published; what the row's default has
 * drawn before is dropped.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "kept_plan.h"
#include "numbering.h"
#include "owner.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#define NUMBER_SQL \
	"INSERT INTO %s.outbox_key_number AS n (route, key_hash, last) VALUES ($1, $2, 1)" \
	" ON CONFLICT (route, key_hash) DO UPDATE SET last = n.last + 1" \
	" RETURNING last, nextval($3)"

static Oid
seq_sequence(Relation rel)
{
	Oid			relid = get_relname_relid("outbox_seq_seq", RelationGetNamespace(rel));

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("sequence \"outbox_seq_seq\" of the extension \"outbox\" does not exist")));
	return relid;
}

static int64
returned(int column)
{
	bool		isnull;
	Datum		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
									  column, &isnull);

	if (isnull)
		elog(ERROR, "column %d of a number is null", column);
	return DatumGetInt64(value);
}

void
outbox_number_key(Relation rel, const char *route, int64 key_hash,
				  int64 *number, int64 *seq)
{
	static OutboxKeptPlan kept;
	Oid			types[3] = {TEXTOID, INT8OID, REGCLASSOID};
	Datum		values[3];
	OutboxActing acting;
	int			result;

	values[0] = CStringGetTextDatum(route);
	values[1] = Int64GetDatum(key_hash);
	values[2] = ObjectIdGetDatum(seq_sequence(rel));
	SPI_connect();
	outbox_act_begin(&acting, rel->rd_rel->relowner, false);
	result = outbox_kept_plan_execute(&kept, RelationGetNamespace(rel), NUMBER_SQL,
									  lengthof(types), types, values, NULL,
									  false);
	if (result != SPI_OK_INSERT_RETURNING)
	{
		/* A rule's doing; the server would keep what it has made of it. */
		outbox_kept_plan_forget(&kept);
		elog(ERROR, "could not number a message: %s", SPI_result_code_string(result));
	}
	if (SPI_processed != 1)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the message has no number on route \"%s\"", route),
				 errdetail("A trigger on the table \"outbox_key_number\" has left its row out."),
				 errhint("Drop that trigger, or set sequence of the route to NULL.")));
	*number = returned(1);
	*seq = returned(2);
	outbox_act_end(&acting);
	SPI_finish();
}

Jsonb *
outbox_numbered_headers(Jsonb *headers, int64 seq, int64 number)
{
	/* As text, since the interface that builds a jsonb is another one from 19 on. */
	char	   *own = number == 0 ?
		psprintf("{\"x-outbox-seq\": " INT64_FORMAT "}", seq) :
		psprintf("{\"x-outbox-seq\": " INT64_FORMAT ", \"x-outbox-key-seq\": " INT64_FORMAT "}",
				 seq, number);
	Datum		object = DirectFunctionCall1(jsonb_in, CStringGetDatum(own));

	if (headers == NULL)
		return DatumGetJsonbP(object);
	return DatumGetJsonbP(DirectFunctionCall2(jsonb_concat,
											  JsonbPGetDatum(headers), object));
}
