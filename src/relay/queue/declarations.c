/*-------------------------------------------------------------------------
 *
 * declarations.c
 *		Exchanges with their types, and whether the broker has them.
 *
 * A declaration that may end the connection is asked for when nothing else is in flight,
 * so that nothing has to be sent again because of it, and so that it is known.  RabbitMQ
 * closes the connection because of a type that it does not know, which the four of AMQP
 * never are; and the oldest one that had no answer when the connection ended may be the
 * reason, as the broker takes them in order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "declarations.h"
#include "name_table.h"
#include "sizes.h"
#include "utils/memutils.h"

typedef struct DeclarationEntry
{
	char	   *name;			/* MUST BE FIRST */
	OutboxDeclaration *declaration;
} DeclarationEntry;

void
outbox_declarations_init(OutboxDeclarations *declarations, MemoryContext cxt)
{
	memset(declarations, 0, sizeof(*declarations));
	declarations->cxt = cxt;
	declarations->by_name = outbox_name_table_create(cxt, "outbox declarations",
													 sizeof(DeclarationEntry));
	declarations->connection = 1;
	dlist_init(&declarations->wanted);
	dlist_init(&declarations->wanted_again);
	dlist_init(&declarations->asked);
}

/* No other pair of exchange and type has this name. */
static char *
name_of(const char *exchange, const char *type)
{
	return psprintf("%d:%s%s", type == NULL ? -1 : (int) strlen(type),
					type == NULL ? "" : type, exchange);
}

static bool
is_standard(const char *type)
{
	return type == NULL || strcmp(type, "direct") == 0 || strcmp(type, "topic") == 0 ||
		strcmp(type, "fanout") == 0 || strcmp(type, "headers") == 0;
}

OutboxDeclaration *
outbox_declaration_acquire(OutboxDeclarations *declarations, const char *exchange,
						   const char *type)
{
	MemoryContext old;
	DeclarationEntry *entry;
	OutboxDeclaration *declaration;
	char	   *name;

	if (exchange[0] == '\0')
		return NULL;
	old = MemoryContextSwitchTo(declarations->cxt);
	name = name_of(exchange, type);
	entry = outbox_name_table_find(declarations->by_name, name);
	if (entry != NULL)
		pfree(name);
	else
	{
		declaration = palloc0(sizeof(OutboxDeclaration));
		declaration->exchange = pstrdup(exchange);
		declaration->type = type == NULL ? NULL : pstrdup(type);
		declaration->alone = !is_standard(type);
		entry = hash_search(declarations->by_name, &name, HASH_ENTER, NULL);
		entry->declaration = declaration;
	}
	MemoryContextSwitchTo(old);
	entry->declaration->users++;
	return entry->declaration;
}

/* The only writer of state; the diagram is in declarations.h. */
static void
set_state(OutboxDeclarations *declarations, OutboxDeclaration *declaration,
		  OutboxDeclarationState state)
{
	if (declaration->state == OUTBOX_DECLARATION_WANTED ||
		declaration->state == OUTBOX_DECLARATION_ASKED)
		dlist_delete(&declaration->node);
	declarations->nasked += (state == OUTBOX_DECLARATION_ASKED) -
		(declaration->state == OUTBOX_DECLARATION_ASKED);
	declaration->state = state;
	declaration->connection = declarations->connection;
	if (state == OUTBOX_DECLARATION_WANTED)
		dlist_push_tail(declaration->refused ? &declarations->wanted_again :
						&declarations->wanted, &declaration->node);
	else if (state == OUTBOX_DECLARATION_ASKED)
		dlist_push_tail(&declarations->asked, &declaration->node);
}

static void
forget(OutboxDeclarations *declarations, OutboxDeclaration *declaration)
{
	DeclarationEntry *entry;
	char	   *name;
	char	   *kept;

	set_state(declarations, declaration, OUTBOX_DECLARATION_UNKNOWN);
	name = name_of(declaration->exchange, declaration->type);
	entry = outbox_name_table_find(declarations->by_name, name);
	kept = entry->name;
	hash_search(declarations->by_name, &name, HASH_REMOVE, NULL);
	pfree(kept);
	pfree(name);
	pfree(declaration->exchange);
	if (declaration->type != NULL)
		pfree(declaration->type);
	pfree(declaration);
}

void
outbox_declaration_release(OutboxDeclarations *declarations,
						   OutboxDeclaration *declaration)
{
	if (declaration != NULL && --declaration->users == 0)
		forget(declarations, declaration);
}

bool
outbox_declaration_is_made(const OutboxDeclarations *declarations,
						   const OutboxDeclaration *declaration)
{
	return declaration == NULL ||
		(declaration->state == OUTBOX_DECLARATION_MADE &&
		 declaration->connection == declarations->connection);
}

void
outbox_declaration_want(OutboxDeclarations *declarations,
						OutboxDeclaration *declaration, OutboxMonoTime now)
{
	if (declaration->state == OUTBOX_DECLARATION_WANTED ||
		declaration->state == OUTBOX_DECLARATION_ASKED)
		return;
	declaration->wanted_at = now;
	set_state(declarations, declaration, OUTBOX_DECLARATION_WANTED);
}

static OutboxDeclaration *
first(dlist_head *list)
{
	return dlist_is_empty(list) ? NULL :
		dlist_container(OutboxDeclaration, node, dlist_head_node(list));
}

static OutboxDeclaration *
first_wanted(OutboxDeclarations *declarations)
{
	OutboxDeclaration *next = first(&declarations->wanted);

	return next != NULL ? next : first(&declarations->wanted_again);
}

bool
outbox_declarations_alone(OutboxDeclarations *declarations)
{
	OutboxDeclaration *asked = first(&declarations->asked);
	OutboxDeclaration *next = first_wanted(declarations);

	return (asked != NULL && asked->alone) || (next != NULL && next->alone);
}

OutboxDeclaration *
outbox_declarations_next(OutboxDeclarations *declarations, bool in_flight)
{
	OutboxDeclaration *next = first_wanted(declarations);

	if (outbox_declarations_alone(declarations))
		return in_flight || declarations->nasked > 0 ? NULL : next;
	return declarations->nasked >= OUTBOX_DECLARES_MAX ? NULL : next;
}

void
outbox_declaration_asked(OutboxDeclarations *declarations,
						 OutboxDeclaration *declaration)
{
	declaration->users++;
	set_state(declarations, declaration, OUTBOX_DECLARATION_ASKED);
}

bool
outbox_declarations_pending(OutboxDeclarations *declarations)
{
	return first_wanted(declarations) != NULL || declarations->nasked > 0;
}

OutboxDeclaration *
outbox_declarations_oldest(OutboxDeclarations *declarations)
{
	return first(&declarations->asked);
}

OutboxDeclaration *
outbox_declarations_answered(OutboxDeclarations *declarations, bool made)
{
	OutboxDeclaration *declaration = first(&declarations->asked);
	OutboxDeclaration *behind;

	set_state(declarations, declaration, made ? OUTBOX_DECLARATION_MADE :
			  OUTBOX_DECLARATION_UNKNOWN);
	declaration->refused = !made;
	if (made)
		declaration->alone = !is_standard(declaration->type);
	while (!made && (behind = first(&declarations->asked)) != NULL)
	{
		set_state(declarations, behind, OUTBOX_DECLARATION_WANTED);
		outbox_declaration_release(declarations, behind);
	}
	return declaration;
}

void
outbox_declaration_refused(OutboxDeclarations *declarations,
						   OutboxDeclaration *declaration)
{
	set_state(declarations, declaration, OUTBOX_DECLARATION_UNKNOWN);
}

void
outbox_declarations_connection_ended(OutboxDeclarations *declarations)
{
	OutboxDeclaration *declaration;

	declarations->connection++;
	if ((declaration = first(&declarations->asked)) != NULL)
		declaration->alone = true;
	while ((declaration = first(&declarations->asked)) != NULL)
	{
		set_state(declarations, declaration, OUTBOX_DECLARATION_UNKNOWN);
		outbox_declaration_release(declarations, declaration);
	}
	while ((declaration = first_wanted(declarations)) != NULL)
		set_state(declarations, declaration, OUTBOX_DECLARATION_UNKNOWN);
}
