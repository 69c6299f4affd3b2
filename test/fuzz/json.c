/*-------------------------------------------------------------------------
 *
 * json.c
 *		Makes values of jsonb, in the layout of utils/jsonb.h, and iterates
 *		over them as the server does.
 *
 * The server's own functions need its catalogs and its types; this needs nothing.
 * Unlike the server it keeps the pairs of an object in the order in which they
 * came, and a key twice: the encoder must not mind.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/fmgrprotos.h"

#include "pg.h"

#define DEPTH	64				/* more than whoever builds opens */
#define MEMBERS	1024			/* of one level */

/* What one level has so far: for each member an entry and its bytes. */
typedef struct Building
{
	bool		object;
	int			nkeys;
	int			nvalues;
	JEntry		keys[MEMBERS];
	JEntry		values[MEMBERS];
	StringInfoData key_data;
	StringInfoData value_data;
} Building;

static Building levels[DEPTH];
static int	depth;
static StringInfoData root;
static bool scalar_root;

static void
put_bytes(StringInfo to, const void *data, size_t len)
{
	appendBinaryStringInfoNT(to, data, (int) len);
}

/* Numbers and containers are aligned, and the padding counts as theirs. */
static size_t
pad(StringInfo to)
{
	size_t		before = to->len;

	while (to->len % ALIGNOF_INT != 0)
		put_bytes(to, "", 1);
	return to->len - before;
}

/*
 * In an object the values come behind the keys, so their ends are not known
 * before; they are put right when it is closed.
 */
static void
add_value(uint32 type, const void *bytes, size_t len, bool aligned)
{
	Building   *level = &levels[depth - 1];
	size_t		padding = aligned ? pad(&level->value_data) : 0;

	fuzz_check(level->nvalues < MEMBERS, "too many members");
	put_bytes(&level->value_data, bytes, len);
	level->values[level->nvalues++] = type | (uint32) (padding + len);
}

static void
open_level(bool object)
{
	Building   *level = &levels[depth++];

	fuzz_check(depth < DEPTH, "too many levels");
	level->object = object;
	level->nkeys = level->nvalues = 0;
	initStringInfo(&level->key_data);
	initStringInfo(&level->value_data);
}

void
fuzz_json_begin(void)
{
	depth = 0;
	scalar_root = false;
	initStringInfo(&root);
}

/* A scalar is the only member of an array that is marked so. */
static void
begin_scalar(void)
{
	if (depth > 0)
		return;
	scalar_root = true;
	open_level(false);
}

void
fuzz_json_open(bool object)
{
	open_level(object);
}

/* The bytes of a level, which is closed, as a container. */
static void
finish_level(Building *level, StringInfo out)
{
	StringInfoData data;
	uint32		header;
	int			nentries = level->nvalues + (level->object ? level->nkeys : 0);
	JEntry		entries[2 * MEMBERS];
	size_t		at = 0;
	int			n = 0;

	initStringInfo(&data);
	put_bytes(&data, level->key_data.data, level->key_data.len);
	for (int i = 0; i < (level->object ? level->nkeys : 0); i++)
		entries[n++] = level->keys[i];
	for (int i = 0; i < level->nvalues; i++)
	{
		JEntry		one = level->values[i];
		size_t		len = JBE_OFFLENFLD(one);
		const char *from = level->value_data.data + at;
		size_t		padding = 0;

		at += len;
		/* the padding was that of another place */
		if (JBE_ISNUMERIC(one) || JBE_ISCONTAINER(one))
		{
			size_t		old = INTALIGN(at - len) - (at - len);

			from += old;
			len -= old;
			padding = pad(&data);
		}
		put_bytes(&data, from, len);
		entries[n++] = (one & JENTRY_TYPEMASK) | (uint32) (len + padding);
	}

	/* now and then the end in place of the length */
	at = 0;
	for (int i = 0; i < nentries; i++)
	{
		at += JBE_OFFLENFLD(entries[i]);
		if (i % JB_OFFSET_STRIDE == 0)
			entries[i] = (entries[i] & JENTRY_TYPEMASK) | JENTRY_HAS_OFF | (uint32) at;
	}

	header = (level->object ? JB_FOBJECT | level->nkeys : JB_FARRAY | level->nvalues);
	if (out == &root && scalar_root)
		header |= JB_FSCALAR;
	put_bytes(out, &header, sizeof(header));
	put_bytes(out, entries, sizeof(JEntry) * nentries);
	put_bytes(out, data.data, data.len);
}

void
fuzz_json_close(void)
{
	StringInfoData bytes;
	Building   *level = &levels[depth - 1];

	if (depth == 1)
	{
		depth--;
		finish_level(level, &root);
		return;
	}
	initStringInfo(&bytes);
	finish_level(level, &bytes);
	depth--;
	add_value(JENTRY_ISCONTAINER, bytes.data, bytes.len, true);
}

void
fuzz_json_key(const char *text, size_t len)
{
	Building   *level = &levels[depth - 1];

	put_bytes(&level->key_data, text, len);
	level->keys[level->nkeys++] = JENTRY_ISSTRING | (uint32) len;
}

void
fuzz_json_string(const char *text, size_t len)
{
	begin_scalar();
	add_value(JENTRY_ISSTRING, text, len, false);
}

void
fuzz_json_number(const char *digits)
{
	size_t		len = strlen(digits) + 1;
	char	   *number = palloc0(VARHDRSZ + len);

	SET_VARSIZE(number, VARHDRSZ + len);
	memcpy(VARDATA(number), digits, len);
	begin_scalar();
	add_value(JENTRY_ISNUMERIC, number, VARHDRSZ + len, true);
}

void
fuzz_json_bool(bool value)
{
	begin_scalar();
	add_value(value ? JENTRY_ISBOOL_TRUE : JENTRY_ISBOOL_FALSE, "", 0, false);
}

void
fuzz_json_null(void)
{
	begin_scalar();
	add_value(JENTRY_ISNULL, "", 0, false);
}

Jsonb *
fuzz_json_finish(void)
{
	Jsonb	   *result;

	if (depth == 1 && scalar_root)
		fuzz_json_close();
	fuzz_check(depth == 0, "a level is open");
	/* exactly as large as it is, so that whoever reads on is seen */
	result = palloc(VARHDRSZ + root.len);
	SET_VARSIZE(result, VARHDRSZ + root.len);
	memcpy(&result->root, root.data, root.len);
	return result;
}

/* ---------------------------------------------------------------- iterating */

uint32
getJsonbOffset(const JsonbContainer *jc, int index)
{
	uint32		offset = 0;

	for (int i = index - 1; i >= 0; i--)
	{
		offset += JBE_OFFLENFLD(jc->children[i]);
		if (JBE_HAS_OFF(jc->children[i]))
			break;
	}
	return offset;
}

static uint32
length_of(const JsonbContainer *jc, int index)
{
	return JBE_HAS_OFF(jc->children[index]) ?
		JBE_OFFLENFLD(jc->children[index]) - getJsonbOffset(jc, index) :
		JBE_OFFLENFLD(jc->children[index]);
}

static JsonbIterator *
enter(JsonbContainer *container, JsonbIterator *parent)
{
	JsonbIterator *it = palloc0(sizeof(JsonbIterator));

	it->container = container;
	it->parent = parent;
	it->nElems = JsonContainerSize(container);
	it->children = container->children;
	it->isScalar = JsonContainerIsScalar(container);
	it->state = JsonContainerIsObject(container) ? JBI_OBJECT_START : JBI_ARRAY_START;
	it->dataProper = (char *) it->children + sizeof(JEntry) * it->nElems *
		(it->state == JBI_OBJECT_START ? 2 : 1);
	return it;
}

JsonbIterator *
JsonbIteratorInit(JsonbContainer *container)
{
	return enter(container, NULL);
}

static void
fill(const JsonbIterator *it, int index, JsonbValue *result)
{
	JEntry		one = it->children[index];
	char	   *at = it->dataProper + getJsonbOffset(it->container, index);

	if (JBE_ISNULL(one))
		result->type = jbvNull;
	else if (JBE_ISSTRING(one))
	{
		result->type = jbvString;
		result->val.string.val = at;
		result->val.string.len = length_of(it->container, index);
	}
	else if (JBE_ISNUMERIC(one))
	{
		result->type = jbvNumeric;
		result->val.numeric = (Numeric) (it->dataProper +
										 INTALIGN(at - it->dataProper));
	}
	else if (JBE_ISBOOL_TRUE(one) || JBE_ISBOOL_FALSE(one))
	{
		result->type = jbvBool;
		result->val.boolean = JBE_ISBOOL_TRUE(one);
	}
	else
	{
		result->type = jbvBinary;
		result->val.binary.data = (JsonbContainer *)
			(it->dataProper + INTALIGN(at - it->dataProper));
		result->val.binary.len = length_of(it->container, index) -
			(INTALIGN(at - it->dataProper) - (at - it->dataProper));
	}
}

JsonbIteratorToken
JsonbIteratorNext(JsonbIterator **it, JsonbValue *val, bool skipNested)
{
	JsonbIterator *at = *it;
	bool		object;
	int			index;

	if (at == NULL)
		return WJB_DONE;
	object = JsonContainerIsObject(at->container);
	if (at->state == JBI_ARRAY_START || at->state == JBI_OBJECT_START)
	{
		at->curIndex = 0;
		at->state = object ? JBI_OBJECT_KEY : JBI_ARRAY_ELEM;
		val->type = object ? jbvObject : jbvArray;
		if (object)
			val->val.object.nPairs = at->nElems;
		else
		{
			val->val.array.nElems = at->nElems;
			val->val.array.rawScalar = at->isScalar;
		}
		return object ? WJB_BEGIN_OBJECT : WJB_BEGIN_ARRAY;
	}
	if (at->state != JBI_OBJECT_VALUE && at->curIndex >= at->nElems)
	{
		*it = at->parent;
		pfree(at);
		return object ? WJB_END_OBJECT : WJB_END_ARRAY;
	}
	if (at->state == JBI_OBJECT_KEY)
	{
		fill(at, at->curIndex, val);
		at->state = JBI_OBJECT_VALUE;
		return WJB_KEY;
	}
	index = at->curIndex++;
	fill(at, object ? index + at->nElems : index, val);
	at->state = object ? JBI_OBJECT_KEY : JBI_ARRAY_ELEM;
	if (val->type == jbvBinary && !skipNested)
	{
		*it = enter(val->val.binary.data, at);
		return JsonbIteratorNext(it, val, false);
	}
	return object ? WJB_VALUE : WJB_ELEM;
}
