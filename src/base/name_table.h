/*-------------------------------------------------------------------------
 *
 * name_table.h
 *		Hash tables of the server whose key is a text of any length.
 *
 * An entry begins with a pointer to its name, which has to last as long as the entry.
 * hash_search() takes the address of such a pointer.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_NAME_TABLE_H
#define OUTBOX_NAME_TABLE_H

#include "utils/hsearch.h"

extern HTAB *outbox_name_table_create(MemoryContext cxt, const char *title,
									  Size entrysize);

/* The entry of that name; NULL: there is none. */
extern void *outbox_name_table_find(HTAB *table, const char *name);

#endif							/* OUTBOX_NAME_TABLE_H */
