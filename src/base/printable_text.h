/*-------------------------------------------------------------------------
 *
 * printable_text.h
 *		Text of the database, made short and printable.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_PRINTABLE_TEXT_H
#define OUTBOX_PRINTABLE_TEXT_H

/* Cut to what is shown of errors and names. */
extern char *outbox_printable_string(const char *str, size_t len);

/*
 * The same of a value of type text: only its beginning is read from its TOAST table, with
 * a whole last character.
 */
extern char *outbox_printable_text(Datum value);

/*
 * Such text as UTF-8, with '?' for all that is not ASCII if some of it has no form in
 * that.  In a database of UTF-8 or of bytes, UTF-8 is what is printable.
 */
extern char *outbox_printable_utf8(char *text);

#endif							/* OUTBOX_PRINTABLE_TEXT_H */
