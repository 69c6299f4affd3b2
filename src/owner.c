/*-------------------------------------------------------------------------
 *
 * owner.c
 *		Acting as the owner of the tables, for somebody who has no right on them.
 *
 * What an administrator adds to the tables (triggers, checks, defaults,
 * expressions of indexes, policies) runs as that owner then, who often is a
 * superuser, while the session is the caller's.  So the caller must have no say
 * in what runs: not by search_path or a temporary schema, where an unqualified
 * name of such a function could find his objects, and not by what the restricted
 * operation forbids (SET ROLE, temporary objects, deferred triggers that would
 * run later with another user).  VACUUM and REINDEX do the same.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "owner.h"
#include "utils/guc.h"

void
outbox_act_begin(OutboxActing *acting, Oid owner, bool looking)
{
	GetUserIdAndSecContext(&acting->userid, &acting->context);
	SetUserIdAndSecContext(owner,
						   acting->context | SECURITY_RESTRICTED_OPERATION |
						   (looking ? SECURITY_NOFORCE_RLS : 0));
	acting->nestlevel = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

void
outbox_act_end(const OutboxActing *acting)
{
	AtEOXact_GUC(false, acting->nestlevel);
	SetUserIdAndSecContext(acting->userid, acting->context);
}
