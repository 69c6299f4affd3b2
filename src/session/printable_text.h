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

#endif							/* OUTBOX_PRINTABLE_TEXT_H */
