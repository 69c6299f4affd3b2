/*-------------------------------------------------------------------------
 *
 * fired.h
 *		What fired a trigger function, checked.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_FIRED_H
#define OUTBOX_FIRED_H

#include "commands/trigger.h"
#include "fmgr.h"

/* An ERROR (39P01) that names the function unless a trigger has fired it ... */
extern TriggerData *outbox_fired(FunctionCallInfo fcinfo, const char *function);
/* ... which is BEFORE INSERT OR UPDATE FOR EACH ROW ... */
extern TriggerData *outbox_fired_before_row(FunctionCallInfo fcinfo,
											const char *function);
/* ... or AFTER INSERT, UPDATE OR DELETE FOR EACH ROW. */
extern TriggerData *outbox_fired_after_row(FunctionCallInfo fcinfo,
										   const char *function);

#endif							/* OUTBOX_FIRED_H */
