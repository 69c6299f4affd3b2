/*-------------------------------------------------------------------------
 *
 * key.c
 *		The hash of a key, shared by enqueue and the relay.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "compat.h"
#include "key.h"

int64
outbox_hash_key(const text *aggregate_type, const text *aggregate_id)
{
	uint64		seed = 0;

	if (aggregate_type != NULL)
		seed = hash_bytes_extended((const unsigned char *) VARDATA_ANY(aggregate_type),
								   (int) VARSIZE_ANY_EXHDR(aggregate_type), 1);
	return (int64) hash_bytes_extended((const unsigned char *) VARDATA_ANY(aggregate_id),
									   (int) VARSIZE_ANY_EXHDR(aggregate_id),
									   seed);
}
