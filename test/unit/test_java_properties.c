/*-------------------------------------------------------------------------
 *
 * test_java_properties.c
 *		Unit tests of src/debezium/java_properties.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "check.h"
#include "java_properties.h"

#define SIZE	32

/* In chunks of their own, so that what is read or written behind their ends is noticed. */
static bool
read_property(const char *text, const char *key, char **value)
{
	char	   *copy = strdup(text);
	bool		found;

	*value = malloc(SIZE);
	if (copy == NULL || *value == NULL)
		abort();
	found = outbox_java_property(copy, key, *value, SIZE);
	free(copy);
	return found;
}

static void
is(const char *text, const char *key, const char *expected)
{
	char	   *value;
	bool		found = read_property(text, key, &value);

	if (expected == NULL)
		check(!found, "no %s in %s", key, text);
	else
		check(found && strcmp(value, expected) == 0, "%s of %s", key, text);
	free(value);
}

static void
random_texts(void)
{
	static const char letters[] = "ab=: \\\n\r\tu0#!";
	unsigned	state = 1;

	for (int i = 0; i < 200000; i++)
	{
		char		text[24];
		char	   *value;
		int			len;

		state = state * 1103515245 + 12345;
		len = (int) ((state >> 16) % (sizeof(text) - 1));
		for (int n = 0; n < len; n++)
		{
			state = state * 1103515245 + 12345;
			text[n] = letters[(state >> 16) % (sizeof(letters) - 1)];
		}
		text[len] = '\0';
		(void) read_property(text, "a", &value);
		free(value);
	}
	check(true, "200000 texts are read within their bounds");
}

int
main(void)
{
	/* As Properties.store() writes it. */
	is("#\n#Mon Jan 05 10:00:00 UTC 2026\ntraceparent=00-ab-01\n", "traceparent", "00-ab-01");
	is("#\r\n#date\r\na=1\r\nb=x\\=1,y\\:2\r\n", "b", "x=1,y:2");
	is("a\\ b=\\ c d ", "a b", " c d ");
	is("\\#a=1", "#a", "1");
	is("a=\\t\\n\\r\\f\\\\", "a", "\t\n\r\f\\");
	is("a=\\u0041\\u005a", "a", "AZ");
	/* As load() reads it. */
	is("  a : 1", "a", "1");
	is("a 1", "a", "1");
	is("a", "a", "");
	is("a=", "a", "");
	is("a=1\\\n   2", "a", "12");
	is("a\\\n  b=1", "ab", "1");
	is("#a=1\\\na=2", "a", "2");
	is("! a=1", "a", NULL);
	is("a=1\na=2", "a", "2");
	is("a=1\n\n\nb=2", "b", "2");
	is("a=\\q", "a", "q");
	/* Others' */
	is("", "a", NULL);
	is("\\", "a", NULL);
	is("a=1", "b", NULL);
	is("ab=1", "a", NULL);
	is("a=1", "ab", NULL);
	is("a=\\u00e9", "a", NULL);
	is("a=\xc3\xa9", "a", NULL);
	is("a=\\u0000", "a", NULL);
	is("a=\\u00", "a", NULL);
	is("a=1234567890123456789012345678901", "a", "1234567890123456789012345678901");
	is("a=12345678901234567890123456789012", "a", NULL);
	random_texts();
	return done();
}
