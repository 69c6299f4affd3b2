/*-------------------------------------------------------------------------
 *
 * printable.c
 *		Text of others, made short and printable.
 *
 * What the broker, an external relay or a producer says is untrusted: it is made
 * printable and short before it goes into a log, a view of monitoring or last_error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "printable.h"

#define SECRET_STARS	"***"

/* Those in which 0x80 to 0x9f are the C1 controls. */
static bool
is_iso_8859(int encoding)
{
	return (encoding >= PG_LATIN1 && encoding <= PG_LATIN10) ||
		(encoding >= PG_ISO_8859_5 && encoding <= PG_ISO_8859_8);
}

/*
 * How long a legal character is that starts at src and is printable in the
 * database's encoding; 0 when there is none.
 */
static int
printable_length(const unsigned char *src, size_t len, int encoding)
{
	int			clen;

	if (src[0] < 0x20 || src[0] == 0x7f)
		return 0;
	if (src[0] < 0x80)
		return 1;

	if (GetDatabaseEncoding() != encoding)
		return 0;
	if (is_iso_8859(encoding))
		return src[0] >= 0xa0 ? 1 : 0;
	/* Bytes of which the server knows nothing are shown where they are UTF-8. */
	if (encoding != PG_UTF8 && encoding != PG_SQL_ASCII)
		return Max(pg_encoding_verifymbchar(encoding, (const char *) src,
											(int) len), 0);

	/* 0xc2 0x80 to 0x9f are the C1 controls. */
	clen = pg_utf_mblen(src);
	if ((size_t) clen > len || !pg_utf8_islegal(src, clen))
		return 0;
	if (src[0] == 0xc2 && src[1] < 0xa0)
		return 0;
	return clen;
}

void
outbox_copy_printable(char *dst, size_t size, const void *src, size_t len,
					  int encoding, const char *secret)
{
	const unsigned char *from = src;
	size_t		secret_len = strlen(secret);
	size_t		used = 0;

	while (len > 0)
	{
		bool		hide = secret_len > 0 && secret_len <= len &&
			memcmp(from, secret, secret_len) == 0;
		int			clen = printable_length(from, len, encoding);
		const char *shown = hide ? SECRET_STARS :
			clen > 0 ? (const char *) from : "?";
		size_t		width = hide ? strlen(SECRET_STARS) : Max(clen, 1);
		size_t		step = hide ? secret_len : Max(clen, 1);

		if (used + width >= size)
			break;
		memcpy(dst + used, shown, width);
		used += width;
		from += step;
		len -= step;
	}
	dst[used] = '\0';
}
