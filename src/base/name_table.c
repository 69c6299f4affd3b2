/*-------------------------------------------------------------------------
 *
 * name_table.c
 *		Hash tables of the server whose key is a text of any length.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "name_table.h"

static const char *
name_of(const void *key)
{
	return *(const char *const *) key;
}

/* HashValueFunc */
static uint32
hash_name(const void *key, Size keysize)
{
	const char *name = name_of(key);

	(void) keysize;
	return (uint32) hash_bytes_extended((const unsigned char *) name,
										(int) strlen(name), 0);
}

/* HashCompareFunc */
static int
compare_names(const void *a, const void *b, Size keysize)
{
	(void) keysize;
	return strcmp(name_of(a), name_of(b));
}

HTAB *
outbox_name_table_create(MemoryContext cxt, const char *title, Size entrysize)
{
	HASHCTL		ctl;

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(char *);
	ctl.entrysize = entrysize;
	ctl.hash = hash_name;
	ctl.match = compare_names;
	ctl.hcxt = cxt;
	return hash_create(title, 64, &ctl,
					   HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);
}

void *
outbox_name_table_find(HTAB *table, const char *name)
{
	return hash_search(table, &name, HASH_FIND, NULL);
}
