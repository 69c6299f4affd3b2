/*-------------------------------------------------------------------------
 *
 * enqueue.h
 *		How functions store the messages that they make.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ENQUEUE_H
#define OUTBOX_ENQUEUE_H

#include "fmgr.h"
#include "utils/relcache.h"

/* The table "outbox" of the extension in that schema; an ERROR (42P01): there is none. */
extern Oid	outbox_find_table(Oid schema);

/* The same with the lock of an INSERT; an ERROR (25006) when nothing may be written. */
extern Relation outbox_open_table(Oid schema);

/* May role use the route that is in values?  An ERROR (42501, 42704) if not. */
extern void outbox_enqueue_check_route(Relation rel, Oid role,
									   const Datum *values, const bool *isnull);

/*
 * Properties with content_type, unless they have one; *isnull is that of the
 * properties, and of the result.  NULL and the default type add nothing.
 */
extern Datum outbox_add_content_type(const text *type, Datum properties,
									 bool *isnull);

/*
 * What comes before the INSERT of a message: role must be allowed to use its route
 * (42501), its key is locked where outbox.strict_keys says so, and where the id is
 * NULL one is made, and put there.  values and isnull are those of the columns
 * (columns.h) that an application sets.
 */
extern void outbox_enqueue_prepare(Relation rel, Oid role, Datum *values,
								   bool *isnull);

/*
 * That, and the INSERT, as outbox_enqueue() does.  Returns false when a trigger has
 * left the row out.
 */
extern bool outbox_enqueue_row(Relation rel, Oid role, Datum *values,
							   bool *isnull);

/*
 * What an input function makes of a string; its errors name the argument.
 */
extern Datum outbox_enqueue_convert(const char *name, PGFunction input,
									text *value);

#endif							/* OUTBOX_ENQUEUE_H */
