/*-------------------------------------------------------------------------
 *
 * act_as_owner.h
 *		Acting as the owner of the tables, for somebody who has no right on them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_ACT_AS_OWNER_H
#define OUTBOX_ACT_AS_OWNER_H

/* Whom to be again. */
typedef struct OutboxActing
{
	Oid			userid;
	int			context;
	int			nestlevel;
} OutboxActing;

/*
 * From begin to end the current user is owner, in a security-restricted
 * operation, and names are looked up in pg_catalog only.  After an ERROR the end
 * of the (sub)transaction undoes both.
 *
 * looking: only to find out what is there, as a foreign key does.  Then policies
 * do not apply even where the owner has forced them on himself: a row that they
 * hide is not one that does not exist.
 */
extern void outbox_act_begin(OutboxActing *acting, Oid owner, bool looking);
extern void outbox_act_end(const OutboxActing *acting);

/* Does a statement run as the owner for somebody else, also by a function in SQL? */
extern bool outbox_acting(void);

/* The setting outbox.as_owner, and what is refused while it is on. */
extern void outbox_owner_init(void);

#endif							/* OUTBOX_ACT_AS_OWNER_H */
