/*-------------------------------------------------------------------------
 *
 * deferred.h
 *		Deferred triggers on the tables, which cannot be run for the owner.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_DEFERRED_H
#define OUTBOX_DEFERRED_H

#include "commands/trigger.h"
#include "utils/rel.h"

/*
 * Where a statement runs as the owner for somebody else, in a security-restricted
 * operation or because the caller knows it (acting): an ERROR (0A000) that names
 * the trigger or constraint of rel which such an event defers.
 */
extern void outbox_refuse_deferred(Relation rel, TriggerEvent event,
								   bool acting);

#endif							/* OUTBOX_DEFERRED_H */
