/*-------------------------------------------------------------------------
 *
 * encode_json.c
 *		Text of a jsonb value.
 *
 * The same bytes as JsonbToCString(), which was half of the worker's time for
 * documents of 16 kB with many small values: a JsonbValue is made of each, and a
 * string is copied a character after the other.  Here the containers are walked
 * as utils/jsonb.h lays them out, and what needs no escape is copied in runs, with
 * eight bytes looked at a time.
 *
 * The levels are on a stack of our own: a document may be nested deeper than the
 * worker's max_stack_depth allows to recurse.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "encode_json.h"
#include "utils/builtins.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

/* A container that is being written. */
typedef struct Level
{
	const JEntry *keys;			/* of an object; NULL: an array */
	const JEntry *values;
	const char *data;
	uint32		key_at;			/* where in data the next ones start */
	uint32		value_at;
	uint32		count;
	uint32		next;
	bool		scalar;			/* an array that only holds a scalar root */
} Level;

#define LEVELS	32				/* at first */

/* A byte in each of eight. */
#define BYTES(c)	(UINT64CONST(0x0101010101010101) * (c))

/* Is one of the eight bytes 0?  Exact as a whole, not for each byte. */
static inline bool
has_zero(uint64 word)
{
	return ((word - BYTES(1)) & ~word & BYTES(0x80)) != 0;
}

static inline bool
needs_escape(unsigned char c)
{
	return c < ' ' || c == '"' || c == '\\';
}

/* How many bytes at the start go as they are. */
static int
plain_length(const char *text, int len)
{
	int			n = 0;

	for (; n + (int) sizeof(uint64) <= len; n += sizeof(uint64))
	{
		uint64		word;

		memcpy(&word, text + n, sizeof(word));
		/* below a space: the upper three bits are 0 */
		if (has_zero(word & BYTES(0xE0)) ||
			has_zero(word ^ BYTES('"')) || has_zero(word ^ BYTES('\\')))
			break;
	}
	while (n < len && !needs_escape((unsigned char) text[n]))
		n++;
	return n;
}

/* The letter behind the backslash, or 0 for a code. */
static char
escape_letter(unsigned char c)
{
	static const char letters[] = {
		['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r',
		['"'] = '"', ['\\'] = '\\'
	};

	return letters[c];
}

static void
put_escaped(StringInfo out, unsigned char c)
{
	char		letter = escape_letter(c);

	if (letter != '\0')
	{
		appendStringInfoCharMacro(out, '\\');
		appendStringInfoCharMacro(out, letter);
	}
	else
		appendStringInfo(out, "\\u%04x", c);
}

static void
put_string(StringInfo out, const char *text, int len)
{
	appendStringInfoCharMacro(out, '"');
	while (len > 0)
	{
		int			n = plain_length(text, len);

		appendBinaryStringInfoNT(out, text, n);
		if (n < len)
			put_escaped(out, (unsigned char) text[n++]);
		text += n;
		len -= n;
	}
	appendStringInfoCharMacro(out, '"');
}

void
outbox_encode_json_string(StringInfo out, const char *text, int len)
{
	put_string(out, text, len);
	out->data[out->len] = '\0'; /* there is always room for it */
}

static void
put_numeric(StringInfo out, Numeric number)
{
	char	   *text = DatumGetCString(DirectFunctionCall1(numeric_out,
														   NumericGetDatum(number)));

	appendStringInfoString(out, text);
	pfree(text);
}

static void
put_scalar(StringInfo out, JEntry entry, const char *data, uint32 start, uint32 end)
{
	if (JBE_ISSTRING(entry))
		put_string(out, data + start, end - start);
	else if (JBE_ISNUMERIC(entry))
		put_numeric(out, (Numeric) unconstify(char *, data + INTALIGN(start)));
	else if (JBE_ISBOOL_TRUE(entry))
		appendBinaryStringInfoNT(out, "true", 4);
	else if (JBE_ISBOOL_FALSE(entry))
		appendBinaryStringInfoNT(out, "false", 5);
	else if (JBE_ISNULL(entry))
		appendBinaryStringInfoNT(out, "null", 4);
	else
		elog(ERROR, "unexpected entry %08x in a jsonb value", entry);
}

/* Where the child ends: an entry has its length, now and then its end. */
static uint32
end_of(JEntry entry, uint32 start)
{
	return JBE_HAS_OFF(entry) ? JBE_OFFLENFLD(entry) :
		start + JBE_OFFLENFLD(entry);
}

static void
enter_level(Level *level, const JsonbContainer *container)
{
	bool		object = JsonContainerIsObject(container);
	uint32		count = JsonContainerSize(container);

	memset(level, 0, sizeof(*level));
	level->count = count;
	level->scalar = JsonContainerIsScalar(container);
	if (object)
	{
		level->keys = container->children;
		level->values = container->children + count;
		level->value_at = getJsonbOffset(container, count);
	}
	else
		level->values = container->children;
	level->data = (const char *) (level->values + count);
}

static void
open_level(Level *level, const JsonbContainer *container, StringInfo out)
{
	enter_level(level, container);
	if (!level->scalar)
		appendStringInfoCharMacro(out, level->keys != NULL ? '{' : '[');
}

static void
close_level(const Level *level, StringInfo out)
{
	if (!level->scalar)
		appendStringInfoCharMacro(out, level->keys != NULL ? '}' : ']');
}

/* What stands before a value. */
static void
put_prefix(StringInfo out, Level *level)
{
	uint32		start = level->key_at;

	if (level->next > 0)
		appendBinaryStringInfoNT(out, ", ", 2);
	if (level->keys == NULL)
		return;
	level->key_at = end_of(level->keys[level->next], start);
	put_string(out, level->data + start, level->key_at - start);
	appendBinaryStringInfoNT(out, ": ", 2);
}

/* -------------------------------------------------------------------- size */

static size_t
string_size(const char *text, int len)
{
	size_t		size = len + 2;

	while (len > 0)
	{
		int			n = plain_length(text, len);

		if (n < len)
		{
			unsigned char c = (unsigned char) text[n++];

			/* \n, or \u001f */
			size += escape_letter(c) != '\0' ? 1 : 5;
		}
		text += n;
		len -= n;
	}
	return size;
}

static size_t
scalar_size(JEntry entry, const char *data, uint32 start, uint32 end)
{
	char	   *text;
	size_t		size;

	if (JBE_ISSTRING(entry))
		return string_size(data + start, end - start);
	if (!JBE_ISNUMERIC(entry))
		return JBE_ISBOOL_FALSE(entry) ? 5 : 4;
	text = DatumGetCString(DirectFunctionCall1(numeric_out,
											   NumericGetDatum((Numeric) unconstify(char *, data + INTALIGN(start)))));
	size = strlen(text);
	pfree(text);
	return size;
}

size_t
outbox_json_text_size(const Jsonb *value, size_t limit)
{
	int			room = LEVELS;
	Level	   *levels = palloc(sizeof(Level) * room);
	int			depth = 0;
	size_t		size = 0;

	enter_level(&levels[0], &value->root);
	while (depth >= 0 && size <= limit)
	{
		Level	   *level = &levels[depth];
		JEntry		entry;
		uint32		start = level->value_at;

		if (level->next == level->count)
		{
			/* its brackets, and ", " between its members */
			if (!level->scalar)
				size += 2 + (level->count > 1 ? 2 * (level->count - 1) : 0);
			depth--;
			continue;
		}
		if (level->keys != NULL)
		{
			uint32		key = level->key_at;

			level->key_at = end_of(level->keys[level->next], key);
			size += string_size(level->data + key, level->key_at - key) + 2;
		}
		entry = level->values[level->next++];
		level->value_at = end_of(entry, start);
		if (!JBE_ISCONTAINER(entry))
		{
			size += scalar_size(entry, level->data, start, level->value_at);
			continue;
		}
		if (++depth == room)
			levels = repalloc(levels, sizeof(Level) * (room *= 2));
		enter_level(&levels[depth],
					(const JsonbContainer *) (levels[depth - 1].data + INTALIGN(start)));
	}
	pfree(levels);
	return size;
}

/* -------------------------------------------------------------------- text */

void
outbox_encode_json(StringInfo out, const Jsonb *value)
{
	int			size = LEVELS;
	Level	   *levels = palloc(sizeof(Level) * size);
	int			depth = 0;

	enlargeStringInfo(out, VARSIZE(value));
	open_level(&levels[0], &value->root, out);
	while (depth >= 0)
	{
		Level	   *level = &levels[depth];
		JEntry		entry;
		uint32		start = level->value_at;

		if (level->next == level->count)
		{
			close_level(level, out);
			depth--;
			continue;
		}
		put_prefix(out, level);
		entry = level->values[level->next++];
		level->value_at = end_of(entry, start);
		if (!JBE_ISCONTAINER(entry))
		{
			put_scalar(out, entry, level->data, start, level->value_at);
			continue;
		}
		if (++depth == size)
			levels = repalloc(levels, sizeof(Level) * (size *= 2));
		open_level(&levels[depth],
				   (const JsonbContainer *) (levels[depth - 1].data + INTALIGN(start)),
				   out);
	}
	out->data[out->len] = '\0'; /* there is always room for it */
	pfree(levels);
}

bool
outbox_is_json_null(const Jsonb *value)
{
	/* A scalar is stored as an array of one. */
	return JB_ROOT_IS_SCALAR(value) && JBE_ISNULL(value->root.children[0]);
}

/*
 * Time as text.
 */

char *
outbox_rfc3339(TimestampTz time)
{
	struct pg_tm tm;
	fsec_t		fsec;

	if (TIMESTAMP_NOT_FINITE(time) ||
		timestamp2tm(time, NULL, &tm, &fsec, NULL, NULL) != 0 ||
		tm.tm_year < 1 || tm.tm_year > 9999)
		return NULL;
	return psprintf("%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", tm.tm_year,
					tm.tm_mon, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
					(int) fsec);
}
