/*-------------------------------------------------------------------------
 *
 * outlet.c
 *		Outlets: who publishes the messages of a route.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "outlet.h"

/* The workers. */
const OutboxOutlet outbox_internal_outlet = {.name = "internal"};

const OutboxOutlet *const *outbox_outlets = NULL;
int			outbox_noutlets = 0;
bool		outbox_is_relay = false;

const OutboxOutlet *
outbox_outlet_find(const char *name)
{
	for (int i = 0; name != NULL && i < outbox_noutlets; i++)
		if (strcmp(outbox_outlets[i]->name, name) == 0)
			return outbox_outlets[i];
	return NULL;
}

bool
outbox_outlet_releases(void)
{
	for (int i = 0; i < outbox_noutlets; i++)
		if (outbox_outlets[i]->releases != NULL && outbox_outlets[i]->releases())
			return true;
	return false;
}
