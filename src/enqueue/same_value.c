/*-------------------------------------------------------------------------
 *
 * same_value.c
 *		Is a value of a row still what it was?
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "same_value.h"
#include "utils/datum.h"

/* A large value that an UPDATE leaves alone stays where it is: no need to fetch it. */
static bool
same_place(Datum one, Datum other)
{
	struct varlena *a = (struct varlena *) DatumGetPointer(one);
	struct varlena *b = (struct varlena *) DatumGetPointer(other);

	return VARATT_IS_EXTERNAL_ONDISK(a) && VARATT_IS_EXTERNAL_ONDISK(b) &&
		memcmp(a, b, VARSIZE_EXTERNAL(a)) == 0;
}

bool
outbox_same_value(Datum one, Datum other, bool byval, int16 len)
{
	return (len == -1 && same_place(one, other)) ||
		datum_image_eq(one, other, byval, len);
}
