/*-------------------------------------------------------------------------
 *
 * doc.h
 *		JSON documents that an input draws.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FUZZ_DOC_H
#define FUZZ_DOC_H

#include "input.h"
#include "utils/jsonb.h"

#define DOC_DEPTH	12			/* of what is drawn */
#define DOC_MEMBERS 8

typedef struct Doc
{
	char		kind;			/* n, b, s, d(igits), a, o */
	bool		value;			/* of b */
	char	   *text;			/* of s and d */
	size_t		len;
	int			count;			/* of a and o */
	struct Doc *members[DOC_MEMBERS];
	char	   *keys[DOC_MEMBERS];
	size_t		key_lens[DOC_MEMBERS];
} Doc;

/* Keys that mean something to the target; others are random. */
extern const char *const *doc_names;
extern int	doc_nnames;

extern char *draw_text(Input *in, size_t *len);
extern char *draw_number(Input *in);
extern Doc *draw_node(Input *in, int depth);
extern Doc *draw_object(Input *in);
extern Jsonb *jsonb_of(const Doc *node);

#endif							/* FUZZ_DOC_H */
