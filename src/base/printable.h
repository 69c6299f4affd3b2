/*-------------------------------------------------------------------------
 *
 * printable.h
 *		Text of others, made short and printable.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_PRINTABLE_H
#define OUTBOX_PRINTABLE_H

/* Bytes of an error or a name that is shown, with the terminating zero. */
#define OUTBOX_PRINTABLE_SIZE	512

/*
 * Copies what fits, with '?' in place of every byte that is not printable in the
 * database's encoding, and stars in place of the secret, which may be "".  The
 * source is in UTF-8 or in the database's encoding.
 */
extern void outbox_copy_printable(char *dst, size_t size, const void *src,
								  size_t len, int encoding, const char *secret);

/* '?' in place of every byte that is not ASCII. */
static inline void
outbox_mask_bytes(char *text)
{
	for (char *p = text; *p; p++)
		if ((unsigned char) *p >= 0x80)
			*p = '?';
}

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

#endif							/* OUTBOX_PRINTABLE_H */
