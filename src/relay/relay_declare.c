/*-------------------------------------------------------------------------
 *
 * relay_declare.c
 *		Exchanges are declared before the first message goes to them.
 *
 * Once a connection for each exchange and type, and beside publishing: the questions go
 * out as soon as there is room for them, OUTBOX_DECLARES_MAX at once, and the messages of
 * other exchanges do not wait for the answers.  Messages whose exchange is not declared
 * within GRACE_MS make way: their route waits, as a paused one does, until the answer
 * is there.  Those that may be poison do not, for only memory knows that of them.
 *
 * A refusal closes the channel of declarations, and concerns the routes that want the
 * declaration.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "relay_internal.h"
#include "settings.h"

/* Longer than an answer takes in one data center. */
#define GRACE_MS 10

static OutboxDeclarations *
declarations_of(OutboxRelay *relay)
{
	return &relay->routes.declarations;
}

bool
outbox_relay_is_declared(OutboxRelay *relay, const OutboxRoute *route)
{
	return outbox_declaration_is_made(declarations_of(relay), route->declaration);
}

/* Nothing may be in flight beside a declaration that may end the connection. */
bool
outbox_relay_declares_alone(OutboxRelay *relay)
{
	return outbox_declarations_alone(declarations_of(relay));
}

static void
break_routes(OutboxRelay *relay, const OutboxDeclaration *declaration, int code,
			 const char *text)
{
	OutboxRoute *route;

	while ((route = outbox_routes_wanting(&relay->routes, declaration)) != NULL)
		outbox_relay_route_broken(relay, route, code, text);
}

/* OutboxLinkEvents */
void
outbox_relay_declared(void *arg, int code, const char *text)
{
	OutboxRelay *relay = arg;
	OutboxDeclaration *declaration =
		outbox_declarations_answered(declarations_of(relay), text == NULL);
	OutboxResumed resumed;

	relay->declaring.since = relay->answers.received_at;
	if (text != NULL)
		break_routes(relay, declaration, code, text);
	else
	{
		outbox_routes_declared(&relay->routes, declaration, &resumed);
		outbox_relay_resume(relay, &resumed);
	}
	outbox_declaration_release(declarations_of(relay), declaration);
	/* What has waited for it may go. */
	outbox_relay_sender_reset(relay);
}

/* Asks for what is wanted, as far as there is room. */
void
outbox_relay_declare(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxDeclarations *declarations = declarations_of(relay);
	OutboxDeclaration *next;

	while (outbox_link_state(relay->link) == OUTBOX_LINK_OPEN &&
		   (next = outbox_declarations_next(declarations,
											relay->window.outstanding > 0)) != NULL)
	{
		OutboxLinkStatus status = outbox_link_declare(relay->link, next->exchange,
													  next->type);

		if (status == OUTBOX_LINK_OK)
		{
			outbox_declaration_asked(declarations, next);
			relay->declaring.since = now;
			relay->declaring.tag = relay->window.next;
		}
		else if (status == OUTBOX_LINK_REFUSED)
		{
			outbox_declaration_refused(declarations, next);
			break_routes(relay, next, 0, outbox_link_error(relay->link)->text);
		}
		else
		{
			if (status == OUTBOX_LINK_LOST)
				outbox_relay_link_lost(relay);
			return;
		}
	}
}

static void
want_all(OutboxRelay *relay, OutboxMonoTime now)
{
	dlist_iter	iter;

	dlist_foreach(iter, &relay->queue->ready)
	{
		OutboxRoute *route = dlist_container(OutboxItem, node, iter.cur)->route;

		if (!route->wants && !outbox_relay_is_declared(relay, route))
			outbox_route_want(&relay->routes, route, now);
	}
}

/* May the message go that is next?  Those whose exchange is not declared make way for it. */
bool
outbox_relay_next_is_declared(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxItem *item;

	while ((item = outbox_queue_peek(relay->queue)) != NULL &&
		   !outbox_relay_is_declared(relay, item->route))
	{
		OutboxMonoTime until;

		if (!item->route->wants)
		{
			want_all(relay, now);
			outbox_relay_declare(relay, now);
			if (outbox_link_state(relay->link) != OUTBOX_LINK_OPEN)
				return false;
			continue;
		}
		until = relay->queue->nmaybe_poison > 0 ?
			outbox_mono_plus(now, OUTBOX_LINK_AGAIN_MS) :
			outbox_mono_plus(item->route->declaration->wanted_at, GRACE_MS);
		if (!outbox_mono_reached(until, now))
		{
			outbox_relay_send_not_before(relay, until);
			return false;
		}
		outbox_route_await(&relay->routes, item->route,
						   outbox_reader_end(&relay->reader));
		outbox_keys_invalidate_holders(&relay->reader);
	}
	return item != NULL;
}

/* error: why; NULL: we have closed it. */
void
outbox_relay_declare_ended(OutboxRelay *relay, const OutboxLinkError *error)
{
	OutboxResumed resumed;

	if (error != NULL && error->declaration)
		break_routes(relay, outbox_declarations_oldest(declarations_of(relay)),
					 error->code, error->text);
	outbox_routes_connection_ended(&relay->routes, &resumed);
	outbox_relay_resume(relay, &resumed);
}

/* When nothing goes out beside a declaration that has failed before, others wait. */
static int
patience_ms(OutboxRelay *relay)
{
	OutboxDeclaration *oldest = outbox_declarations_oldest(declarations_of(relay));
	const OutboxRoute *route = oldest->alone ?
		outbox_routes_wanting(&relay->routes, oldest) : NULL;

	return route != NULL && route->failures > 0 ?
		outbox_relay_patience_ms(relay, route) : outbox_confirm_timeout_ms;
}

/*
 * The broker has time for what was sent before, as stall.c says, and then for the
 * answer.  The text says that it is late, so that the connection has to end; NULL: no.
 */
const char *
outbox_relay_declare_late(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxDeclaring *declaring = &relay->declaring;

	if (outbox_declarations_oldest(declarations_of(relay)) == NULL)
		return NULL;
	if (outbox_link_state(relay->link) != OUTBOX_LINK_OPEN ||
		outbox_link_return_left(relay->link) != declaring->return_left ||
		(relay->window.outstanding > 0 && relay->window.oldest < declaring->tag))
		declaring->since = now;
	declaring->return_left = outbox_link_return_left(relay->link);
	if (!outbox_mono_reached(outbox_mono_plus(declaring->since, patience_ms(relay)),
							 now))
		return NULL;
	return psprintf("an exchange was not declared within %d ms", patience_ms(relay));
}

OutboxMonoTime
outbox_relay_declare_deadline(OutboxRelay *relay, OutboxMonoTime now)
{
	OutboxMonoTime deadline = OUTBOX_MONO_UNSET;

	if (outbox_declarations_oldest(declarations_of(relay)) != NULL)
		deadline = outbox_mono_plus(relay->declaring.since, patience_ms(relay));
	/* There was no room. */
	if (outbox_link_state(relay->link) == OUTBOX_LINK_OPEN &&
		outbox_declarations_next(declarations_of(relay),
								 relay->window.outstanding > 0) != NULL)
		outbox_mono_earlier(&deadline, outbox_mono_plus(now, OUTBOX_LINK_AGAIN_MS));
	return deadline;
}
