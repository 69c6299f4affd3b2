/*-------------------------------------------------------------------------
 *
 * fuzz_text.c
 *		What the broker says, as it gets into views and the log; routing keys
 *		that a template makes; waits after failures.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "backoff.h"
#include "broker_internal.h"
#include "fuzz.h"
#include "input.h"
#include "pg.h"
#include "route.h"

/* Every byte is a character, or a question mark. */
static void
check_printable(const char *bytes, size_t len, size_t room)
{
	char	   *out = palloc(room);
	size_t		got;

	memset(out, 'x', room);
	outbox_link_printable(out, room, bytes, len);
	got = strnlen(out, room);
	fuzz_check(got < room, "no end");
	fuzz_check(got <= len, "longer than it was");
	for (size_t i = 0; i < got;)
	{
		const unsigned char *at = (const unsigned char *) out + i;
		int			clen = 1;

		if (*at >= 0x80)
		{
			fuzz_check(fuzz_encoding == PG_UTF8, "a byte that the encoding lacks");
			clen = pg_utf_mblen(at);
			fuzz_check(i + clen <= got && pg_utf8_islegal(at, clen), "half a character");
			fuzz_check(!(at[0] == 0xc2 && at[1] < 0xa0), "a control character");
		}
		else
			fuzz_check(*at >= 0x20 && *at != 0x7f, "a control character");
		fuzz_check(memcmp(at, bytes + i, clen) == 0 || *at == '?', "another character");
		i += clen;
	}
}

static void
check_reasons(const char *text, int code)
{
	fuzz_check(outbox_reason_of_login(code, text) != OUTBOX_REASON_NONE, "no reason");
	fuzz_check(outbox_reason_of_alarm(text) != OUTBOX_REASON_NONE, "no alarm");
	(void) outbox_reason_of_errno(code);
	(void) outbox_reason_of_verify(code);
	(void) outbox_reason_of_alert(code);
}

/* The same by the obvious way. */
static char *
rendered(const char *template, const char *const *values)
{
	static const char *const names[] = {"{event_type}", "{aggregate_type}", "{aggregate_id}"};
	StringInfoData out;

	initStringInfo(&out);
	while (*template != '\0')
	{
		int			i;

		for (i = 0; i < 3; i++)
			if (strncmp(template, names[i], strlen(names[i])) == 0)
				break;
		if (i == 3)
		{
			appendStringInfoChar(&out, *template++);
			continue;
		}
		appendStringInfoString(&out, values[i] != NULL ? values[i] : "");
		template += strlen(names[i]);
	}
	return out.data;
}

static void
check_template(const char *template, const char *const *values)
{
	char	   *buf = palloc(OUTBOX_SHORT_STRING_MAX + 1);
	char	   *expected = rendered(template, values);
	size_t		len = outbox_route_render(template, values[0], values[1], values[2], buf,
											  OUTBOX_SHORT_STRING_MAX + 1);

	(void) outbox_route_template_error(template);
	fuzz_check(len == strlen(expected), "%zu bytes instead of %zu", len, strlen(expected));
	fuzz_check(strlen(buf) == Min(len, OUTBOX_SHORT_STRING_MAX) &&
			   memcmp(buf, expected, strlen(buf)) == 0, "another key: %s", buf);
}

static void
check_backoff(Input *in)
{
	int64		initial = input_number(in);
	int64		most = (int64) input_number(in) << (input_byte(in) & 16);
	uint32		tries = input_byte(in);
	uint32		random = input_number(in);
	int64		wait = outbox_backoff_ms(initial, most, tries, random);

	fuzz_check(wait >= 1 && wait <= Max(most, 1), "waits for %ld of %ld ms", (long) wait,
			   (long) most);
	fuzz_check(tries < 80 || initial < 4 || wait >= Max(most, 1) / 4 * 3 - 1,
			   "does not grow: %ld of %ld ms", (long) wait, (long) most);
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
	const char *text[4];
	uint8_t		how;

	fuzz_memory_reset();
	how = input_byte(&in);
	fuzz_encoding = how & 1 ? PG_LATIN1 : PG_UTF8;
	check_printable((const char *) in.at, in.end - in.at, 1 + input_byte(&in));
	check_backoff(&in);
	for (int i = 0; i < 4; i++)
	{
		size_t		len = input_text(&in, &text[i]);

		text[i] = pnstrdup(text[i], len);
	}
	check_reasons(text[0], how);
	if (how & 2)
		text[2] = NULL;
	if (how & 4)
		text[3] = NULL;
	check_template(text[0], text + 1);
	fuzz_memory_reset();
	return 0;
}
