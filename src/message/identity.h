/*-------------------------------------------------------------------------
 *
 * identity.h
 *		Whose messages are these?  What tells a copy from the original.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_IDENTITY_H
#define OUTBOX_IDENTITY_H

/* As long as nobody adopts them. */
typedef enum OutboxCopy
{
	OUTBOX_COPY_NONE,			/* ours */
	OUTBOX_COPY_DATABASE,		/* those of another database */
	OUTBOX_COPY_ENVIRONMENT,	/* those of a server in another environment */
	OUTBOX_COPY_RESTORED,		/* those of this server's past */
	OUTBOX_COPY_UNKNOWN			/* its name is where a copy has it, too */
} OutboxCopy;

/* Whose relay may publish the messages of this database, as outbox_control says. */
typedef struct OutboxIdentity
{
	int64		origin;			/* that database's; 0: nobody's */
	int			nadopted;
	int64	   *adopted;		/* adopted_origins */
	char	   *environment;
	int64		timeline;
} OutboxIdentity;

/*
 * Is this the one that is recorded?  foreign: a message was met that it does not
 * accept.  unusable: why the name of the environment here cannot be believed, or
 * NULL.
 */
extern OutboxCopy outbox_identity_compare(const OutboxIdentity *recorded,
										  bool foreign, const char *unusable);

/*
 * The name that this server's relay of this database has at the broker, the same on
 * a copy that publishes the same messages.
 */
#define OUTBOX_IDENTITY_NAME_SIZE	64
extern void outbox_identity_name(char *name);

/* May messages that were enqueued there be published from here? */
extern bool outbox_identity_accepts(const OutboxIdentity *recorded,
									int64 origin);

/*
 * Where a message was enqueued.  Rows reach a database without a sign that they are copies: a restore loads them before
 * the control row, logical replication brings them one by one.  So each row has its
 * origin, and the relay looks at each.
 */

/* A database of a server, by its system identifier: a hash, as each row has it. */
extern int64 outbox_origin_of(uint64 server, Oid database);

/* This database, the default of outbox.origin. */
extern int64 outbox_own_origin(void);

#endif							/* OUTBOX_IDENTITY_H */
