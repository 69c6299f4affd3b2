/*-------------------------------------------------------------------------
 *
 * input.h
 *		Values out of the bytes that a fuzzer gives; zeros when there are no more.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>

typedef struct Input
{
	const uint8_t *at;
	const uint8_t *end;
} Input;

static inline uint8_t
input_byte(Input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

static inline uint32_t
input_number(Input *in)
{
	uint32_t	value = 0;

	for (int i = 0; i < 4; i++)
		value = value << 8 | input_byte(in);
	return value;
}

/* Up to the next zero, which is passed over. */
static inline size_t
input_text(Input *in, const char **text)
{
	const uint8_t *start = in->at;
	size_t		len;

	while (in->at < in->end && *in->at != 0)
		in->at++;
	len = in->at - start;
	if (in->at < in->end)
		in->at++;
	*text = (const char *) start;
	return len;
}

#endif							/* FUZZ_INPUT_H */
