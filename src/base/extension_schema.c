/*-------------------------------------------------------------------------
 *
 * extension_schema.c
 *		The schema that was chosen at CREATE EXTENSION.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_extension.h"
#include "extension_schema.h"
#include "utils/fmgroids.h"

Oid
outbox_extension_schema(void)
{
	Relation	extensions = table_open(ExtensionRelationId, AccessShareLock);
	Oid			schema = InvalidOid;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum("outbox"));
	scan = systable_beginscan(extensions, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		schema = ((Form_pg_extension) GETSTRUCT(tuple))->extnamespace;
	systable_endscan(scan);
	table_close(extensions, AccessShareLock);
	return schema;
}
