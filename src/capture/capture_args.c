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

/*
 * Words that an argument may be; what it means is the place of the word.  No argument
 * is "", which stands for the one that is not given.
 */
static const char *const payloads[] = {"row", "changed", "both", "diff", NULL};
static const char *const unchanged[] = {"skip", "emit", NULL};
static const char *const unpublishable[] = {"", "refuse", "omit", NULL};
static const char *const headers[] = {"op", "schema", "table", "txid", NULL};

static const struct
{
	const char *name;
	size_t		offset;			/* of a string; of an int where there are
								 * words */
	const char *const *words;	/* NULL: any text but an empty one */
	const char *rule;			/* for what is none of the words */
	bool		is_list;		/* a bit for each word */
	bool		may_be_empty;
}			known[] = {
	{"event", offsetof(CaptureArgs, event)},
	{"event_type", offsetof(CaptureArgs, event_type)},
	{"aggregate_type", offsetof(CaptureArgs, aggregate_type)},
	{"key", offsetof(CaptureArgs, key), .may_be_empty = true},
	{"columns", offsetof(CaptureArgs, columns)},
	{"except", offsetof(CaptureArgs, except)},
	{"payload", offsetof(CaptureArgs, payload), payloads, "be row, changed, both or diff"},
	{"unchanged", offsetof(CaptureArgs, emit_unchanged), unchanged, "be skip or emit"},
	{"unpublishable", offsetof(CaptureArgs, unpublishable), unpublishable, "be refuse or omit"},
	{"route", offsetof(CaptureArgs, route)},
	{"routing_key", offsetof(CaptureArgs, routing_key)},
	{"headers", offsetof(CaptureArgs, headers), headers,
	"be a list of op, schema, table and txid", .is_list = true}
};

static void
fail_value(const Trigger *trigger, int i, const char *rule)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("argument \"%s\" of trigger \"%s\" must %s", known[i].name,
					trigger->tgname, rule)));
}

static int
find_word(const Trigger *trigger, int i, const char *value)
{
	for (int place = 0; known[i].words[place] != NULL; place++)
		if (strcmp(known[i].words[place], value) == 0)
			return place;
	fail_value(trigger, i, known[i].rule);
	return -1;
}

static int
find_words(const Trigger *trigger, int i, const char *value)
{
	int			bits = 0;
	List	   *names;
	ListCell   *cell;

	if (!SplitIdentifierString(pstrdup(value), ',', &names) || names == NIL)
		fail_value(trigger, i, known[i].rule);
	foreach(cell, names)
		bits |= 1 << find_word(trigger, i, lfirst(cell));
	return bits;
}

/* Returns which one it was. */
static int
read_arg(CaptureArgs *args, const Trigger *trigger, const char *arg)
{
	const char *equals = strchr(arg, '=');
	int			i = 0;
	void	   *field;

	while (i < (int) lengthof(known) &&
		   (equals == NULL || strlen(known[i].name) != equals - arg ||
			strncmp(known[i].name, arg, equals - arg) != 0))
		i++;
	if (i == (int) lengthof(known))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("trigger \"%s\" has an argument that outbox_capture() does not know: \"%s\"",
						trigger->tgname, arg),
				 errdetail("Arguments have the form 'name=value'; their names are event, event_type, aggregate_type, key, columns, except, payload, unchanged, unpublishable, route, routing_key and headers.")));
	if (equals[1] == '\0' && !known[i].may_be_empty)
		fail_value(trigger, i, "not be empty");
	field = (char *) args + known[i].offset;
	if (known[i].words == NULL)
		*(const char **) field = pstrdup(equals + 1);
	else
		*(int *) field = known[i].is_list ? find_words(trigger, i, equals + 1) :
			find_word(trigger, i, equals + 1);
	return i;
}

static void
fail_together(const Trigger *trigger, const char *one, const char *other)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("trigger \"%s\" has both arguments \"%s\" and \"%s\"",
					trigger->tgname, one, other),
			 errhint("Give one of them.")));
}

void
outbox_capture_read_args(CaptureArgs *args, const Trigger *trigger)
{
	uint32		seen = 0;

	StaticAssertStmt(lengthof(known) <= 32, "a bit for each argument");
	memset(args, 0, sizeof(*args));
	for (int i = 0; i < trigger->tgnargs; i++)
	{
		uint32		bit = (uint32) 1 << read_arg(args, trigger, trigger->tgargs[i]);

		if (seen & bit)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("trigger \"%s\" has an argument twice: \"%s\"",
							trigger->tgname, trigger->tgargs[i])));
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
