/*-------------------------------------------------------------------------
 *
 * test_sqlcommenter.c
 *		Unit tests of src/enqueue/sqlcommenter.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "check.h"
#include "sqlcommenter.h"

#define TRACE	"4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT	"00f067aa0ba902b7"
#define PAIR	"traceparent='00-" TRACE "-" PARENT "-01'"

/* In a chunk of its own, so that a read behind either end is noticed. */
static bool
read_comment(const char *statement, size_t len, OutboxSqlComment *out)
{
	char	   *copy = malloc(len > 0 ? len : 1);
	bool		found;

	memcpy(copy, statement, len);
	found = outbox_sqlcommenter_read(copy, len, out);
	free(copy);
	return found;
}

static void
says(const char *statement, const char *state)
{
	OutboxSqlComment comment;
	bool		found = read_comment(statement, strlen(statement), &comment);

	if (check(found, "is read: %s", statement))
		check(strcmp(comment.parent.trace_id, TRACE) == 0 &&
			  strcmp(comment.parent.parent_id, PARENT) == 0 &&
			  comment.parent.flags == 1 && strcmp(comment.state, state) == 0,
			  "  and has the trace, and the state \"%s\"", comment.state);
}

static void
says_nothing(const char *statement)
{
	OutboxSqlComment comment;

	check(!read_comment(statement, strlen(statement), &comment),
		  "says nothing: %s", statement);
}

static void
test_read(void)
{
	says("INSERT INTO t VALUES (1) /*" PAIR "*/", "");
	says("INSERT INTO t VALUES (1) /*" PAIR "*/;", "");
	says("INSERT INTO t VALUES (1); /* " PAIR " */ ;\n", "");
	says("SELECT 1 /* by hand */ /*" PAIR "*/", "");
	says("SELECT 1 /*action='%2Fparam*d',controller='index'," PAIR
		 ",tracestate='congo%3Dt61rcWkgMzE%2Crojo%3D00f067aa0ba902b7'*/",
		 "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7");
	says("SELECT 1 /*tracestate='a%3D%27b\\'c'," PAIR "*/", "a='b'c");
	says("SELECT 1 /*db_driver='psycopg2:%%28dt dec pq3 ext lo64%%29'," PAIR "*/", "");
	says("SELECT 1 /*db_driver='psycopg2%3A2.9',libpq_version=150013," PAIR "*/", "");
	says("SELECT 1 /*" PAIR ",libpq_version=150013*/", "");
	says("SELECT 1 /* framework = 'spring' , " PAIR " */", "");
	says("SELECT 1 /*traceparent='00%2D" TRACE "%2d" PARENT "-01'*/", "");
	says("SELECT 1 /*" PAIR ",tracestate='no%20list'*/", "");
	says("SELECT 1 /*" PAIR ",tracestate='a%3'*/", "");
	says("/*" PAIR "*/", "");
}

static void
test_ignored(void)
{
	says_nothing("");
	says_nothing(";");
	says_nothing("*/");
	says_nothing("/*/");
	says_nothing("/**/");
	says_nothing("SELECT 1");
	says_nothing("SELECT 1 /* nothing */");
	says_nothing("/*" PAIR "*/ SELECT 1");
	says_nothing("SELECT '/*" PAIR "*/'");
	says_nothing("SELECT 1 /*" PAIR "* /");
	says_nothing("SELECT 1 -- " PAIR);
	says_nothing("SELECT 1 */");
	says_nothing("SELECT 1 /*traceparent=00-" TRACE "-" PARENT "-01*/");
	says_nothing("SELECT 1 /*traceparent='00-" TRACE "-" PARENT "-01*/");
	says_nothing("SELECT 1 /*traceparent='00-" TRACE "-" PARENT "-1'*/");
	says_nothing("SELECT 1 /*traceparent='00-" TRACE "-" PARENT "-01\\'*/");
	says_nothing("SELECT 1 /*traceparent='%00'*/");
	says_nothing("SELECT 1 /*traceparent='%zz'*/");
	says_nothing("SELECT 1 /*traceparent='%*/");
	says_nothing("SELECT 1 /*tracestate='a%3Db'*/");
	says_nothing("SELECT 1 /*x_" PAIR "*/");
	says_nothing("SELECT 1 /*" PAIR " more*/");
	says_nothing("SELECT 1 /*" PAIR ",*/");
	says_nothing("SELECT 1 /*" PAIR ",x*/");
	says_nothing("SELECT 1 /*" PAIR ",x=1'*/");
	says_nothing("SELECT 1 /*=*/");
	says_nothing("SELECT 1 /*'*/");
	says_nothing("SELECT 1 /*,*/");
}

static void
test_long(void)
{
	size_t		size = 1 << 20;
	char	   *text = malloc(size + 200);
	OutboxSqlComment comment;

	memset(text, '\'', size);
	strcpy(text, "/*");
	text[2] = 'a';
	strcpy(text + size, "*/");
	check(!read_comment(text, size + 2, &comment), "1 MB of quotes says nothing");
	memset(text, 'v', size);
	memcpy(text, "/*" PAIR ",tracestate='a%3D", strlen("/*" PAIR ",tracestate='a%3D"));
	strcpy(text + size, "'*/");
	check(read_comment(text, size + 3, &comment) && comment.state[0] == '\0',
		  "a tracestate of 1 MB is dropped, and the traceparent taken");
	free(text);
}

/* Every statement that is one of these, cut off or with one byte changed. */
static void
test_damaged(void)
{
	static const char *const statement =
		"SELECT 1 /*a='%2F\\'x'," PAIR ",tracestate='congo%3Dt61,r%3D1'*/;";
	size_t		len = strlen(statement);
	char	   *text = strdup(statement);
	OutboxSqlComment comment;
	int			found = 0;

	for (size_t i = 0; i < len; i++)
	{
		found += read_comment(text, i, &comment);
		for (int c = 0; c < 256; c++)
		{
			text[i] = (char) c;
			if (read_comment(text, len, &comment))
			{
				found++;
				if (outbox_tracestate_check(comment.state,
											strlen(comment.state)) != NULL)
					check(false, "byte %zu as %d", i, c);
			}
		}
		text[i] = statement[i];
	}
	check(found > 0, "%d damaged statements still say something", found);
	free(text);
}

int
main(void)
{
	test_read();
	test_ignored();
	test_long();
	test_damaged();
	return done();
}
