/*-------------------------------------------------------------------------
 *
 * printable_text.h
 *		printable.h for values of type text.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_PRINTABLE_TEXT_H
#define OUTBOX_PRINTABLE_TEXT_H

/* A text cut to what is shown of errors and names, and made printable. */
extern Datum outbox_printable_text(Datum value);

/* Text of the database as UTF-8, with '?' for all that is not ASCII if some of it has no form in that. */
extern char *outbox_shown_utf8(const char *text);

#endif							/* OUTBOX_PRINTABLE_TEXT_H */
