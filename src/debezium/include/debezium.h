/*-------------------------------------------------------------------------
 *
 * debezium.h
 *		Messages of routes with relay = 'cdc', which are read out of the log.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_DEBEZIUM_H
#define OUTBOX_DEBEZIUM_H

#include "route.h"

extern const OutboxOutlet outbox_debezium_outlet;

#endif							/* OUTBOX_DEBEZIUM_H */
