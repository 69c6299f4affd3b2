"""What pika hands out of each message of some queues, for test/clients/consumers.pl.

usage: main.py setup NAME           declares the queues that need arguments
       main.py read QUEUE=N...      prints N deliveries of each, one JSON object a line
       main.py once QUEUE           consumes, each message once (once.py)

The broker is in AMQP_URI.
"""

import json
import os
import sys

import pika

from typed import typed, typed_body

PROPERTIES = (
    "content_type", "content_encoding", "delivery_mode", "priority", "correlation_id", "reply_to",
    "expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id",
)


def setup(channel, name):
    # [queues]
    channel.queue_declare(name + ".priority", durable=True, arguments={"x-max-priority": 10})
    channel.queue_declare(
        name + ".quorum",
        durable=True,
        arguments={
            "x-queue-type": "quorum",
            "x-single-active-consumer": True,
            "x-delivery-limit": 20,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": name + ".dead",
        },
    )
    channel.queue_declare(name + ".dead", durable=True)
    channel.queue_declare(name + ".headers", durable=True)
    channel.queue_bind(
        name + ".headers",
        "headed",
        arguments={"x-match": "all", "region": "eu", "tier": 7, "vip": True},
    )
    # [/queues]


def read(channel, queue, wanted):
    channel.basic_qos(prefetch_count=100)
    for method, properties, body in channel.consume(queue):
        print(json.dumps({
            "queue": queue,
            "redelivered": method.redelivered,
            "exchange": method.exchange,
            "routing_key": method.routing_key,
            "properties": {
                name: typed(getattr(properties, name))
                for name in PROPERTIES
                if getattr(properties, name) is not None
            },
            "headers": typed(properties.headers),
            "body": typed_body(body),
        }))
        if queue.endswith(".quorum") and not method.redelivered:
            channel.basic_nack(method.delivery_tag)
        else:
            channel.basic_ack(method.delivery_tag)
        wanted -= 1
        if wanted == 0:
            break
    channel.cancel()


def main():
    act, *words = sys.argv[1:]
    if act == "once":
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "once.py")
        os.execv(sys.executable, [sys.executable, program, *words])
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URI"]))
    channel = connection.channel()
    if act == "setup":
        setup(channel, words[0])
    for word in words if act == "read" else ():
        queue, wanted = word.split("=")
        read(channel, queue, int(wanted))
    connection.close()


main()
