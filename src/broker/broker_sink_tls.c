/*-------------------------------------------------------------------------
 *
 * broker_sink_tls.c
 *		The sink of a TLS connection: only the library can write to it.
 *
 * It sends each frame at once, the one of a body in three pieces: so the socket is
 * corked from the first frame until flush.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "broker_internal.h"
#include "wait_event.h"

static int
send_frame(OutboxLink *link, amqp_frame_t *frame)
{
	int			status;

	if (!link->corked)
		outbox_link_cork(link, true);
	frame->channel = OUTBOX_CHANNEL_PUBLISH;
	outbox_wait_start(OUTBOX_WAIT_SEND);
	status = amqp_send_frame(link->conn, frame);
	outbox_wait_end();
	return status;
}

static int
put_head(OutboxLink *link, const OutboxEncoded *encoded,
		 amqp_bytes_t exchange, amqp_bytes_t routing_key)
{
	amqp_basic_publish_t method = {0};
	amqp_frame_t frame = {0};
	int			status;

	method.exchange = exchange;
	method.routing_key = routing_key;
	method.mandatory = 1;
	frame.frame_type = AMQP_FRAME_METHOD;
	frame.payload.method.id = AMQP_BASIC_PUBLISH_METHOD;
	frame.payload.method.decoded = &method;
	status = send_frame(link, &frame);
	if (status != AMQP_STATUS_OK)
		return status;

	frame.frame_type = AMQP_FRAME_HEADER;
	frame.payload.properties.class_id = AMQP_BASIC_CLASS;
	frame.payload.properties.body_size = encoded->body.len;
	frame.payload.properties.decoded = unconstify(amqp_basic_properties_t *,
												  &encoded->properties);
	return send_frame(link, &frame);
}

static int
put_body(OutboxLink *link, amqp_bytes_t part)
{
	amqp_frame_t frame = {0};

	frame.frame_type = AMQP_FRAME_BODY;
	frame.payload.body_fragment = part;
	return send_frame(link, &frame);
}

static int
flush(OutboxLink *link)
{
	if (link->corked)
		outbox_link_cork(link, false);
	return AMQP_STATUS_OK;
}

const OutboxSink outbox_sink_tls = {
	.put_head = put_head,
	.put_body = put_body,
	.flush = flush,
	.whole_bytes = 0,
};
