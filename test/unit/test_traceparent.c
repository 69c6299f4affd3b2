/*-------------------------------------------------------------------------
 *
 * test_traceparent.c
 *		Unit tests of src/base/traceparent.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "check.h"
#include "traceparent.h"

#define TRACE	"4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT	"00f067aa0ba902b7"
#define GOOD	"00-" TRACE "-" PARENT "-01"

/* In a chunk of its own, so that a read behind the end is noticed. */
static const char *
parse(const char *text, size_t len, OutboxTraceparent *out)
{
	char	   *copy = malloc(len > 0 ? len : 1);
	const char *problem;

	if (copy == NULL)
		abort();
	memcpy(copy, text, len);
	problem = outbox_traceparent_parse(copy, len, out);
	free(copy);
	return problem;
}

static void
accepts(const char *text, const char *written)
{
	OutboxTraceparent parent;
	char		out[OUTBOX_TRACEPARENT_LEN + 1];
	const char *problem = parse(text, strlen(text), &parent);

	if (!check(problem == NULL, "accepts %s", text))
	{
		printf("# %s\n", problem);
		return;
	}
	outbox_traceparent_format(&parent, out);
	check(strcmp(out, written) == 0, "  and writes %s", out);
}

static void
refuses(const char *text, const char *word)
{
	OutboxTraceparent parent;
	const char *problem = parse(text, strlen(text), &parent);

	check(problem != NULL && strstr(problem, word) != NULL, "refuses \"%s\": %s",
		  text, problem != NULL ? problem : "(it did not)");
}

static void
test_parent(void)
{
	accepts(GOOD, GOOD);
	accepts("00-" TRACE "-" PARENT "-00", "00-" TRACE "-" PARENT "-00");
	accepts("00-" TRACE "-" PARENT "-ff", "00-" TRACE "-" PARENT "-03");
	accepts("cc-" TRACE "-" PARENT "-01", GOOD);
	accepts("cc-" TRACE "-" PARENT "-01-what-comes-later", GOOD);
	accepts("00-00000000000000000000000000000001-0000000000000001-00",
			"00-00000000000000000000000000000001-0000000000000001-00");
	refuses("", "fewer");
	refuses("00", "fewer");
	refuses("00-" TRACE "-" PARENT "-0", "fewer");
	refuses(GOOD " ", "55 characters");
	refuses(GOOD "-00", "55 characters");
	refuses(" " GOOD, "version-traceid");
	refuses("cc-" TRACE "-" PARENT "-010", "\"-\"");
	refuses("ff-" TRACE "-" PARENT "-01", "ff");
	refuses("0g-" TRACE "-" PARENT "-01", "lower case");
	refuses("00-4BF92F3577B34DA6A3CE929D0E0E4736-" PARENT "-01", "lower case");
	refuses("00-" TRACE "-00F067AA0BA902B7-01", "lower case");
	refuses("00-" TRACE "-" PARENT "-0x", "lower case");
	refuses("00-00000000000000000000000000000000-" PARENT "-01", "trace id");
	refuses("00-" TRACE "-0000000000000000-01", "parent id");
	refuses("00_" TRACE "_" PARENT "_01", "version-traceid");
	refuses("00-" TRACE "-" PARENT "-\xc3\xa4", "lower case");
}

static void
state(const char *text, const char *word)
{
	const char *problem = outbox_tracestate_check(text, strlen(text));

	if (word == NULL)
		check(problem == NULL, "tracestate may be \"%.40s\"%s%s", text,
			  problem != NULL ? ": " : "", problem != NULL ? problem : "");
	else
		check(problem != NULL && strstr(problem, word) != NULL,
			  "tracestate must not be \"%.40s\": %s", text,
			  problem != NULL ? problem : "(it may)");
}

static void
test_state(void)
{
	char		many[33 * 4 + 1] = "";
	char		key[257 + 3];
	char		value[2 + 257 + 1];

	state("", NULL);
	state("rojo=00f067aa0ba902b7", NULL);
	state("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", NULL);
	state(" rojo=1 ,\t, congo=2,", NULL);
	state("fw529a3039@dt=a b", NULL);
	state("a=!\"#$%&'()*+-./:;<>?@[\\]^_`{|}~", NULL);
	state("a", "key=value");
	state("=a", "key=value");
	state("A=1", "key=value");
	state("@a=1", "key=value");
	state("a =1", "key=value");
	state("a=", "1 to 256");
	state("a=1=2", "printable");
	state("a=\xc3\xa4", "printable");
	state("a=1\x7f", "printable");
	for (int i = 0; i < 32; i++)
		strcat(many, "a=1,");
	state(many, NULL);
	strcat(many, "a=1");
	state(many, "32");
	memset(key, 'k', 257);
	strcpy(key + 257, "=1");
	state(key + 1, NULL);
	state(key, "key=value");
	strcpy(value, "k=");
	memset(value + 2, 'v', 257);
	value[2 + 257] = '\0';
	state(value, "1 to 256");
	value[2 + 256] = '\0';
	state(value, NULL);
}

static void
test_span(void)
{
	static const unsigned char id[16] = {
		0x01, 0x98, 0xc0, 0xde, 0x00, 0x00, 0x70, 0x00,
		0x80, 0x0f, 0x00, 0x00, 0x00, 0x00, 0xab, 0x07
	};
	static const unsigned char zeros[16] = {0x01, 0x98};
	char		span[17];

	outbox_trace_span_id(id, span);
	check(strcmp(span, "800f00000000ab07") == 0, "a message's span is %s", span);
	outbox_trace_span_id(zeros, span);
	check(strcmp(span, "0000000000000001") == 0, "no span is all zeros: %s", span);
}

int
main(void)
{
	test_parent();
	test_span();
	test_state();
	return done();
}
