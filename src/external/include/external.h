/*-------------------------------------------------------------------------
 *
 * external.h
 *		External relays: programs that publish the messages of a route themselves.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_EXTERNAL_H
#define OUTBOX_EXTERNAL_H

#include "route.h"

extern const OutboxOutlet outbox_external_outlet;

#endif							/* OUTBOX_EXTERNAL_H */
