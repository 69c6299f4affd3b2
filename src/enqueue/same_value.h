/*-------------------------------------------------------------------------
 *
 * same_value.h
 *		Is a value of a row still what it was?
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_SAME_VALUE_H
#define OUTBOX_SAME_VALUE_H

/* Compares bytes, of two values that are not null; 1.0 and 1.00 are two. */
extern bool outbox_same_value(Datum one, Datum other, bool byval, int16 len);

#endif							/* OUTBOX_SAME_VALUE_H */
