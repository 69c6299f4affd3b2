/*-------------------------------------------------------------------------
 *
 * external.c
 *		The outlet 'external': what outbox_claim() needs of the relay's own rules.
 *
 * A claim is SQL, in the installation script.  What it shares with the workers it asks
 * of the same code here, so that both agree on what a copy is and what a template says.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "external.h"
#include "fmgr.h"
#include "identity.h"
#include "route.h"
#include "settings.h"
#include "utils/builtins.h"

const OutboxOutlet outbox_external_outlet = {.name = "external", .excluded = true};

PG_FUNCTION_INFO_V1(outbox_is_original);
PG_FUNCTION_INFO_V1(outbox_render_key);

/*
 * Is what the control row records (server, database, environment, timeline) this
 * database?  Adopted origins are for the caller, who has the rows.
 */
Datum
outbox_is_original(PG_FUNCTION_ARGS)
{
	OutboxIdentity recorded = {0};

	recorded.origin = outbox_origin_of((uint64) PG_GETARG_INT64(0),
									   PG_GETARG_OID(1));
	recorded.environment = text_to_cstring(PG_GETARG_TEXT_PP(2));
	recorded.timeline = PG_GETARG_INT64(3);
	PG_RETURN_BOOL(outbox_identity_compare(&recorded, false,
										   outbox_environment_unusable()) ==
				   OUTBOX_COPY_NONE);
}

/*
 * A template with the event_type, aggregate_type and aggregate_id of a message, in
 * full: AMQP's limit is one of UTF-8, in which a key may be shorter than here, and
 * none of an external relay's.  Half a character would be no text.
 */
Datum
outbox_render_key(PG_FUNCTION_ARGS)
{
	char	   *parts[4];

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		PG_RETURN_NULL();
	for (int i = 0; i < 4; i++)
		parts[i] = PG_ARGISNULL(i) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(i));
	PG_RETURN_TEXT_P(cstring_to_text(outbox_route_rendered(parts[0], parts[1],
														parts[2], parts[3])));
}
