/*-------------------------------------------------------------------------
 *
 * capture_args.c
 *		The arguments of a trigger with outbox_capture().
 *
 * Strings of the form name=value, in any order.  They are read once for each
 * statement, as far as they can be judged without the table.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture_internal.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/varlena.h"

typedef void (*ReadValue) (CaptureArgs *args, const char *value,
						   const CaptureTrigger *trigger);

static void
fail_value(const CaptureTrigger *trigger, const char *name, const char *rule)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("argument \"%s\" of trigger \"%s\" must %s", name,
					trigger->name, rule)));
}

static void
read_payload(CaptureArgs *args, const char *value, const CaptureTrigger *trigger)
{
	static const struct
	{
		const char *word;
		CapturePayload payload;
	}			payloads[] = {
		{"row", CAPTURE_ROW}, {"changed", CAPTURE_CHANGED},
		{"both", CAPTURE_BOTH}, {"diff", CAPTURE_DIFF}
	};

	for (int i = 0; i < (int) lengthof(payloads); i++)
		if (strcmp(value, payloads[i].word) == 0)
		{
			args->payload = payloads[i].payload;
			return;
		}
	fail_value(trigger, "payload", "be row, changed, both or diff");
}

static void
read_unchanged(CaptureArgs *args, const char *value,
			   const CaptureTrigger *trigger)
{
	args->emit_unchanged = strcmp(value, "emit") == 0;
	if (!args->emit_unchanged && strcmp(value, "skip") != 0)
		fail_value(trigger, "unchanged", "be skip or emit");
}

static void
read_unpublishable(CaptureArgs *args, const char *value,
				   const CaptureTrigger *trigger)
{
	if (strcmp(value, "refuse") == 0)
		args->unpublishable = CAPTURE_REFUSE;
	else if (strcmp(value, "omit") == 0)
		args->unpublishable = CAPTURE_OMIT;
	else
		fail_value(trigger, "unpublishable", "be refuse or omit");
}

static int
header_flag(const char *word)
{
	if (strcmp(word, "op") == 0)
		return CAPTURE_HEADER_OP;
	if (strcmp(word, "schema") == 0)
		return CAPTURE_HEADER_SCHEMA;
	if (strcmp(word, "table") == 0)
		return CAPTURE_HEADER_TABLE;
	if (strcmp(word, "txid") == 0)
		return CAPTURE_HEADER_TXID;
	return 0;
}

static void
read_headers(CaptureArgs *args, const char *value, const CaptureTrigger *trigger)
{
	const char *rule = "be a list of op, schema, table and txid";
	List	   *names;
	ListCell   *cell;

	if (!SplitIdentifierString(pstrdup(value), ',', &names) || names == NIL)
		fail_value(trigger, "headers", rule);
	foreach(cell, names)
	{
		int			flag = header_flag(lfirst(cell));

		if (flag == 0)
			fail_value(trigger, "headers", rule);
		args->headers |= flag;
	}
}

/* Those with no function of their own are kept as they are. */
static const struct
{
	const char *name;
	bool		may_be_empty;
	size_t		offset;
	ReadValue	read;
}			known[] = {
	{"event", false, offsetof(CaptureArgs, event), NULL},
	{"event_type", false, offsetof(CaptureArgs, event_type), NULL},
	{"aggregate_type", false, offsetof(CaptureArgs, aggregate_type), NULL},
	{"key", true, offsetof(CaptureArgs, key), NULL},
	{"columns", false, offsetof(CaptureArgs, columns), NULL},
	{"except", false, offsetof(CaptureArgs, except), NULL},
	{"payload", false, 0, read_payload},
	{"unchanged", false, 0, read_unchanged},
	{"unpublishable", false, 0, read_unpublishable},
	{"route", false, offsetof(CaptureArgs, route), NULL},
	{"routing_key", false, offsetof(CaptureArgs, routing_key), NULL},
	{"headers", false, 0, read_headers}
};

static int
known_argument(const char *arg, size_t len)
{
	for (int i = 0; i < (int) lengthof(known); i++)
		if (strlen(known[i].name) == len && strncmp(known[i].name, arg, len) == 0)
			return i;
	return -1;
}

static void
fail_unknown(const CaptureTrigger *trigger, const char *arg)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("trigger \"%s\" has an argument that outbox_capture() does not know: \"%s\"",
					trigger->name, arg),
			 errdetail("Arguments have the form 'name=value'; their names are event, event_type, aggregate_type, key, columns, except, payload, unchanged, unpublishable, route, routing_key and headers.")));
}

/* Returns which one it was. */
static int
read_arg(CaptureArgs *args, const CaptureTrigger *trigger, const char *arg)
{
	const char *equals = strchr(arg, '=');
	int			i = equals == NULL ? -1 : known_argument(arg, equals - arg);

	if (i < 0)
		fail_unknown(trigger, arg);
	if (equals[1] == '\0' && !known[i].may_be_empty)
		fail_value(trigger, known[i].name, "not be empty");
	if (known[i].read != NULL)
		known[i].read(args, equals + 1, trigger);
	else
		*(const char **) ((char *) args + known[i].offset) = pstrdup(equals + 1);
	return i;
}

static void
fail_together(const CaptureTrigger *trigger, const char *one, const char *other)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("trigger \"%s\" has both arguments \"%s\" and \"%s\"",
					trigger->name, one, other),
			 errhint("Give one of them.")));
}

void
outbox_capture_read_args(CaptureArgs *args, const CaptureTrigger *trigger)
{
	uint32		seen = 0;

	StaticAssertStmt(lengthof(known) <= 32, "a bit for each argument");
	memset(args, 0, sizeof(*args));
	for (int i = 0; i < trigger->nargs; i++)
	{
		uint32		bit = (uint32) 1 << read_arg(args, trigger, trigger->args[i]);

		if (seen & bit)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("trigger \"%s\" has an argument twice: \"%s\"",
							trigger->name, trigger->args[i])));
		seen |= bit;
	}
	if (args->event != NULL && args->event_type != NULL)
		fail_together(trigger, "event", "event_type");
	if (args->columns != NULL && args->except != NULL)
		fail_together(trigger, "columns", "except");
}

/* The end of the name in braces that begins at start; its value goes to out. */
static const char *
expand_name(StringInfo out, const char *start, const Capture *capture,
			const char *op)
{
	const struct
	{
		const char *name;
		const char *value;
	}			names[] = {
		{"{schema}", capture->schema}, {"{table}", capture->table}, {"{op}", op}
	};

	for (int i = 0; i < (int) lengthof(names); i++)
	{
		size_t		len = strlen(names[i].name);

		if (names[i].value != NULL && strncmp(start, names[i].name, len) == 0)
		{
			appendStringInfoString(out, names[i].value);
			return start + len;
		}
	}
	return NULL;
}

char *
outbox_capture_expand(const char *argument, const char *template,
					  const Capture *capture, const char *op)
{
	const char *p = template;
	StringInfoData out;

	initStringInfo(&out);
	while (*p != '\0')
	{
		const char *after = *p == '{' ? expand_name(&out, p, capture, op) : NULL;

		if (after == NULL && (*p == '{' || *p == '}'))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("argument \"%s\" of trigger \"%s\" has braces that are not those of a name",
							argument, capture->trigger),
					 op != NULL ?
					 errhint("Names are {schema}, {table} and {op}.") :
					 errhint("Names are {schema} and {table}.")));
		if (after != NULL)
			p = after;
		else
			appendStringInfoChar(&out, *p++);
	}
	return out.data;
}
