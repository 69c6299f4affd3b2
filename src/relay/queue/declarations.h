/*-------------------------------------------------------------------------
 *
 * declarations.h
 *		Exchanges with their types, and whether the broker has them.
 *
 * Routes that name the same exchange and type share a declaration.  It is asked for at
 * first use and once a connection:
 *
 *		UNKNOWN --want--> WANTED --asked--> ASKED --answered--> MADE
 *		ASKED --refused--> UNKNOWN, and those asked behind it --> WANTED
 *		any --the connection has ended--> UNKNOWN
 *
 * The broker answers in the order of the questions.  Those that it has refused are asked
 * after all others, which have to be asked again if it refuses them once more.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_DECLARATIONS_H
#define OUTBOX_DECLARATIONS_H

#include "clock.h"
#include "lib/ilist.h"
#include "utils/hsearch.h"

typedef enum OutboxDeclarationState
{
	OUTBOX_DECLARATION_UNKNOWN,
	OUTBOX_DECLARATION_WANTED,
	OUTBOX_DECLARATION_ASKED,
	OUTBOX_DECLARATION_MADE
} OutboxDeclarationState;

typedef struct OutboxDeclaration
{
	char	   *exchange;
	char	   *type;			/* NULL: it has to exist */
	int			users;			/* routes, and a question under way */
	OutboxDeclarationState state;
	uint32		connection;		/* what state says is of this one */
	bool		alone;			/* may end the connection */
	bool		refused;		/* the last time */
	OutboxMonoTime wanted_at;
	dlist_node	node;			/* WANTED or ASKED */
} OutboxDeclaration;

typedef struct OutboxDeclarations
{
	MemoryContext cxt;
	HTAB	   *by_name;		/* of type and exchange */
	uint32		connection;
	dlist_head	wanted;
	dlist_head	wanted_again;	/* were refused: after those */
	dlist_head	asked;			/* the oldest first */
	int			nasked;
} OutboxDeclarations;

extern void outbox_declarations_init(OutboxDeclarations *declarations,
									 MemoryContext cxt);

/* For a route, which releases it again; NULL: the default exchange is always there. */
extern OutboxDeclaration *outbox_declaration_acquire(OutboxDeclarations *declarations,
													 const char *exchange,
													 const char *type);
extern void outbox_declaration_release(OutboxDeclarations *declarations,
									   OutboxDeclaration *declaration);

/* Is the exchange known to be there? */
extern bool outbox_declaration_is_made(const OutboxDeclarations *declarations,
									   const OutboxDeclaration *declaration);
extern void outbox_declaration_want(OutboxDeclarations *declarations,
									OutboxDeclaration *declaration,
									OutboxMonoTime now);

/* The next one to ask for; NULL: none, or not before others were answered. */
extern OutboxDeclaration *outbox_declarations_next(OutboxDeclarations *declarations,
												   bool in_flight);
extern void outbox_declaration_asked(OutboxDeclarations *declarations,
									 OutboxDeclaration *declaration);

/* Must nothing be in flight beside the one that is asked, or is next? */
extern bool outbox_declarations_alone(OutboxDeclarations *declarations);
extern bool outbox_declarations_pending(OutboxDeclarations *declarations);

/* The oldest that was asked; NULL: none. */
extern OutboxDeclaration *outbox_declarations_oldest(OutboxDeclarations *declarations);

/* The same, as it is now; to be released. */
extern OutboxDeclaration *outbox_declarations_answered(OutboxDeclarations *declarations,
													   bool made);

/* It cannot be asked. */
extern void outbox_declaration_refused(OutboxDeclarations *declarations,
									   OutboxDeclaration *declaration);
extern void outbox_declarations_connection_ended(OutboxDeclarations *declarations);

#endif							/* OUTBOX_DECLARATIONS_H */
