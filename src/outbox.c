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
#include "fmgr.h"
#include "launcher.h"
#include "miscadmin.h"
#include "owner.h"
#include "settings.h"
#include "shared.h"

PG_MODULE_MAGIC;

extern void _PG_init(void);

void
_PG_init(void)
{
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
