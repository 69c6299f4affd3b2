/*-------------------------------------------------------------------------
 *
 * fuzz_capture.c
 *		The arguments of a trigger with outbox_capture(), and the templates in them.
 *
 * The oracle reads each argument on its own, by a table.  What is accepted says
 * what the arguments say; what is refused breaks a rule, and is refused with 22023.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture_internal.h"
#include "fuzz.h"
#include "input.h"
#include "pg.h"

#define MAX_ARGS	14

static const char *const Names[] = {
	"event", "event_type", "aggregate_type", "key", "columns", "except", "payload",
	"unchanged", "unpublishable", "route", "routing_key", "headers"
};
#define NAMES ((int) lengthof(Names))
enum
{
	EVENT, EVENT_TYPE, AGGREGATE_TYPE, KEY, COLUMNS, EXCEPT, PAYLOAD, UNCHANGED, UNPUBLISHABLE, ROUTE,
	ROUTING_KEY, HEADERS
};

static const char *const Values[] = {
	"", "row", "changed", "both", "diff", "emit", "skip", "refuse", "omit", "op", "op,schema", "table , txid",
	"OP,\"txid\"", "op,op", "op,", "{table}.{op}"
};

static const char *const Payloads[] = {"row", "changed", "both", "diff"};
static const char *const Flags[] = {"op", "schema", "table", "txid"};

static int
index_of(const char *word, size_t len, const char *const *words, int n)
{
	for (int i = 0; i < n; i++)
		if (strlen(words[i]) == len && memcmp(words[i], word, len) == 0)
			return i;
	return -1;
}

/* The name and the value come from the lists or from the input. */
static char *
draw_arg(Input *in)
{
	uint8_t		name = input_byte(in);
	uint8_t		value = input_byte(in);
	const char *text;
	size_t		len;

	if (name >= 240)
	{
		len = input_text(in, &text);
		return pnstrdup(text, len);
	}
	if (value < 160)
		return psprintf("%s=%s", Names[name % NAMES], Values[value % lengthof(Values)]);
	len = input_text(in, &text);
	return psprintf("%s=%s", Names[name % NAMES], pnstrdup(text, len));
}

/* CAPTURE_HEADER_..., or -1: it is no such list. */
static int
expected_headers(const char *value)
{
	int			flags = 0;
	const char *p = value;

	for (;;)
	{
		bool		quoted;
		const char *start;
		char	   *word;
		int			flag;

		p += strspn(p, " \t\n\v\f\r");
		quoted = *p == '"';
		start = quoted ? ++p : p;
		p += quoted ? strcspn(p, "\"") : strcspn(p, ", \t\n\v\f\r");
		word = pnstrdup(start, p - start);
		for (char *c = word; *c != '\0' && !quoted; c++)
			*c = pg_tolower((unsigned char) *c);
		flag = index_of(word, strlen(word), Flags, lengthof(Flags));
		if (flag < 0 || (quoted && *p++ != '"'))
			return -1;
		flags |= 1 << flag;
		p += strspn(p, " \t\n\v\f\r");
		if (*p == '\0')
			return flags;
		if (*p++ != ',')
			return -1;
	}
}

static bool
is_allowed(int name, const char *value)
{
	if (*value == '\0')
		return name == KEY;
	if (name == PAYLOAD)
		return index_of(value, strlen(value), Payloads, lengthof(Payloads)) >= 0;
	if (name == UNCHANGED)
		return strcmp(value, "emit") == 0 || strcmp(value, "skip") == 0;
	if (name == UNPUBLISHABLE)
		return strcmp(value, "refuse") == 0 || strcmp(value, "omit") == 0;
	return name != HEADERS || expected_headers(value) >= 0;
}

/* Whether these arguments are right, and the value of each that is there. */
static bool
expect(const Trigger *trigger, const char **values)
{
	for (int i = 0; i < trigger->tgnargs; i++)
	{
		const char *equals = strchr(trigger->tgargs[i], '=');
		int			name = equals == NULL ? -1 :
			index_of(trigger->tgargs[i], equals - trigger->tgargs[i], Names, NAMES);

		if (name < 0 || values[name] != NULL || !is_allowed(name, equals + 1))
			return false;
		values[name] = equals + 1;
	}
	return (values[EVENT] == NULL || values[EVENT_TYPE] == NULL) &&
		(values[COLUMNS] == NULL || values[EXCEPT] == NULL);
}

static void
check_text(int name, const char *got, const char *const *values)
{
	fuzz_check((got == NULL) == (values[name] == NULL) &&
			   (got == NULL || strcmp(got, values[name]) == 0),
			   "%s: %s", Names[name], got == NULL ? "nothing" : got);
}

static void
check_args(const CaptureArgs *args, const char *const *values)
{
	check_text(EVENT, args->event, values);
	check_text(EVENT_TYPE, args->event_type, values);
	check_text(AGGREGATE_TYPE, args->aggregate_type, values);
	check_text(KEY, args->key, values);
	check_text(COLUMNS, args->columns, values);
	check_text(EXCEPT, args->except, values);
	check_text(ROUTE, args->route, values);
	check_text(ROUTING_KEY, args->routing_key, values);
	fuzz_check((int) args->payload == (values[PAYLOAD] == NULL ? 0 :
									   index_of(values[PAYLOAD], strlen(values[PAYLOAD]), Payloads,
												lengthof(Payloads))),
			   "payload: %d", (int) args->payload);
	fuzz_check(args->unpublishable == (values[UNPUBLISHABLE] == NULL ? CAPTURE_REFUSE_NEW :
									   strcmp(values[UNPUBLISHABLE], "omit") == 0 ?
									   CAPTURE_OMIT : CAPTURE_REFUSE), "unpublishable");
	fuzz_check(args->emit_unchanged == (values[UNCHANGED] != NULL &&
										strcmp(values[UNCHANGED], "emit") == 0), "unchanged");
	fuzz_check(args->headers == (values[HEADERS] == NULL ? 0 : expected_headers(values[HEADERS])),
			   "headers: %x", args->headers);
}

static void
check_refusal(void)
{
	fuzz_check(geterrcode() == ERRCODE_INVALID_PARAMETER_VALUE, "another SQLSTATE: %s",
			   fuzz_error_text);
	fuzz_check(strstr(fuzz_error_text, "\"the trigger\"") != NULL, "which trigger? %s",
			   fuzz_error_text);
}

/* NULL: braces that are not those of a name. */
static char *
expanded(const char *template, const Capture *capture, const char *op)
{
	const char *const names[] = {"{schema}", "{table}", "{op}"};
	const char *const values[] = {capture->schema, capture->table, op};
	StringInfoData out;

	initStringInfo(&out);
	while (*template != '\0')
	{
		int			i = 0;

		while (i < 3 && (values[i] == NULL || strncmp(template, names[i], strlen(names[i])) != 0))
			i++;
		if (i < 3)
		{
			appendStringInfoString(&out, values[i]);
			template += strlen(names[i]);
		}
		else if (*template == '{' || *template == '}')
			return NULL;
		else
			appendStringInfoChar(&out, *template++);
	}
	return out.data;
}

static void
check_expand(const char *template, bool with_op)
{
	const Capture capture = {.trigger = "the trigger", .schema = "a{table}", .table = "b}"};
	const char *op = with_op ? "insert" : NULL;
	char	   *expected = expanded(template, &capture, op);
	char	   *volatile got = NULL;

	PG_TRY();
	{
		got = outbox_capture_expand("event", template, &capture, op);
	}
	PG_CATCH();
	{
		check_refusal();
	}
	PG_END_TRY();
	fuzz_check((got == NULL) == (expected == NULL) &&
			   (got == NULL || strcmp(got, expected) == 0),
			   "%s makes %s", template, got == NULL ? "nothing" : got);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input		in = {data, data + size};
	const char *values[NAMES] = {0};
	char	   *args[MAX_ARGS];
	Trigger		trigger = {.tgname = "the trigger", .tgargs = args};
	CaptureArgs read;
	volatile bool accepted = false;
	const char *text;
	bool		right;
	size_t		len;
	uint8_t		how;

	fuzz_memory_reset();
	how = input_byte(&in);
	trigger.tgnargs = how % (MAX_ARGS + 1);
	for (int i = 0; i < trigger.tgnargs; i++)
		args[i] = draw_arg(&in);
	right = expect(&trigger, values);
	PG_TRY();
	{
		outbox_capture_read_args(&read, &trigger);
		accepted = true;
	}
	PG_CATCH();
	{
		check_refusal();
	}
	PG_END_TRY();
	fuzz_check(accepted == right, "%s: %s", accepted ? "accepted" : "refused", fuzz_error_text);
	if (accepted)
		check_args(&read, values);
	len = input_text(&in, &text);
	check_expand(pnstrdup(text, len), how & 128);
	fuzz_memory_reset();
	return 0;
}
