/*-------------------------------------------------------------------------
 *
 * link_config.h
 *		Where the broker is, and how to connect to it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_LINK_CONFIG_H
#define OUTBOX_LINK_CONFIG_H

#include "uri.h"

typedef struct OutboxLinkConfig OutboxLinkConfig;

typedef enum OutboxLinkConfigNews
{
	OUTBOX_LINK_CONFIG_SAME,	/* or cannot be used */
	OUTBOX_LINK_CONFIG_FIRST,
	OUTBOX_LINK_CONFIG_CHANGED
} OutboxLinkConfigNews;

extern OutboxLinkConfig *outbox_link_config_create(MemoryContext cxt);

/*
 * Reads where the broker is, and looks once at the password file so that an
 * unreadable one shows as a config error and not as a broker that is down.
 */
extern OutboxLinkConfigNews outbox_link_config_load(OutboxLinkConfig *config);

extern bool outbox_link_config_usable(const OutboxLinkConfig *config);
/* What could be used last; until the next load. */
extern const OutboxUri *outbox_link_config_uri(const OutboxLinkConfig *config);

#endif							/* OUTBOX_LINK_CONFIG_H */
