/*-------------------------------------------------------------------------
 *
 * spring.c
 *		Messages for Spring AMQP: headers and no more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "format_def.h"

/*
 * The class that Spring's converters of JSON make of it; of a collection what is in
 * it, and of a map its keys.
 */
static const char *const headers[] = {
	"__TypeId__", "__ContentTypeId__", "__KeyTypeId__"
};

static const char *
format_message(const void *options, const OutboxFormatMessage *message,
			   const OutboxFormatType *type, OutboxFormatted *out)
{
	for (int i = 0; i < Min(type->nnames, (int) lengthof(headers)); i++)
		outbox_format_add_header(out, headers[i], type->names[i]);
	if (message->payload != NULL && message->content_encoding == NULL)
		out->content_encoding = "UTF-8";
	return NULL;
}

const OutboxFormatDef outbox_format_spring = {
	.name = "spring",
	.max_names = lengthof(headers),
	.message = format_message
};
