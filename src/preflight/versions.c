/*-------------------------------------------------------------------------
 *
 * versions.c
 *		outbox_library_versions(): what the library is made of, and runs with.
 *
 * All of it is that of the session's process.  Where the library is preloaded its
 * libraries were loaded by the postmaster, so that the relay has the same ones.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "broker.h"
#include "fmgr.h"
#include "funcapi.h"
#include "own_version.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(outbox_library_versions);

#define VERSIONS_COLS 3

/* A row; built_with NULL: there is nothing to compare with. */
static void
put_version(FunctionCallInfo fcinfo, const char *component,
			const char *version, const char *built_with)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum		values[VERSIONS_COLS] = {0};
	bool		nulls[VERSIONS_COLS] = {false};

	values[0] = CStringGetTextDatum(component);
	values[1] = CStringGetTextDatum(version);
	if (built_with != NULL)
		values[2] = CStringGetTextDatum(built_with);
	else
		nulls[2] = true;
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
outbox_library_versions(PG_FUNCTION_ARGS)
{
	OutboxLinkVersions link;

	InitMaterializedSRF(fcinfo, 0);
	outbox_link_versions(&link);
	put_version(fcinfo, "library", outbox_library_version(), NULL);
	put_version(fcinfo, "PostgreSQL",
				GetConfigOption("server_version", false, false), PG_VERSION);
	put_version(fcinfo, "librabbitmq", link.librabbitmq,
				link.librabbitmq_built);
	put_version(fcinfo, "OpenSSL", link.openssl, link.openssl_built);
	return (Datum) 0;
}
