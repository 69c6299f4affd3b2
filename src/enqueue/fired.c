/*-------------------------------------------------------------------------
 *
 * fired.c
 *		What fired a trigger function, checked.
 *
 * Whoever has EXECUTE on one may put it where it has no row to look at.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fired.h"

TriggerData *
outbox_fired(FunctionCallInfo fcinfo, const char *function)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by a trigger", function)));
	return (TriggerData *) fcinfo->context;
}

TriggerData *
outbox_fired_before_row(FunctionCallInfo fcinfo, const char *function)
{
	TriggerData *trigdata = outbox_fired(fcinfo, function);

	if (!TRIGGER_FIRED_BEFORE(trigdata->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigdata->tg_event) ||
		TRIGGER_FIRED_BY_DELETE(trigdata->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired BEFORE INSERT OR UPDATE FOR EACH ROW",
						function)));
	return trigdata;
}

TriggerData *
outbox_fired_after_row(FunctionCallInfo fcinfo, const char *function)
{
	TriggerData *trigdata = outbox_fired(fcinfo, function);

	if (!TRIGGER_FIRED_AFTER(trigdata->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigdata->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired AFTER INSERT, UPDATE OR DELETE FOR EACH ROW",
						function)));
	return trigdata;
}
