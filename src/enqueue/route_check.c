/*-------------------------------------------------------------------------
 *
 * route_check.c
 *		What a route must be: the CHECK of outbox_route.
 *
 * One function for all columns instead of a constraint for each, because a constraint can
 * only say its name, and because it holds also where triggers do not fire.  Roles depend
 * on more than the row: route_trigger.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "enqueue_internal.h"
#include "format.h"
#include "route.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(outbox_route_allowed);

/* Arguments of outbox_route_allowed(). */
typedef enum RouteColumn
{
#define OUTBOX_ROUTE_SETTING(name, type)	name,
#define OUTBOX_ROUTE_ROLES(name, type)
#define OUTBOX_ROUTE_NOTE(name, type)
#include "route.def"
} RouteColumn;

/* NULL is what NOT NULL is for, which the server has looked at by now. */
static bool
is(FunctionCallInfo fcinfo, RouteColumn column, const char *word)
{
	return !PG_ARGISNULL(column) &&
		strcmp(TextDatumGetCString(PG_GETARG_DATUM(column)), word) == 0;
}

static const text *
field(FunctionCallInfo fcinfo, RouteColumn column)
{
	return PG_ARGISNULL(column) ? NULL : PG_GETARG_TEXT_PP(column);
}

static bool
positive(FunctionCallInfo fcinfo, RouteColumn column)
{
	return PG_ARGISNULL(column) || PG_GETARG_INT32(column) > 0;
}

/* So many seconds fit into the integer that outbox.retention is. */
#define RETENTION_MOST	(INT64CONST(2147483647) * USECS_PER_SEC)

static bool
retention_allowed(FunctionCallInfo fcinfo)
{
	Interval	least = {0};
	Interval	most = {.time = RETENTION_MOST};

	return PG_ARGISNULL(RETENTION) ||
		(DatumGetBool(DirectFunctionCall2(interval_ge, PG_GETARG_DATUM(RETENTION),
										  PointerGetDatum(&least))) &&
		 DatumGetBool(DirectFunctionCall2(interval_le, PG_GETARG_DATUM(RETENTION),
										  PointerGetDatum(&most))));
}

static char *
route_name(FunctionCallInfo fcinfo)
{
	return PG_ARGISNULL(NAME) ? "" : TextDatumGetCString(PG_GETARG_DATUM(NAME));
}

static void
allow(FunctionCallInfo fcinfo, bool allowed, const char *column, const char *rule)
{
	if (!allowed)
		ereport(ERROR,
				(errcode(ERRCODE_CHECK_VIOLATION),
				 errmsg("%s is not allowed for route \"%s\"", column,
						route_name(fcinfo)),
				 errdetail_internal("%s", rule)));
}

static void
check_template(FunctionCallInfo fcinfo)
{
	char	   *template;
	const char *detail;

	if (PG_ARGISNULL(ROUTING_KEY))
		return;
	template = TextDatumGetCString(PG_GETARG_DATUM(ROUTING_KEY));
	detail = outbox_route_template_error(template);
	if (detail != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("routing_key \"%s\" is not a valid template",
						template),
				 errdetail_internal("%s", detail)));
}

static const OutboxOutlet *
find_outlet(FunctionCallInfo fcinfo)
{
	const OutboxOutlet *outlet = PG_ARGISNULL(RELAY) ? NULL :
		outbox_outlet_find(TextDatumGetCString(PG_GETARG_DATUM(RELAY)));
	StringInfoData names;

	if (outlet != NULL)
		return outlet;
	initStringInfo(&names);
	for (int i = 0; i < outbox_noutlets; i++)
		appendStringInfo(&names, "%s%s", i == 0 ? "" :
						 i == outbox_noutlets - 1 ? " or " : ", ",
						 outbox_outlets[i]->name);
	ereport(ERROR,
			(errcode(ERRCODE_CHECK_VIOLATION),
			 errmsg("relay is not allowed for route \"%s\"", route_name(fcinfo)),
			 errdetail("It is %s.", names.data),
			 errhint("The library \"outbox\" on this server can publish in these ways only.")));
}

/* Messages that are read out of the log never wait in the table. */
static void
check_transient(FunctionCallInfo fcinfo, const OutboxOutlet *outlet)
{
	if (!PG_ARGISNULL(FAILED_ROUTE) || !PG_ARGISNULL(MAX_PENDING))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s cannot be set for route \"%s\", which has relay = '%s'",
						PG_ARGISNULL(FAILED_ROUTE) ? "max_pending" : "failed_route",
						route_name(fcinfo), outlet->name),
				 errdetail("Its messages are read out of the write-ahead log: none waits in the table, and none is given up here.")));
	if (!PG_ARGISNULL(PAUSED) && PG_GETARG_BOOL(PAUSED))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("route \"%s\", which has relay = '%s', cannot be paused",
						route_name(fcinfo), outlet->name),
				 errdetail("Its messages are read out of the write-ahead log, and nobody here can keep the reader from that."),
				 errhint("Stop the reader; it goes on where it was.")));
}

/* NULL: the route has none. */
static const OutboxFormat *
check_format(FunctionCallInfo fcinfo)
{
	OutboxFormatError error = {NULL, NULL};
	const OutboxFormat *format =
		outbox_format_make(CurrentMemoryContext,
						   PG_ARGISNULL(FORMAT) ? NULL :
						   TextDatumGetCString(PG_GETARG_DATUM(FORMAT)),
						   PG_ARGISNULL(FORMAT_OPTIONS) ? NULL :
						   PG_GETARG_JSONB_P(FORMAT_OPTIONS), &error);

	if (error.message != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg_internal("%s", error.message),
				 error.hint != NULL ? errhint("%s", error.hint) : 0));
	return format;
}

/* True, or an ERROR that names the column and says the rule. */
Datum
outbox_route_allowed(PG_FUNCTION_ARGS)
{
	const OutboxOutlet *outlet;
	const OutboxFormat *format;

#define IS(column, word)	is(fcinfo, column, word)
#define ALLOW(column, allowed, rule)	allow(fcinfo, allowed, column, rule)

	outbox_check_route(field(fcinfo, NAME), field(fcinfo, EXCHANGE),
					   field(fcinfo, EXCHANGE_TYPE), field(fcinfo, ROUTING_KEY));
	check_template(fcinfo);
	outlet = find_outlet(fcinfo);
	if (outlet->transient)
		check_transient(fcinfo, outlet);
	format = check_format(fcinfo);
	ALLOW("an empty name", !IS(NAME, ""), "A route has a name of 1 to 255 bytes.");
	ALLOW("exchange_type", PG_ARGISNULL(EXCHANGE_TYPE) ||
		  IS(EXCHANGE_TYPE, "direct") || IS(EXCHANGE_TYPE, "topic") ||
		  IS(EXCHANGE_TYPE, "fanout") || IS(EXCHANGE_TYPE, "headers") ||
		  strncmp(TextDatumGetCString(PG_GETARG_DATUM(EXCHANGE_TYPE)), "x-", 2) == 0,
		  "It is direct, topic, fanout, headers, a type of a plug-in that begins with x-, or NULL where the exchange exists.");
	ALLOW("exchange_type", PG_ARGISNULL(EXCHANGE_TYPE) || !IS(EXCHANGE, ""),
		  "The broker's default exchange, whose name is empty, cannot be declared: exchange_type is NULL with it.");
	ALLOW("max_attempts", positive(fcinfo, MAX_ATTEMPTS), "It is at least 1.");
	ALLOW("ordering", IS(ORDERING, "key") || IS(ORDERING, "pipelined") || IS(ORDERING, "none"),
		  "It is key, pipelined or none.");
	ALLOW("on_failed", IS(ON_FAILED, "skip") || IS(ON_FAILED, "block"),
		  "It is skip or block.");
	ALLOW("sequence", PG_ARGISNULL(SEQUENCE) || IS(SEQUENCE, "seq") ||
		  IS(SEQUENCE, "key"), "It is seq, key or NULL.");
	ALLOW("sequence = 'key'", !IS(SEQUENCE, "key") || !IS(ORDERING, "none"),
		  "The numbers of a key need its order: ordering = 'key' or 'pipelined'.");
	ALLOW("max_pending", positive(fcinfo, MAX_PENDING),
		  "It is at least 1, or NULL for no limit.");
	ALLOW("format", format == NULL || !outlet->excluded,
		  "The workers write formats: one other than " OUTBOX_NO_FORMAT " needs relay = 'internal'.");
	ALLOW("slot", PG_ARGISNULL(SLOT) || outlet->forget_slot != NULL,
		  "A replication slot is for relay = 'cdc'.");
	ALLOW("retention", retention_allowed(fcinfo),
		  "It is from 0 to 2147483647 seconds, or NULL for outbox.retention.");
	ALLOW("archive", IS(ARCHIVE, "message") || IS(ARCHIVE, "metadata") ||
		  IS(ARCHIVE, "none"), "It is message, metadata or none.");
	PG_RETURN_BOOL(true);
#undef ALLOW
#undef IS
}
