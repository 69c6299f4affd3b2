"""What kombu hands out of each message of some queues, for test/clients/consumers.pl.

usage: main.py setup NAME           declares the queues that need arguments
       main.py read QUEUE=N...      prints N deliveries of each, one JSON object a line

The broker is in AMQP_URI.
"""

import json
import os
import sys

from kombu import Connection, Consumer, Exchange, Queue

from typed import typed, typed_body


def setup(connection, name):
    dead = Queue(name + ".dead", durable=True)
    priority = Queue(name + ".priority", durable=True, max_priority=10)
    quorum = Queue(
        name + ".quorum",
        durable=True,
        queue_arguments={
            "x-queue-type": "quorum",
            "x-single-active-consumer": True,
            "x-delivery-limit": 20,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": name + ".dead",
        },
    )
    headers = Queue(
        name + ".headers",
        exchange=Exchange("headed", type="headers", durable=True),
        durable=True,
        binding_arguments={"x-match": "all", "region": "eu", "tier": 7, "vip": True},
    )
    for queue in dead, priority, quorum, headers:
        queue(connection.default_channel).declare()


def payload(message):
    """The type of message.payload, the decoded body, or of the error instead."""
    try:
        return type(message.payload).__name__
    except Exception as error:  # whatever it is, the page says it
        return type(error).__name__


def read(connection, queue, wanted):
    left = [wanted]

    def show(message):
        info = message.delivery_info
        properties = dict(message.properties)
        headers = properties.pop("application_headers", None)
        # without these two, which kombu takes out of the properties
        properties["content_type"] = message.content_type
        properties["content_encoding"] = message.content_encoding
        print(json.dumps({
            "queue": queue,
            "redelivered": info["redelivered"],
            "exchange": info["exchange"],
            "routing_key": info["routing_key"],
            "properties": {name: typed(value) for name, value in properties.items() if value is not None},
            "headers": typed(headers),
            "body": typed_body(message.body),
            "converted": {"message.payload": payload(message)},
        }))
        if queue.endswith(".quorum") and not info["redelivered"]:
            message.requeue()
        else:
            message.ack()
        left[0] -= 1

    with connection.channel() as channel:
        with Consumer(channel, [Queue(queue, no_declare=True)], on_message=show, prefetch_count=100):
            while left[0] > 0:
                connection.drain_events(timeout=30)


def main():
    act, *words = sys.argv[1:]
    with Connection(os.environ["AMQP_URI"]) as connection:
        if act == "setup":
            setup(connection, words[0])
        for word in words if act == "read" else ():
            queue, wanted = word.split("=")
            read(connection, queue, int(wanted))


main()
