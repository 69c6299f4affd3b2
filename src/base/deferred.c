/*-------------------------------------------------------------------------
 *
 * deferred.c
 *		Deferred triggers on the tables, which cannot be run for the owner.
 *
 * A deferred trigger runs at the end of the transaction, when the statement that
 * was run as the owner is over.  Until PostgreSQL 17 the user is another one
 * then; from 18 on it is the owner, with the search_path of the caller.  The server
 * refuses it in a security-restricted operation, but does not say which it is;
 * the functions for operators are none, and what is deferrable there may have
 * been deferred by the caller (SET CONSTRAINTS).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_trigger.h"
#include "deferred.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

/* Is it deferred, or could it be, and fired by such an event? */
static bool
defers(const Trigger *trigger, TriggerEvent event, bool restricted)
{
	/* The server's own run nobody's code. */
	if (!restricted && trigger->tgisinternal)
		return false;
	if (!trigger->tgdeferrable || (restricted && !trigger->tginitdeferred) ||
		trigger->tgenabled == TRIGGER_DISABLED ||
		trigger->tgenabled == TRIGGER_FIRES_ON_REPLICA)
		return false;
	/* Queued only for rows that would break the constraint. */
	if (trigger->tgfoid == F_UNIQUE_KEY_RECHECK)
		return false;
	return TRIGGER_FIRED_BY_INSERT(event) ? TRIGGER_FOR_INSERT(trigger->tgtype) :
		TRIGGER_FIRED_BY_DELETE(event) ? TRIGGER_FOR_DELETE(trigger->tgtype) :
		TRIGGER_FOR_UPDATE(trigger->tgtype);
}

void
outbox_refuse_deferred(Relation rel, TriggerEvent event, bool acting)
{
	bool		restricted = InSecurityRestrictedOperation();

	if ((!restricted && !acting) || rel->trigdesc == NULL)
		return;
	for (int i = 0; i < rel->trigdesc->numtriggers; i++)
	{
		const Trigger *trigger = &rel->trigdesc->triggers[i];
		char	   *constraint;

		if (!defers(trigger, event, restricted))
			continue;
		constraint = OidIsValid(trigger->tgconstraint) ?
			get_constraint_name(trigger->tgconstraint) : NULL;
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("deferred trigger \"%s\" on table \"%s\" is not supported",
						constraint != NULL ? constraint : trigger->tgname,
						RelationGetRelationName(rel)),
				 errdetail("Messages are stored and settled as the owner of the table, and a trigger cannot run for it at the end of the transaction."),
				 restricted ? errhint("Make the trigger or constraint INITIALLY IMMEDIATE.") :
				 errhint("Make the trigger NOT DEFERRABLE.")));
	}
}
