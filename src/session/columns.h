/*-------------------------------------------------------------------------
 *
 * columns.h
 *		Columns of a row, for triggers that take their types for granted.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_COLUMNS_H
#define OUTBOX_COLUMNS_H

#include "access/tupdesc.h"

/*
 * An ERROR (42804) unless columns 1 to n have these types, or domains over them;
 * text stands for varchar, too.  table is for the message.
 */
extern void outbox_expect_columns(TupleDesc desc, const Oid *types, int n,
								  const char *table);

#endif							/* OUTBOX_COLUMNS_H */
