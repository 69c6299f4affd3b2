/*-------------------------------------------------------------------------
 *
 * fuzz_trace.c
 *		Trace context as headers and statements have it: traceparent.c and
 *		sqlcommenter.c.
 *
 * What is accepted says the same when it is written again, and the comment of a
 * statement gives nothing that the parsers would not take by themselves.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fuzz.h"
#include "pg.h"
#include "sqlcommenter.h"
#include "traceparent.h"

static void
check_parent(const OutboxTraceparent *parent)
{
	char		text[OUTBOX_TRACEPARENT_LEN + 1];
	OutboxTraceparent again;

	outbox_traceparent_format(parent, text);
	fuzz_check(strlen(text) == OUTBOX_TRACEPARENT_LEN, "another length: %s", text);
	fuzz_check(outbox_traceparent_parse(text, strlen(text), &again) == NULL,
			   "is refused when it is written: %s", text);
	fuzz_check(strcmp(again.trace_id, parent->trace_id) == 0 &&
			   strcmp(again.parent_id, parent->parent_id) == 0 &&
			   again.flags == parent->flags, "another trace: %s", text);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	OutboxTraceparent parent;
	OutboxSqlComment comment;
	/* exactly as large as it is: nothing ends it but its length */
	char	   *text;

	fuzz_memory_reset();
	text = palloc(size);
	memcpy(text, data, size);
	if (outbox_traceparent_parse(text, size, &parent) == NULL)
		check_parent(&parent);
	(void) outbox_tracestate_check(text, size);
	if (outbox_sqlcommenter_read(text, size, &comment))
	{
		check_parent(&comment.parent);
		fuzz_check(comment.state[0] == '\0' ||
				   outbox_tracestate_check(comment.state, strlen(comment.state)) == NULL,
				   "a tracestate that is none");
	}
	fuzz_memory_reset();
	return 0;
}
