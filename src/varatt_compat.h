/*-------------------------------------------------------------------------
 *
 * varatt_compat.h
 *		The varlena macros, which PostgreSQL 16 moved to a header of their own.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_VARATT_COMPAT_H
#define OUTBOX_VARATT_COMPAT_H

#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#endif							/* OUTBOX_VARATT_COMPAT_H */
