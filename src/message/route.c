/*-------------------------------------------------------------------------
 *
 * route.c
 *		Routes: the template of the routing key, and outlets.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "route.h"

/* The workers. */
const OutboxOutlet outbox_internal_outlet = {.name = "internal"};

const OutboxOutlet *const *outbox_outlets = NULL;
int			outbox_noutlets = 0;
bool		outbox_is_relay = false;

const OutboxOutlet *
outbox_outlet_find(const char *name)
{
	for (int i = 0; name != NULL && i < outbox_noutlets; i++)
		if (strcmp(outbox_outlets[i]->name, name) == 0)
			return outbox_outlets[i];
	return NULL;
}

bool
outbox_outlet_releases(void)
{
	for (int i = 0; i < outbox_noutlets; i++)
		if (outbox_outlets[i]->releases != NULL && outbox_outlets[i]->releases())
			return true;
	return false;
}

static const char *const placeholder_names[] = {
	"{event_type}", "{aggregate_type}", "{aggregate_id}"
};

/* Which placeholder text begins with, or -1. */
static int
placeholder_at(const char *text)
{
	for (int i = 0; i < (int) lengthof(placeholder_names); i++)
		if (strncmp(text, placeholder_names[i],
					strlen(placeholder_names[i])) == 0)
			return i;
	return -1;
}

static size_t
append(char *buf, size_t size, size_t used, const char *text, size_t len)
{
	if (used < size)
		memcpy(buf + used, text, Min(len, size - used));
	return used + len;
}

size_t
outbox_route_render(const char *template, const char *event_type,
					const char *aggregate_type, const char *aggregate_id,
					char *buf, size_t size)
{
	const char *values[] = {event_type, aggregate_type, aggregate_id};
	size_t		used = 0;
	const char *p = template;

	while (*p)
	{
		int			which = *p == '{' ? placeholder_at(p) : -1;

		if (which < 0)
		{
			used = append(buf, size, used, p, 1);
			p++;
			continue;
		}
		if (values[which] != NULL)
			used = append(buf, size, used, values[which],
						  strlen(values[which]));
		p += strlen(placeholder_names[which]);
	}
	buf[Min(used, size - 1)] = '\0';
	return used;
}

char *
outbox_route_rendered(const char *template, const char *event_type,
					  const char *aggregate_type, const char *aggregate_id)
{
	char		one[1];
	size_t		len = outbox_route_render(template, event_type, aggregate_type,
										  aggregate_id, one, sizeof(one));
	char	   *text = palloc(len + 1);

	(void) outbox_route_render(template, event_type, aggregate_type, aggregate_id,
							   text, len + 1);
	return text;
}

const char *
outbox_route_template_error(const char *template)
{
	for (const char *p = template; *p; p++)
	{
		int			which;

		if (*p == '}')
			return "A closing brace stands alone.";
		if (*p != '{')
			continue;
		which = placeholder_at(p);
		if (which < 0)
			return "Only {event_type}, {aggregate_type} and {aggregate_id} may stand in braces.";
		p += strlen(placeholder_names[which]) - 1;
	}
	return NULL;
}
