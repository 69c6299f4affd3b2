/*-------------------------------------------------------------------------
 *
 * unreadable.c
 *		Rows that cannot be read, and are set aside.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "reading.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

static OutboxSetAside *
find(const OutboxUnreadable *list, const pg_uuid_t *id)
{
	for (int i = 0; i < list->n; i++)
		if (memcmp(&list->entries[i].version.row.id, id, UUID_LEN) == 0)
			return unconstify(OutboxSetAside *, &list->entries[i]);
	return NULL;
}

/* What the views show: the first ones, and how many there are. */
static void
show(const OutboxUnreadable *list)
{
	OutboxUnreadableId shown[OUTBOX_UNREADABLE_SHOWN];
	int			n = Min(list->n, OUTBOX_UNREADABLE_SHOWN);

	for (int i = 0; i < n; i++)
		shown[i] = list->entries[i].shown;
	outbox_slot_show_unreadable(shown, n, list->n);
}

static void
tell(const OutboxSetAside *entry)
{
	ereport(LOG,
			(errmsg("outbox relay has set aside message %s, which cannot be read",
					outbox_id_text(&entry->version.row.id)),
			 errdetail("Its seq is %lld: %s", (long long) entry->version.row.seq,
					   entry->shown.text),
			 errhint("See \"outbox_problems\".")));
}

bool
outbox_unreadable_set_aside(OutboxUnreadable *list, OutboxRoute *route,
							const OutboxUnreadableRow *row,
							const char *error, const char *sqlstate)
{
	OutboxSetAside *entry = find(list, &row->row.id);
	bool		known = entry != NULL;

	if (!known && list->n == OUTBOX_UNREADABLE_MAX)
		return false;
	if (!known)
	{
		entry = &list->entries[list->n++];
		memset(entry, 0, sizeof(*entry));
		entry->shown.since = GetCurrentTimestamp();
	}
	entry->version = *row;
	entry->version.row.route = NULL;	/* it is in the transaction's memory */
	entry->route = route;
	entry->asked = false;
	entry->shown.id = row->row.id;
	entry->shown.seq = row->row.seq;
	outbox_shared_copy_text(entry->shown.text, sizeof(entry->shown.text), error);
	strlcpy(entry->shown.sqlstate, sqlstate, sizeof(entry->shown.sqlstate));
	show(list);
	if (!known)
		tell(entry);
	return true;
}

static void
forget(OutboxUnreadable *list, OutboxSetAside *entry)
{
	*entry = list->entries[--list->n];
	show(list);
}

int
outbox_unreadable_ask(OutboxUnreadable *list, int64 *seqs)
{
	for (int i = 0; i < list->n; i++)
	{
		list->entries[i].asked = true;
		seqs[i] = list->entries[i].version.row.seq;
	}
	return list->n;
}

int
outbox_unreadable_check(OutboxUnreadable *list, int64 *seqs)
{
	OutboxUnreadableRow versions[OUTBOX_UNREADABLE_MAX];
	bool		same[OUTBOX_UNREADABLE_MAX];
	int			n = 0;

	if (list->n == 0)
		return 0;
	for (int i = 0; i < list->n; i++)
		versions[i] = list->entries[i].version;
	outbox_store_find_unchanged(versions, list->n, same);
	/* From the end on, as the last one takes the place of what is forgotten. */
	for (int i = list->n - 1; i >= 0; i--)
	{
		if (same[i])
			continue;
		seqs[n++] = versions[i].row.seq;
		forget(list, &list->entries[i]);
	}
	return n;
}

void
outbox_unreadable_read(OutboxUnreadable *list, const pg_uuid_t *id)
{
	OutboxSetAside *entry = find(list, id);

	if (entry != NULL)
		forget(list, entry);
}

const OutboxUnreadableRow *
outbox_unreadable_left_out(const OutboxUnreadable *list, int *n)
{
	OutboxUnreadableRow *rows = palloc(sizeof(OutboxUnreadableRow) * Max(list->n, 1));

	*n = 0;
	for (int i = 0; i < list->n; i++)
		if (!list->entries[i].asked)
		{
			rows[*n] = list->entries[i].version;
			rows[(*n)++].row.route = list->entries[i].route->name;
		}
	return rows;
}

void
outbox_unreadable_need_routes(OutboxUnreadable *list)
{
	for (int i = 0; i < list->n; i++)
		outbox_route_need(list->entries[i].route);
}

const OutboxRoute *
outbox_unreadable_route(const OutboxUnreadable *list, const pg_uuid_t *id)
{
	const OutboxSetAside *entry = find(list, id);

	return entry == NULL || entry->asked ? NULL : entry->route;
}

bool
outbox_unreadable_holds(const OutboxUnreadable *list, OutboxKeyId key_id, int64 seq)
{
	for (int i = 0; i < list->n; i++)
	{
		const OutboxSetAside *entry = &list->entries[i];

		if (!entry->asked && entry->version.row.keyed &&
			entry->version.row.key_hash == key_id.hash && entry->route == key_id.route &&
			entry->version.row.seq < seq && outbox_route_blocks(entry->route))
			return true;
	}
	return false;
}

bool
outbox_unreadable_leads_to(const OutboxUnreadable *list, int64 seq)
{
	for (int i = 0; i < list->n; i++)
		if (!list->entries[i].asked && list->entries[i].version.row.seq == seq)
			return true;
	return false;
}
