/*-------------------------------------------------------------------------
 *
 * key_hash.c
 *		The hash of a key, shared by enqueue and the relay.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "compat.h"
#include "key_hash.h"

static uint64
hash_text(const text *value, uint64 seed)
{
	return hash_bytes_extended((const unsigned char *) VARDATA_ANY(value),
							   (int) VARSIZE_ANY_EXHDR(value), seed);
}

int64
outbox_hash_key(const text *route, const text *aggregate_type,
				const text *aggregate_id)
{
	uint64		seed = hash_text(route, 0);

	/* NULL and the empty string are two types. */
	if (aggregate_type != NULL)
		seed = hash_text(aggregate_type, seed) + 1;
	return (int64) hash_text(aggregate_id, seed);
}
