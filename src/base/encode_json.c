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
 * A value may be damaged on disk.  Each child has to lie within its parent, behind the
 * child before it, so that no read leaves the value and no part is walked twice.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "encode_json.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

/* A container that is being written. */
typedef struct Level
{
	const JEntry *keys;			/* of an object; NULL: an array */
	const JEntry *values;
	const char *data;
	uint32		size;			/* of data */
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

/*
 * Each of these returns how many bytes it puts to out, and only counts them where that
 * is NULL.  They are inlined, so that the text and its size have code of their own.
 */

static pg_attribute_always_inline size_t
put(StringInfo out, const char *text, int len)
{
	if (out != NULL)
		appendBinaryStringInfoNT(out, text, len);
	return len;
}

static pg_attribute_always_inline size_t
put_char(StringInfo out, char c)
{
	if (out != NULL)
		appendStringInfoCharMacro(out, c);
	return 1;
}

static size_t
put_escaped(StringInfo out, unsigned char c)
{
	char		letter = escape_letter(c);

	if (letter != '\0')
		return put_char(out, '\\') + put_char(out, letter);
	return put(out, "\\u00", 4) + put_char(out, '0' + (c >> 4)) +
		put_char(out, "0123456789abcdef"[c & 0xf]);
}

static pg_attribute_always_inline size_t
put_string(StringInfo out, const char *text, int len)
{
	size_t		size = put_char(out, '"');

	while (len > 0)
	{
		int			n = plain_length(text, len);

		size += put(out, text, n);
		if (n < len)
			size += put_escaped(out, (unsigned char) text[n++]);
		text += n;
		len -= n;
	}
	return size + put_char(out, '"');
}

void
outbox_encode_json_string(StringInfo out, const char *text, int len)
{
	(void) put_string(out, text, len);
	out->data[out->len] = '\0'; /* there is always room for it */
}

static void
report_damage(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("a jsonb value is damaged")));
}

/* The bit that the server sets when the first two bytes are all of a number's header. */
#define NUMERIC_SHORT	0x8000

static size_t
put_numeric(StringInfo out, const char *data, uint32 room)
{
	char	   *text;
	size_t		size;

	if (room < VARHDRSZ + sizeof(uint16) || !VARATT_IS_4B_U(data) || VARSIZE(data) > room ||
		VARSIZE(data) < VARHDRSZ + sizeof(uint16) +
		((*(const uint16 *) VARDATA(data) & NUMERIC_SHORT) != 0 ? 0 : sizeof(int16)))
		report_damage();
	text = DatumGetCString(DirectFunctionCall1(numeric_out, PointerGetDatum(data)));
	size = put(out, text, strlen(text));

	pfree(text);
	return size;
}

static pg_attribute_always_inline size_t
put_scalar(StringInfo out, JEntry entry, const char *data, uint32 start, uint32 end)
{
	if (JBE_ISSTRING(entry))
		return put_string(out, data + start, end - start);
	if (JBE_ISNUMERIC(entry))
		return put_numeric(out, data + INTALIGN(start), end - Min(INTALIGN(start), end));
	if (JBE_ISBOOL_TRUE(entry))
		return put(out, "true", 4);
	if (JBE_ISBOOL_FALSE(entry))
		return put(out, "false", 5);
	if (!JBE_ISNULL(entry))
		report_damage();
	return put(out, "null", 4);
}

/* Where the child ends: an entry has its length, now and then its end. */
static pg_attribute_always_inline uint32
end_of(const Level *level, JEntry entry, uint32 start)
{
	uint32		end = JBE_HAS_OFF(entry) ? JBE_OFFLENFLD(entry) :
		start + JBE_OFFLENFLD(entry);

	if (end < start || end > level->size)
		report_damage();
	return end;
}

static pg_attribute_always_inline void
open_level(Level *level, const JsonbContainer *container, size_t size, StringInfo out)
{
	uint32		entries;

	memset(level, 0, sizeof(*level));
	if (size < offsetof(JsonbContainer, children))
		report_damage();
	size -= offsetof(JsonbContainer, children);
	level->count = JsonContainerSize(container);
	level->scalar = JsonContainerIsScalar(container);
	entries = JsonContainerIsObject(container) ? 2 * level->count : level->count;
	if (entries > size / sizeof(JEntry))
		report_damage();
	level->values = container->children + (entries - level->count);
	level->data = (const char *) (container->children + entries);
	level->size = size - entries * sizeof(JEntry);
	if (JsonContainerIsObject(container))
	{
		level->keys = container->children;
		level->value_at = getJsonbOffset(container, level->count);
	}
	if (!level->scalar)
		(void) put_char(out, level->keys != NULL ? '{' : '[');
}

/* Returns the size of its brackets, and of ", " between its members. */
static pg_attribute_always_inline size_t
close_level(const Level *level, StringInfo out)
{
	if (level->scalar)
		return 0;
	(void) put_char(out, level->keys != NULL ? '}' : ']');
	return level->count > 1 ? 2 * level->count : 2;
}

/* What stands before a value.  Returns the size of its key. */
static pg_attribute_always_inline size_t
put_prefix(StringInfo out, Level *level)
{
	uint32		start = level->key_at;
	size_t		size;

	if (level->next > 0)
		(void) put(out, ", ", 2);
	if (level->keys == NULL)
		return 0;
	level->key_at = end_of(level, level->keys[level->next], start);
	size = put_string(out, level->data + start, level->key_at - start);
	return size + put(out, ": ", 2);
}

static pg_attribute_always_inline size_t
walk(StringInfo out, const Jsonb *value, size_t limit)
{
	int			room = LEVELS;
	Level	   *levels = palloc(sizeof(Level) * room);
	int			depth = 0;
	size_t		size = 0;

	open_level(&levels[0], &value->root, VARSIZE(value) - VARHDRSZ, out);
	while (depth >= 0 && size <= limit)
	{
		Level	   *level = &levels[depth];
		JEntry		entry;
		uint32		start = level->value_at;

		if (level->next == level->count)
		{
			size += close_level(level, out);
			depth--;
			continue;
		}
		size += put_prefix(out, level);
		entry = level->values[level->next++];
		level->value_at = end_of(level, entry, start);
		if (!JBE_ISCONTAINER(entry))
		{
			size += put_scalar(out, entry, level->data, start, level->value_at);
			continue;
		}
		if (INTALIGN(start) > level->value_at)
			report_damage();
		if (++depth == room)
			levels = repalloc(levels, sizeof(Level) * (room *= 2));
		level = &levels[depth - 1];
		open_level(&levels[depth],
				   (const JsonbContainer *) (level->data + INTALIGN(start)),
				   level->value_at - INTALIGN(start), out);
	}
	pfree(levels);
	return size;
}

size_t
outbox_json_text_size(const Jsonb *value, size_t limit)
{
	return walk(NULL, value, limit);
}

void
outbox_encode_json(StringInfo out, const Jsonb *value)
{
	enlargeStringInfo(out, VARSIZE(value));
	(void) walk(out, value, SIZE_MAX);
	out->data[out->len] = '\0'; /* there is always room for it */
}

bool
outbox_is_json_null(const Jsonb *value)
{
	/* A scalar is stored as an array of one. */
	return JB_ROOT_IS_SCALAR(value) && JBE_ISNULL(value->root.children[0]);
}

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
