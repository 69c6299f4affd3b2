/*-------------------------------------------------------------------------
 *
 * advice_command.c
 *		Fills words in capital letters into the command of an advice.
 *
 * A word of which nothing is known stays, in angle brackets: the reader replaces it, and
 * no shell runs the command before (rabbitmqctl takes VHOST for a virtual host, and shows
 * nothing of it).  So does one whose value has control characters: a terminal would act
 * on them when the command is pasted.  And one of settings that the reader may not see.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "admin_internal.h"
#include "catalog/pg_authid.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "own_relations.h"
#include "printable.h"
#include "settings.h"
#include "uri.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"

PG_FUNCTION_INFO_V1(outbox_schema);

#define WORD_CHARACTERS	"ABCDEFGHIJKLMNOPQRSTUVWXYZ_"
/* Need no quotes in a shell. */
#define PLAIN_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:"

typedef struct Word
{
	const char *name;
	const char *value;			/* NULL: not known */
} Word;

#define NWORDS	10

static char *
printable(const char *value)
{
	size_t		len = strlen(value);
	char	   *shown = palloc(len + 1);

	outbox_copy_printable(shown, len + 1, value, len, GetDatabaseEncoding(), "");
	return shown;
}

static bool
can_be_pasted(const char *value)
{
	return strcmp(printable(value), value) == 0;
}

/*
 * The schema that was chosen at CREATE EXTENSION, as a statement names it.  Its owner may
 * have given it any name: one with control characters leads nowhere.
 */
static const char *
schema_in_commands(void)
{
	char	   *name = get_namespace_name(outbox_extension_schema());

	return name == NULL ? NULL : printable(quote_identifier(name));
}

Datum
outbox_schema(PG_FUNCTION_ARGS)
{
	const char *schema = schema_in_commands();

	if (schema == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(schema));
}

static void
append_for_shell(StringInfo command, const char *value)
{
	if (value[strspn(value, PLAIN_CHARACTERS)] == '\0')
	{
		appendStringInfoString(command, value);
		return;
	}
	appendStringInfoChar(command, '\'');
	for (const char *p = value; *p != '\0'; p++)
		if (*p == '\'')
			appendStringInfoString(command, "'\\''");
		else
			appendStringInfoChar(command, *p);
	appendStringInfoChar(command, '\'');
}

/*
 * To such roles only the server shows these settings.  Behind the views, which run as
 * their owner, it is the caller who counts.
 */
static bool
may_see_settings(void)
{
	return has_privs_of_role(GetOuterUserId(), ROLE_PG_READ_ALL_SETTINGS);
}

/* A setting that is a file's name; an empty one names none. */
static const char *
file_setting(bool seen, const char *value)
{
	return !seen || value == NULL || value[0] == '\0' ? NULL : value;
}

/* Of several hosts it is not known which one is meant, unless broker says it. */
static void
find_words(Word *words, bool fill, const char *broker, const char *route)
{
	const char *colon = broker == NULL ? NULL : strrchr(broker, ':');
	const char *host = NULL;
	const char *port = NULL;
	OutboxUri	uri;
	bool		seen = fill && may_see_settings();
	bool		parsed = seen && outbox_uri_parse(outbox_broker_uri, &uri) == NULL;
	const char *cert_file = file_setting(seen, outbox_tls_cert_file);
	const char *key_file = file_setting(seen, outbox_tls_key_file);

	if (colon != NULL)
	{
		host = pnstrdup(broker, colon - broker);
		port = colon + 1;
	}
	else if (parsed && uri.nhosts == 1)
	{
		host = uri.hosts[0].host;
		port = psprintf("%d", uri.hosts[0].port);
	}
	*words++ = (Word) {"USER", parsed ? uri.user : NULL};
	*words++ = (Word) {"VHOST", parsed ? uri.vhost : NULL};
	*words++ = (Word) {"HOST", host};
	*words++ = (Word) {"PORT", port};
	*words++ = (Word) {"PASSFILE", file_setting(seen, outbox_passfile)};
	*words++ = (Word) {"KEY_FILE", key_file != NULL ? key_file : cert_file};
	*words++ = (Word) {"CERT_FILE", cert_file};
	/* The key may have none: then the word goes. */
	*words++ = (Word) {"PASSPHRASE_FILE", seen ? outbox_tls_key_passfile : NULL};
	*words++ = (Word) {"ROUTE", route};
	*words++ = (Word) {"SCHEMA", schema_in_commands()};
}

static void
append_word(StringInfo command, const char *word, int len, const Word *words)
{
	for (int i = 0; i < NWORDS; i++)
	{
		const char *value = words[i].value;

		if ((int) strlen(words[i].name) != len || strncmp(words[i].name, word, len) != 0)
			continue;
		if (value == NULL || !can_be_pasted(value))
		{
			appendStringInfo(command, "<%s>", words[i].name);
			return;
		}
		if (value[0] == '\0')
			return;
		if (strcmp(words[i].name, "ROUTE") == 0)
			appendStringInfoString(command, quote_literal_cstr(value));
		else if (strcmp(words[i].name, "SCHEMA") == 0)
			appendStringInfoString(command, value);
		else
		{
			/* An IPv6 address before a port. */
			if (word[len] == ':' && strchr(value, ':') != NULL)
				value = psprintf("[%s]", value);
			append_for_shell(command, value);
		}
		return;
	}
	appendBinaryStringInfo(command, word, len);
}

const char *
outbox_fill_command(const char *command, bool fill, const char *broker,
					const char *route)
{
	StringInfoData filled;
	Word		words[NWORDS];
	const char *rest = command;

	if (command == NULL)
		return NULL;
	find_words(words, fill, broker, route);
	initStringInfo(&filled);
	while (*rest != '\0')
	{
		int			len = (int) strspn(rest, WORD_CHARACTERS);

		if (len == 0)
			appendStringInfoChar(&filled, *rest++);
		else
			append_word(&filled, rest, len, words);
		rest += len;
	}
	return filled.data;
}
