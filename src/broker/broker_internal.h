/*-------------------------------------------------------------------------
 *
 * broker_internal.h
 *		What the broker_*.c files share; nobody else includes this.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_BROKER_INTERNAL_H
#define OUTBOX_BROKER_INTERNAL_H

/* They moved to <rabbitmq-c/...> in 0.12, where the old names warn. */
#if __has_include(<rabbitmq-c/amqp.h>)
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/ssl_socket.h>
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#endif

#include <openssl/ossl_typ.h>

#include "amqp_limits.h"
#include "broker.h"
#include "broker_reason.h"
#include "lib/stringinfo.h"
#include "utils/numeric.h"
#include "wait_event.h"

/* How long connecting may take. */
#define OUTBOX_CONNECT_MS 3000	/* for TCP, and for TLS on top of it */
#define OUTBOX_NEXT_ADDRESS_MS 2000 /* for TCP, when there are other addresses */

#define OUTBOX_FRAMES_BYTES		(256 * 1024)	/* never more are kept */

#define OUTBOX_CHANNEL_PUBLISH	1
#define OUTBOX_CHANNEL_DECLARE	2	/* so that a refusal costs no confirms */
#define OUTBOX_CHANNEL_TRY		3	/* with transactions; of a preflight */
#define OUTBOX_CHANNEL_NAME		4	/* so that a refusal costs nothing */

/* An entry of a table of AMQP: true, or a text. */
#define OUTBOX_TABLE_TRUE(name) \
	{.key = amqp_cstring_bytes(name), \
	.value = {.kind = AMQP_FIELD_KIND_BOOLEAN, .value.boolean = 1}}
#define OUTBOX_TABLE_TEXT(name, text) \
	{.key = amqp_cstring_bytes(name), \
	.value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes(text)}}

/*
 * A basic.return whose content is still arriving: the method comes first, then
 * the header (which tells the message), then the body, which nobody needs.
 */
typedef enum OutboxReturnPart
{
	OUTBOX_RETURN_NONE,
	OUTBOX_RETURN_HEADER,		/* waiting for the content header */
	OUTBOX_RETURN_BODY			/* delivered; body_left bytes to skip */
} OutboxReturnPart;

/* How far the question for a name is; broker_channels.c has the diagram. */
typedef enum OutboxNameState
{
	OUTBOX_NAME_CLOSED,
	OUTBOX_NAME_OPENING,
	OUTBOX_NAME_OPEN,
	OUTBOX_NAME_ASKED,
	OUTBOX_NAME_HELD
} OutboxNameState;

struct OutboxLink
{
	MemoryContext context;		/* the link itself */
	MemoryContext target_context;	/* strings of target; reset per connect */
	MemoryContext scratch;		/* one message's encoding; reset by the next */
	OutboxLinkEvents events;

	OutboxLinkState state;		/* written by outbox_link_set_state only */
	OutboxLinkError error;
	char		blocked_reason[256];
	int64		certificate_ends;	/* of the last connect; 0: none was shown */

	OutboxLinkTarget target;
	struct addrinfo *addresses; /* from getaddrinfo, while connecting */
	int			naddresses;
	int			tried;			/* of them, in this connect */
	struct addrinfo *address;	/* the one under way */
	int64		address_until_ms;	/* no longer than that */
	unsigned int turn;			/* which one to try first; outlives connects */
	uint32		frame_max;		/* of the last connection */
	int64		heartbeat_ms;	/* as negotiated; 0 = none */
	StringInfoData frames;		/* to be sent */
	char		name[OUTBOX_SHORT_STRING_MAX + 1];	/* that was asked for */

	/*
	 * From here on all is of one connection: outbox_link_drop() sets it to
	 * zeros.
	 *
	 * conn is set when the handshakes may begin, and from then on owns the
	 * descriptor; until then fd is ours to close.
	 */
	amqp_connection_state_t conn;
	SSL		   *ssl;			/* conn's; NULL without TLS */
	int			fd;				/* -1 when there is none */
	bool		fd_acquired;	/* AcquireExternalFD() was called */
	bool		logged_in;		/* the handshake lacks the channel only */

	int64		last_read_ms;	/* when bytes had last arrived */
	int64		last_receive_ms;	/* when receive last drained the library */
	int64		unread_us;		/* for how long what is read now was in the
								 * socket; 0: unknown */
	bool		more;			/* receive stopped early: call it again */
	size_t		weight;			/* foreign memory when it was opened */
	int64		weighed_ms;		/* when that was looked at last */
	int64		unweighed_bytes;	/* came since, at least */
	bool		declare_open;	/* OUTBOX_CHANNEL_DECLARE is open, or will be */
	bool		declare_opening;	/* the broker has not said so yet */
	int			declares;		/* asked there, and not answered */
	bool		try_open;		/* OUTBOX_CHANNEL_TRY is */
	OutboxLinkStatus try_status;	/* AGAIN: its answer has not come */
	int			try_code;
	char		try_text[256];
	OutboxNameState name_state; /* written by set_name_state() only */
	bool		name_refused;	/* the last time; code and text say why */
	int			name_code;
	char		name_text[256];

	bool		guarded;		/* the watchdog is armed */
	bool		in_burst;
	amqp_bytes_t rest;			/* of a message's body, between two frames; in
								 * scratch, or in the message */
	uint64		published;		/* bytes of messages, rest among them */
	int64		send_limit;		/* most bytes we want in the kernel */
	int64		room;			/* of send_limit, still free */
	bool		wants_room;		/* more than there was */

	OutboxReturnPart return_part;
	uint64		return_body_left;
	char		return_text[512];
};

/* in broker.c */
extern int64 outbox_link_now_ms(void);
extern void outbox_link_set_state(OutboxLink *link, OutboxLinkState state);
extern void outbox_link_guard(OutboxLink *link, int limit_ms);
extern void outbox_link_guard_reading(OutboxLink *link, int limit_ms);
extern bool outbox_link_unguard(OutboxLink *link);
extern void outbox_link_begin_call(OutboxLink *link, OutboxWait wait);
extern OutboxLinkStatus outbox_link_end_call(OutboxLink *link,
											 const char *doing, int status);
extern OutboxLinkStatus outbox_link_end_rpc(OutboxLink *link, const char *doing,
											const amqp_rpc_reply_t *reply);
extern void outbox_link_note_read(OutboxLink *link);
extern bool outbox_link_is_silent(OutboxLink *link);

/* in broker_error.c */
extern OutboxLinkStatus outbox_link_fail(OutboxLink *link,
										 OutboxReason reason,
										 const char *fmt,...)
			pg_attribute_printf(3, 4);
extern OutboxLinkStatus outbox_link_fail_library(OutboxLink *link,
												 const char *doing, int status);
extern OutboxLinkStatus outbox_link_fail_close(OutboxLink *link,
											   const char *doing,
											   const amqp_method_t *method);
extern OutboxLinkStatus outbox_link_fail_flood(OutboxLink *link,
											   const char *doing);
extern void outbox_link_drop(OutboxLink *link);
extern OutboxLinkStatus outbox_link_refuse(OutboxLink *link, const char *reason,
										   bool permanent);
extern void outbox_link_printable(char *dst, size_t size,
								  const void *src, size_t len);
extern void outbox_link_words(const OutboxLink *link, char *dst, size_t size,
							  amqp_bytes_t src);

/* in broker_tls.c */
extern OutboxLinkStatus outbox_link_open_tls(OutboxLink *link,
											 const char *address);
extern OutboxLinkStatus outbox_link_fail_tls(OutboxLink *link,
											 OutboxReason reason,
											 const char *what,
											 const char *text);
extern OutboxLinkStatus outbox_link_fail_tls_memory(OutboxLink *link);

/* What OpenSSL has said last. */
extern const char *outbox_link_openssl_text(void);

/*
 * Why the other end gave TLS up, by an alert or by closing the connection in the
 * login for want of a certificate; NONE: that is not known.
 */
extern OutboxReason outbox_link_tls_refusal(const OutboxLink *link,
											bool closed, const char **text);

/* in broker_tls_files.c */
extern OutboxLinkStatus outbox_link_load_tls_files(OutboxLink *link,
												   SSL_CTX *context);

/* in broker_receive.c */
extern void outbox_link_weigh(OutboxLink *link);

/*
 * in broker_channels.c; take_answer: of a frame on one of its channels, false when it
 * is not expected there; *status is the library's
 */
extern bool outbox_link_take_answer(OutboxLink *link, const amqp_frame_t *frame,
									int *status);
extern bool outbox_link_name_closed(const OutboxLink *link, int code,
									int class_id);
extern bool outbox_link_declare_closed(const OutboxLink *link, int code,
									   int class_id);

/* in broker_socket.c */
extern void outbox_link_socket_options(int fd, bool heartbeats);
extern int	outbox_link_bytes_wait(int fd, int64 *unread_us);
extern int64 outbox_link_unacknowledged(const OutboxLink *link);
extern void outbox_link_measure_room(OutboxLink *link);
extern void outbox_link_want_room(const OutboxLink *link);
extern int	outbox_link_flush(OutboxLink *link);

/*
 * encode.c: from a message to AMQP properties, headers and body
 *
 * Encodes in that format (NULL: plain) its properties and headers into *properties,
 * which is as large as they may be and is then as long as they are; and points *body
 * to the body, or body is NULL.  What it allocates lives in scratch (the caller
 * resets that per message); the rest points into the message.
 *
 * Returns NULL, or why the message cannot be sent at all (text in scratch or
 * constant).  May ereport(ERROR): characters that UTF-8 does not have, a document that
 * grows over 1 GB, damaged jsonb, stack depth, out of memory.
 *
 * Converts from the database's encoding with pg_server_to_any(), which outside
 * a transaction works only when client_encoding is UTF8: the worker must have
 * set that once, inside a transaction.
 */
extern const char *outbox_encode(const OutboxMessage *message,
								 const OutboxFormat *format,
								 MemoryContext scratch,
								 amqp_bytes_t *properties, amqp_bytes_t *body);

/*
 * encode_table.c: from jsonb to an AMQP field table; encode.c only
 *
 * The functions that can refuse return NULL, or the reason as a constant.
 * Everything is allocated in the current context.
 */

/* Database encoding to UTF-8, without a copy where possible. */
extern amqp_bytes_t outbox_encode_utf8(const char *text, int len);

/* A string that is UTF-8 already, as all of OutboxMessage's are. */
extern amqp_bytes_t outbox_encode_text(const char *utf8);

extern const char *outbox_encode_number(Numeric number,
										amqp_field_value_t *value);

/*
 * Appends the pairs of the object that the iterator has just entered; the table has
 * room for them.
 */
extern const char *outbox_encode_pairs(JsonbIterator **it,
									   amqp_table_t *table);

extern bool outbox_encode_is(const amqp_bytes_t *key, const char *name);

/* The value of that header; NULL: there is none. */
extern amqp_field_value_t *outbox_encode_find(const amqp_table_t *table,
											  const char *name);

/*
 * The value of a header of ours, which replaces one of the user's with that name, so
 * that a message with a key says by which one its order is kept.  A message without a
 * key keeps the user's header.  There has to be room for one more.
 */
extern amqp_field_value_t *outbox_encode_own_header(amqp_table_t *table,
													const char *name);

/* The same of a string; NULL: no header. */
extern void outbox_encode_own_text(amqp_table_t *table, const char *name,
								   const char *utf8);

#endif							/* OUTBOX_BROKER_INTERNAL_H */
