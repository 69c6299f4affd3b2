/*-------------------------------------------------------------------------
 *
 * format_text.h
 *		What the texts of a format may be.
 *
 * Plain C over UTF-8, so that test/unit can drive it alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_FORMAT_TEXT_H
#define OUTBOX_FORMAT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * A String of CloudEvents 1.0: no control characters (U+0000 to U+001F, U+007F to
 * U+009F) and no noncharacters.
 */
extern bool outbox_is_attribute_text(const char *utf8);

/* A URI-reference of RFC 3986, section 4.1, that is not empty. */
extern bool outbox_is_uri_reference(const char *text);

/* An absolute URI, section 4.3: with a scheme and without a fragment. */
extern bool outbox_is_absolute_uri(const char *text);

/* A media type of RFC 2046: type/subtype, perhaps with parameters. */
extern bool outbox_is_media_type(const char *text);

/* Is it one of JSON: subtype json, or one that ends in +json? */
extern bool outbox_is_json_media_type(const char *text);

/* A UUID in its usual form, of any case. */
extern bool outbox_is_uuid(const char *text);

/* Bytes of base64 that so many bytes make, with padding. */
extern size_t outbox_base64_size(size_t len);

/* Writes them to out; no terminator. */
extern void outbox_base64(const char *bytes, size_t len, char *out);

#endif							/* OUTBOX_FORMAT_TEXT_H */
