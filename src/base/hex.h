/*-------------------------------------------------------------------------
 *
 * hex.h
 *		Hexadecimal digits (plain C).
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_HEX_H
#define OUTBOX_HEX_H

/* What the digit is worth, -1 if it is none. */
static inline int
outbox_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

#endif							/* OUTBOX_HEX_H */
