/*-------------------------------------------------------------------------
 *
 * advice_command.c
 *		Fills words in capital letters into the command of an advice.
 *
 * A word of which nothing is known stays, and is for the reader to replace.  So does
 * one whose value has control characters: a terminal would act on them when the
 * command is pasted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "admin_internal.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "settings.h"
#include "uri.h"

#define WORD_CHARACTERS	"ABCDEFGHIJKLMNOPQRSTUVWXYZ_"
/* Need no quotes in a shell, and no escape in a URI. */
#define PLAIN_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."

typedef struct Word
{
	const char *name;
	const char *value;			/* NULL: not known */
} Word;

#define NWORDS	10

static bool
can_be_pasted(const char *value)
{
	for (const char *p = value; *p != '\0'; p++)
		if ((unsigned char) *p < ' ' || *p == '\177')
			return false;
	return pg_verifymbstr(value, (int) strlen(value), true);
}

static void
append_for_uri(StringInfo command, const char *value)
{
	for (const char *p = value; *p != '\0'; p++)
		if (strchr(PLAIN_CHARACTERS ":[]", *p) != NULL)
			appendStringInfoChar(command, *p);
		else
			appendStringInfo(command, "%%%02X", (unsigned char) *p);
}

static void
append_for_shell(StringInfo command, const char *value)
{
	if (value[strspn(value, PLAIN_CHARACTERS "/:")] == '\0')
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

/* A setting that is a file's name; an empty one names none. */
static const char *
file_setting(const char *value)
{
	return value == NULL || value[0] == '\0' ? NULL : value;
}

/* Of several hosts it is not known which one is meant, unless broker says it. */
static void
find_words(Word *words, const char *broker, const char *route, const char *exchange)
{
	const char *colon = broker == NULL ? NULL : strrchr(broker, ':');
	const char *host = NULL;
	const char *port = NULL;
	OutboxUri	uri;
	bool		parsed = outbox_uri_parse(outbox_broker_uri, &uri) == NULL;

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
	*words++ = (Word) {"PASSFILE", file_setting(outbox_passfile)};
	*words++ = (Word) {"KEY_FILE", file_setting(outbox_tls_key_file)};
	*words++ = (Word) {"CERT_FILE", file_setting(outbox_tls_cert_file)};
	*words++ = (Word) {"PASSPHRASE_FILE", outbox_tls_key_passfile};							/* may be none */
	*words++ = (Word) {"ROUTE", route};
	*words++ = (Word) {"EXCHANGE", exchange};
}

static void
append_word(StringInfo command, const char *word, int len, const Word *words,
			const char *whole)
{
	for (int i = 0; i < NWORDS; i++)
	{
		const char *value = words[i].value;

		if ((int) strlen(words[i].name) != len || strncmp(words[i].name, word, len) != 0)
			continue;
		if (value == NULL || !can_be_pasted(value))
			break;
		if (value[0] == '\0')
			return;
		if (strcmp(words[i].name, "ROUTE") == 0)
			appendStringInfoString(command, quote_literal_cstr(value));
		else
		{
			/* An IPv6 address before a port. */
			if (word[len] == ':' && strchr(value, ':') != NULL)
				value = psprintf("[%s]", value);
			if (strstr(whole, "://") != NULL)
				append_for_uri(command, value);
			else
				append_for_shell(command, value);
		}
		return;
	}
	appendBinaryStringInfo(command, word, len);
}

const char *
outbox_fill_command(const char *command, const char *broker, const char *route,
					const char *exchange)
{
	StringInfoData filled;
	Word		words[NWORDS];
	const char *rest = command;

	if (command == NULL)
		return NULL;
	find_words(words, broker, route, exchange);
	initStringInfo(&filled);
	while (*rest != '\0')
	{
		int			len = (int) strspn(rest, WORD_CHARACTERS);

		if (len == 0)
			appendStringInfoChar(&filled, *rest++);
		else
			append_word(&filled, rest, len, words, command);
		rest += len;
	}
	return filled.data;
}
