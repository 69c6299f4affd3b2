/*-------------------------------------------------------------------------
 *
 * key_hash.h
 *		The hash of a key.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_KEY_HASH_H
#define OUTBOX_KEY_HASH_H

/*
 * A key is (route, aggregate_type, aggregate_id).  By this hash keys are divided
 * among workers and locked by outbox.strict_keys; the SQL function
 * outbox_key_hash() gives the same.  aggregate_type may be NULL.
 */
extern int64 outbox_hash_key(const text *route, const text *aggregate_type,
							 const text *aggregate_id);

/* qsort() and bsearch(), for structs that begin with a hash and for hashes. */
static inline int
outbox_compare_hashes(const void *a, const void *b)
{
	int64		left = *(const int64 *) a;
	int64		right = *(const int64 *) b;

	return left < right ? -1 : left > right;
}

#endif							/* OUTBOX_KEY_HASH_H */
