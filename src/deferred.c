/*-------------------------------------------------------------------------
 *
 * deferred.c
 *		Deferred triggers on the tables, which cannot be run for the owner.
 *
 * A deferred trigger runs at the end of the transaction, when the statement that
 * was run as the owner is over and the user is another one.  The server refuses
 * it in a security-restricted operation, but does not say which it is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_trigger.h"
#include "deferred.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

/* Is it deferred, and fired by such an event? */
static bool
defers(const Trigger *trigger, TriggerEvent event)
{
	if (!trigger->tgdeferrable || !trigger->tginitdeferred ||
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
outbox_refuse_deferred(Relation rel, TriggerEvent event)
{
	if (!InSecurityRestrictedOperation() || rel->trigdesc == NULL)
		return;
	for (int i = 0; i < rel->trigdesc->numtriggers; i++)
	{
		const Trigger *trigger = &rel->trigdesc->triggers[i];
		char	   *constraint;

		if (!defers(trigger, event))
			continue;
		constraint = OidIsValid(trigger->tgconstraint) ?
			get_constraint_name(trigger->tgconstraint) : NULL;
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("deferred trigger \"%s\" on table \"%s\" is not supported",
						constraint != NULL ? constraint : trigger->tgname,
						RelationGetRelationName(rel)),
				 errdetail("Messages are stored and settled as the owner of the table, and a trigger cannot run for it at the end of the transaction."),
				 errhint("Make the trigger or constraint INITIALLY IMMEDIATE.")));
	}
}
