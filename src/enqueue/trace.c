/*-------------------------------------------------------------------------
 *
 * trace.c
 *		Trace context of a message that is enqueued.
 *
 * From the first that has it: the message's own headers, the settings, the
 * comment at the end of the client's statement.  It becomes part of the headers
 * in the row, so that archive, replays and relays outside have it, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "enqueue_internal.h"
#include "settings.h"
#include "sqlcommenter.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/json.h"

#define HEADER_PARENT	"traceparent"
#define HEADER_STATE	"tracestate"

/*
 * What the client's statement says, read once and not for each of its rows, as it may be
 * as long as they are together.  Statements are told apart by where they are and when
 * they came; no two of one microsecond store a row.
 */
static struct
{
	const char *statement;
	TimestampTz came_at;
	bool		found;
	OutboxSqlComment comment;
} seen;

static const OutboxSqlComment *
comment_of_statement(void)
{
	TimestampTz came_at = GetCurrentStatementStartTimestamp();

	if (debug_query_string == NULL)
		return NULL;
	if (seen.statement != debug_query_string || seen.came_at != came_at)
	{
		seen.found = outbox_sqlcommenter_read(debug_query_string,
											  strlen(debug_query_string),
											  &seen.comment);
		seen.statement = debug_query_string;
		seen.came_at = came_at;
	}
	return seen.found ? &seen.comment : NULL;
}

/* A user's own entry, null included, says what is to be sent. */
static bool
has_parent(Jsonb *headers)
{
	JsonbValue	value;

	return headers != NULL &&
		(!JB_ROOT_IS_OBJECT(headers) ||
		 getKeyJsonValueFromContainer(&headers->root, HEADER_PARENT,
									  strlen(HEADER_PARENT), &value) != NULL);
}

static Jsonb *
make_headers(const OutboxTraceparent *parent, const char *state)
{
	StringInfoData json;
	char		text[OUTBOX_TRACEPARENT_LEN + 1];

	outbox_traceparent_format(parent, text);
	initStringInfo(&json);
	appendStringInfo(&json, "{\"" HEADER_PARENT "\": \"%s\"", text);
	if (state != NULL && *state != '\0')
	{
		appendStringInfoString(&json, ", \"" HEADER_STATE "\": ");
		escape_json(&json, state);
	}
	appendStringInfoChar(&json, '}');
	return DatumGetJsonbP(outbox_json_object(json.data));
}

/* NULL: there is none. */
static Jsonb *
trace_context(void)
{
	const OutboxSqlComment *comment;
	OutboxTraceparent parent;

	/* What the check hook has not refused can be read. */
	if (outbox_traceparent != NULL && *outbox_traceparent != '\0' &&
		outbox_traceparent_parse(outbox_traceparent,
								 strlen(outbox_traceparent), &parent) == NULL)
		return make_headers(&parent, outbox_tracestate);
	if (!outbox_sqlcommenter)
		return NULL;
	comment = comment_of_statement();
	return comment == NULL ? NULL :
		make_headers(&comment->parent, comment->state);
}

Jsonb *
outbox_trace_headers_of(const char *parent_text, const char *state)
{
	OutboxTraceparent parent;

	if (outbox_traceparent_parse(parent_text, strlen(parent_text), &parent) != NULL)
		return NULL;
	if (state != NULL && outbox_tracestate_check(state, strlen(state)) != NULL)
		state = NULL;
	return make_headers(&parent, state);
}

Jsonb *
outbox_trace_headers(Jsonb *headers)
{
	Jsonb	   *trace;

	if (has_parent(headers))
		return headers;
	trace = trace_context();
	if (trace == NULL)
		return headers;
	if (headers == NULL)
		return trace;
	/* The right one's entries win: a tracestate of the user's stays. */
	return DatumGetJsonbP(DirectFunctionCall2(jsonb_concat,
											  JsonbPGetDatum(trace),
											  JsonbPGetDatum(headers)));
}
