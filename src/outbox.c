/*-------------------------------------------------------------------------
 *
 * outbox.c
 *		Entry point of the library.
 *
 * Preloaded, the library brings the relay.  Loaded by a function call it is
 * enough for enqueue, so that CREATE EXTENSION, a restore, and pg_upgrade work
 * in a server that was not configured for it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "admin.h"
#include "capture.h"
#include "debezium.h"
#include "enqueue.h"
#include "external.h"
#include "fmgr.h"
#include "launcher.h"
#include "miscadmin.h"
#include "route.h"
#include "settings.h"
#include "shared.h"

PG_MODULE_MAGIC;

extern void _PG_init(void);

/* Those that outbox_route.relay may name. */
static const OutboxOutlet *const outlets[] = {
	&outbox_internal_outlet,
	&outbox_external_outlet,
	&outbox_debezium_outlet,
};

void
_PG_init(void)
{
	outbox_outlets = outlets;
	outbox_noutlets = lengthof(outlets);
	outbox_owner_init();
	outbox_capture_init();
	outbox_settings_define();
	if (!process_shared_preload_libraries_in_progress)
		return;
	/* Neither of pg_upgrade's servers may publish. */
	if (IsBinaryUpgrade)
		return;
	outbox_shared_request();
	outbox_ddl_install_hook();
	outbox_launcher_register();
}
