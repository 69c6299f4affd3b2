/*-------------------------------------------------------------------------
 *
 * mutate.c
 *		Changes what a broker says, frame by frame.
 *
 * A mutation of bytes alone rarely leaves a frame whole, and then the client
 * reads nothing behind it.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "fuzz.h"

#define OVERHEAD	8			/* of a frame: 7 bytes, and its end */
#define FRAMES		512
#define END			0xCE

static uint64_t state;

static uint32_t
draw(uint32_t n)
{
	state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t) (state >> 33) % n;
}

typedef struct Frames
{
	size_t		at[FRAMES + 1]; /* the last one is where they end */
	int			n;
} Frames;

static uint32_t
length_of(const uint8_t *frame)
{
	return (uint32_t) frame[3] << 24 | frame[4] << 16 | frame[5] << 8 | frame[6];
}

static void
set_length(uint8_t *frame, uint32_t length)
{
	frame[3] = length >> 24;
	frame[4] = length >> 16;
	frame[5] = length >> 8;
	frame[6] = length;
}

static void
find_frames(const uint8_t *data, size_t size, Frames *frames)
{
	size_t		at = FUZZ_LINK_HEAD;

	frames->n = 0;
	while (frames->n < FRAMES && at + OVERHEAD <= size &&
		   length_of(data + at) <= size - at - OVERHEAD)
	{
		frames->at[frames->n++] = at;
		at += OVERHEAD + length_of(data + at);
	}
	frames->at[frames->n] = at;
}

/* Room for n bytes more at that place; false when there is none. */
static int
widen(uint8_t *data, size_t *size, size_t max_size, size_t at, size_t n)
{
	if (*size + n > max_size)
		return 0;
	memmove(data + at + n, data + at, *size - at);
	*size += n;
	return 1;
}

/* What a broker may say, each with some of its bytes drawn. */
static const struct
{
	uint8_t		type;
	uint8_t		channel;
	uint8_t		size;
	const char *payload;
}			Known[] = {
	{1, 1, 13, "\0\74\0\120\0\0\0\0\0\0\0\1\0"},	/* ack */
	{1, 1, 13, "\0\74\0\170\0\0\0\0\0\0\0\2\1"},	/* nack */
	{1, 1, 26, "\0\74\0\62\1\70\10NO_ROUTE\6outbox\3key"},	/* return */
	{2, 1, 14, "\0\74\0\0\0\0\0\0\0\0\0\5\0\0"},	/* header */
	{2, 1, 51, "\0\74\0\0\0\0\0\0\0\0\0\0\0\200\44"
	"01010101-0101-0101-0101-010101010101"},
	{3, 1, 5, "hello"},
	{8, 0, 0, ""},
	{8, 7, 9, "heartbeat"},
	{1, 0, 18, "\0\12\0\74\15low on memory"},	/* blocked */
	{1, 0, 4, "\0\12\0\75"},	/* unblocked */
	{1, 0, 17, "\0\12\0\62\1\100\6FORCED\0\0\0\0"},	/* connection.close */
	{1, 1, 20, "\0\24\0\50\1\224\11NOT_FOUND\0\12\0\50"},	/* channel.close */
	{1, 2, 20, "\0\24\0\50\1\224\11NOT_FOUND\0\12\0\50"},
	{1, 3, 20, "\0\24\0\50\1\223\11FORBIDDEN\0\74\0\50"},
	{1, 2, 8, "\0\24\0\13\0\0\0\0"},	/* channel.open-ok */
	{1, 2, 4, "\0\50\0\13"},	/* exchange.declare-ok */
	{1, 3, 8, "\0\24\0\13\0\0\0\0"},
	{1, 3, 4, "\0\132\0\13"},	/* tx.select-ok */
	{1, 3, 4, "\0\132\0\37"},	/* tx.rollback-ok */
	{1, 0, 12, "\0\12\0\36\7\377\0\2\0\0\0\74"},	/* tune */
	{1, 0, 4, "\0\12\0\63"},	/* close-ok */
	{1, 1, 5, "\0\24\0\24\1"},	/* channel.flow */
	{1, 1, 19, "\0\74\0\74\1t\0\0\0\0\0\0\0\1\0\1x\1k"},	/* deliver */
};

static void
insert_known(uint8_t *data, size_t *size, size_t max_size, size_t at)
{
	uint32_t	which = draw(sizeof(Known) / sizeof(Known[0]));
	size_t		len = Known[which].size;

	if (!widen(data, size, max_size, at, len + OVERHEAD))
		return;
	data[at] = Known[which].type;
	data[at + 1] = 0;
	data[at + 2] = Known[which].channel;
	set_length(data + at, len);
	memcpy(data + at + 7, Known[which].payload, len);
	data[at + 7 + len] = END;
	/* a tag, a code, a length */
	if (len > 4 && draw(3) == 0)
		data[at + 7 + 4 + draw(len - 4)] = draw(256);
}

static const uint32_t Odd[] = {
	0, 1, 2, 3, 4, 7, 8, 11, 12, 127, 128, 255, 256, 4095, 4096, 65535, 65536,
	131064, 131072, 0x7ffffff0, 0x7fffffff, 0x80000000, 0xfffffff8, 0xffffffff
};

/* 1, 2, 4 or 8 bytes at that place get an odd number. */
static void
set_odd(uint8_t *at, size_t room)
{
	uint32_t	value = Odd[draw(sizeof(Odd) / sizeof(Odd[0]))];
	size_t		width = (size_t) 1 << draw(4);

	if (width > room)
		width = 1;
	for (size_t i = 0; i < width; i++)
		at[i] = i + 4 < width ? (uint8_t) (value >> 31) * 0xff :
			value >> (8 * (width - 1 - i) % 32);
}

/* A header with tables or arrays, one in the other. */
static void
insert_nested(uint8_t *data, size_t *size, size_t max_size, size_t at)
{
	int			array = draw(2);
	size_t		each = array ? 5 : 7;
	size_t		depth = 1 + draw(draw(2) ? 8 : 4096);
	size_t		len = 14 + 4 + 2 + depth * each;
	uint8_t    *p;

	if (!widen(data, size, max_size, at, len + OVERHEAD))
		return;
	p = data + at;
	memset(p, 0, len + OVERHEAD);
	p[0] = 2;
	p[2] = 1;
	set_length(p, len);
	p[7 + 1] = 60;
	p[7 + 12] = 0x20;			/* headers */
	p += 7 + 14;
	set_length(p - 3, 2 + depth * each);	/* of the table */
	p += 4;
	p[0] = 0;					/* an empty name */
	p[1] = array ? 'A' : 'F';
	p += 2;
	for (size_t left = depth * each; left >= each; left -= each)
	{
		set_length(p - 3, left - 4);
		p[4] = array ? 'A' : 0;
		if (!array)
			p[5] = 'F';
		if (left == each && array)
			p[4] = 'V';
		p += each;
	}
	data[at + 7 + len] = END;
}

static size_t
mutate_frames(uint8_t *data, size_t size, size_t max_size)
{
	Frames		frames;
	int			i;
	size_t		at;
	size_t		len;

	find_frames(data, size, &frames);
	if (frames.n == 0)
		return LLVMFuzzerMutate(data, size, max_size);
	i = draw(frames.n);
	at = frames.at[i];
	len = frames.at[i + 1] - at;
	switch (draw(12))
	{
		case 0:					/* twice */
			if (widen(data, &size, max_size, at, len))
				memcpy(data + at, data + at + len, len);
			break;
		case 1:					/* left out */
			memmove(data + at, data + at + len, size - at - len);
			size -= len;
			break;
		case 2:					/* another one first */
			if (i + 1 < frames.n)
			{
				size_t		next = frames.at[i + 2] - frames.at[i + 1];

				if (widen(data, &size, max_size, at, next))
				{
					memcpy(data + at, data + at + len + next, next);
					memmove(data + at + next + len, data + at + 2 * next + len,
							size - (at + 2 * next + len));
					size -= next;
				}
			}
			break;
		case 3:					/* cut off here */
			size = at + draw(len);
			break;
		case 4:					/* its length lies */
			set_length(data + at, draw(2) ? Odd[draw(sizeof(Odd) / sizeof(Odd[0]))] :
					   length_of(data + at) + draw(17) - 8);
			break;
		case 5:
			data[at + 1 + draw(2)] = draw(2) ? draw(4) : draw(256);
			break;
		case 6:
			data[at] = draw(2) ? 1 + draw(8) : draw(256);
			break;
		case 7:					/* a bit of its payload */
			data[at + 7 + draw(len - 7)] ^= 1 << draw(8);
			break;
		case 8:
			if (len > OVERHEAD)
			{
				size_t		in = draw(len - OVERHEAD);

				set_odd(data + at + 7 + in, len - OVERHEAD - in);
			}
			break;
		case 9:					/* its content, and a length that fits */
			{
				size_t		content = len - OVERHEAD;
				size_t		most = max_size - (size - content);
				uint8_t		end = data[at + len - 1];

				if (most > content + 64)
					most = content + 64;
				if (content > 0 && most > content &&
					widen(data, &size, max_size, at + 7 + content, most - content))
				{
					size_t		changed = LLVMFuzzerMutate(data + at + 7, content, most);

					memmove(data + at + 7 + changed, data + at + 7 + most,
							size - (at + 7 + most));
					size -= most - changed;
					set_length(data + at, changed);
					data[at + 7 + changed] = end;
				}
			}
			break;
		case 10:
			insert_nested(data, &size, max_size, at);
			break;
		default:
			insert_known(data, &size, max_size, frames.at[draw(frames.n + 1)]);
	}
	return size;
}

size_t
LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size,
						unsigned int seed)
{
	int			n;

	state = seed;
	if (size < FUZZ_LINK_HEAD || draw(8) == 0)
		return LLVMFuzzerMutate(data, size, max_size);
	n = 1 + draw(4);
	if (draw(4) == 0)
	{
		data[draw(FUZZ_LINK_HEAD)] = draw(256);
		/* TLS is slow, and the same behind it */
		if (draw(4) != 0)
			data[0] &= ~1;
	}
	while (n-- > 0)
		size = mutate_frames(data, size, max_size);
	return size;
}
