/*-------------------------------------------------------------------------
 *
 * column_types.h
 *		Types of columns, for triggers that take them for granted.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_COLUMN_TYPES_H
#define OUTBOX_COLUMN_TYPES_H

#include "access/tupdesc.h"

/*
 * An ERROR (42804) unless columns 1 to n have these types, or domains over them;
 * text stands for varchar, too.  table is for the message.
 */
extern void outbox_expect_columns(TupleDesc desc, const Oid *types, int n,
								  const char *table);

/* The same for the table outbox. */
extern void outbox_expect_message_columns(TupleDesc desc, const char *table);

#endif							/* OUTBOX_COLUMN_TYPES_H */
