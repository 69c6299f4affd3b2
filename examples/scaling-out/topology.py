#!/usr/bin/python3
"""topology.py: declares the exchanges, queues and streams of routes.sql.

usage: topology.py AMQP_URI QUEUES

QUEUES is how many queues share the route "hashed".  May be run again at any time:
what is there stays.  With more QUEUES than before, some keys move to the new
queues; the README says what has to be done before that.
"""

import sys

import pika

PARTITIONS = 3
# What a bucket of the hash weighs; the same for all, so each gets as many keys.
WEIGHT = "1"


def hashed(channel, queues):
    channel.exchange_declare("hashed", exchange_type="x-consistent-hash", durable=True)
    for number in range(queues):
        name = "hashed.%d" % number
        channel.queue_declare(
            name,
            durable=True,
            arguments={"x-queue-type": "quorum", "x-single-active-consumer": True},
        )
        channel.queue_bind(name, "hashed", routing_key=WEIGHT)


def stream(channel, name):
    # Without a limit a stream grows for ever.
    channel.queue_declare(
        name,
        durable=True,
        arguments={"x-queue-type": "stream", "x-max-age": "7D"},
    )


def log(channel):
    channel.exchange_declare("log", exchange_type="topic", durable=True)
    stream(channel, "log")
    channel.queue_bind("log", "log", routing_key="#")


def parted(channel):
    """A super stream is a direct exchange with that argument, from which clients of
    the stream protocol learn the partitions; the relay publishes to the other one,
    which does not need to be told the number of the partition."""
    channel.exchange_declare(
        "parted", exchange_type="direct", durable=True, arguments={"x-super-stream": True}
    )
    channel.exchange_declare("parted.hash", exchange_type="x-consistent-hash", durable=True)
    for number in range(PARTITIONS):
        name = "parted-%d" % number
        stream(channel, name)
        channel.queue_bind(
            name,
            "parted",
            routing_key=str(number),
            arguments={"x-stream-partition-order": number},
        )
        channel.queue_bind(name, "parted.hash", routing_key=WEIGHT)


def guarded(channel):
    """at-least-once wants reject-publish: the messages that wait for the dead letter
    queue count against the length, and must not push others out."""
    channel.exchange_declare("guarded", exchange_type="topic", durable=True)
    channel.exchange_declare("guarded.dead", exchange_type="fanout", durable=True)
    channel.queue_declare(
        "guarded.dead", durable=True, arguments={"x-queue-type": "quorum"}
    )
    channel.queue_bind("guarded.dead", "guarded.dead", routing_key="#")
    channel.queue_declare(
        "guarded",
        durable=True,
        arguments={
            "x-queue-type": "quorum",
            "x-dead-letter-exchange": "guarded.dead",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-max-length": 1000000,
        },
    )
    channel.queue_bind("guarded", "guarded", routing_key="#")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    connection = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
    channel = connection.channel()
    hashed(channel, int(sys.argv[2]))
    log(channel)
    parted(channel)
    guarded(channel)
    connection.close()


main()
