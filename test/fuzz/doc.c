/*-------------------------------------------------------------------------
 *
 * doc.c
 *		JSON documents that an input draws.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "doc.h"
#include "pg.h"

const char *const *doc_names;
int			doc_nnames;

/* UTF-8 without a zero: a byte above 127 becomes a character of two or three. */
char *
draw_text(Input *in, size_t *len)
{
	static const uint16_t odd_lengths[] = {0, 1, 7, 8, 9, 254, 255, 256, 300, 3000};
	uint8_t		how = input_byte(in);
	size_t		wanted = how < 246 ? how % 24 : odd_lengths[how - 246];
	StringInfoData text;

	initStringInfo(&text);
	while ((size_t) text.len < wanted)
	{
		uint8_t		c = in->at < in->end ? input_byte(in) : 'x';
		char		wide[3] = {(char) (0xE1), (char) (0x80 | (c & 0x3f)), (char) 0x80};

		if (c == 0)
			c = ' ';
		if (c < 0x80)
			appendStringInfoChar(&text, c);
		else if (c < 0xC0)
		{
			char		two[2] = {(char) 0xC3, (char) c};

			appendBinaryStringInfoNT(&text, two, 2);
		}
		else
			appendBinaryStringInfoNT(&text, wide, 3);
	}
	*len = text.len;
	text.data[text.len] = '\0';
	return text.data;
}

/* As numeric_out() writes them: no leading zeros, no -0. */
char *
draw_number(Input *in)
{
	uint8_t		how = input_byte(in);
	int			whole = how & 64 ? 1 + input_byte(in) * 2 : 1 + (how & 31) % 21;
	int			behind = how & 32 ? input_byte(in) % 20 : 0;
	StringInfoData text;
	bool		zero;

	initStringInfo(&text);
	zero = (how & 7) == 0;
	if (!zero && (how & 128))
		appendStringInfoChar(&text, '-');
	appendStringInfoChar(&text, zero ? '0' : '1' + input_byte(in) % 9);
	for (int i = 1; i < whole && !zero; i++)
		appendStringInfoChar(&text, '0' + input_byte(in) % 10);
	if (behind > 0)
		appendStringInfoChar(&text, '.');
	for (int i = 0; i < behind; i++)
		appendStringInfoChar(&text, '0' + input_byte(in) % 10);
	return text.data;
}

static bool
has_key(const Doc *node, const char *key, size_t len)
{
	for (int i = 0; i < node->count; i++)
		if (node->key_lens[i] == len && memcmp(node->keys[i], key, len) == 0)
			return true;
	return false;
}

static char *
draw_key(Input *in, size_t *len)
{
	uint8_t		how = input_byte(in);

	if (how < 64)
	{
		const char *name = doc_names[how % doc_nnames];

		*len = strlen(name);
		return pstrdup(name);
	}
	return draw_text(in, len);
}

Doc *
draw_node(Input *in, int depth)
{
	static const char kinds[] = "nbsdsdaoaosdnbso";
	Doc	   *node = palloc0(sizeof(Doc));
	int			wanted;

	node->kind = kinds[input_byte(in) % 16];
	if (depth >= DOC_DEPTH && (node->kind == 'a' || node->kind == 'o'))
		node->kind = 'n';
	switch (node->kind)
	{
		case 'b':
			node->value = input_byte(in) & 1;
			break;
		case 's':
			node->text = draw_text(in, &node->len);
			break;
		case 'd':
			node->text = draw_number(in);
			node->len = strlen(node->text);
			break;
		case 'a':
		case 'o':
			wanted = input_byte(in) % (DOC_MEMBERS + 1);
			while (node->count < wanted)
			{
				size_t		len = 0;
				char	   *key = node->kind == 'o' ? draw_key(in, &len) : NULL;
				Doc	   *member = draw_node(in, depth + 1);

				if (key != NULL && has_key(node, key, len))
				{
					wanted--;
					continue;
				}
				node->keys[node->count] = key;
				node->key_lens[node->count] = len;
				node->members[node->count++] = member;
			}
	}
	return node;
}

/* Keys may be longer than AMQP has room for, but objects are objects. */
Doc *
draw_object(Input *in)
{
	Doc	   *node = draw_node(in, 1);

	if (node->kind != 'o')
	{
		memset(node, 0, sizeof(*node));
		node->kind = 'o';
		if (input_byte(in) & 1)
		{
			node->keys[0] = draw_key(in, &node->key_lens[0]);
			node->members[0] = draw_node(in, 2);
			node->count = 1;
		}
	}
	return node;
}

static void
build(const Doc *node)
{
	switch (node->kind)
	{
		case 'n':
			fuzz_json_null();
			break;
		case 'b':
			fuzz_json_bool(node->value);
			break;
		case 's':
			fuzz_json_string(node->text, node->len);
			break;
		case 'd':
			fuzz_json_number(node->text);
			break;
		default:
			fuzz_json_open(node->kind == 'o');
			for (int i = 0; i < node->count; i++)
			{
				if (node->kind == 'o')
					fuzz_json_key(node->keys[i], node->key_lens[i]);
				build(node->members[i]);
			}
			fuzz_json_close();
	}
}

Jsonb *
jsonb_of(const Doc *node)
{
	fuzz_json_begin();
	build(node);
	return fuzz_json_finish();
}
