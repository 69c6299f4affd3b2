#!/usr/bin/python3
"""consumer.py: takes messages one after the other, and prints a line for each.

usage: consumer.py [options] AMQP_URI QUEUE...

  --prefetch N      how many messages of a queue the broker sends ahead (20)
  --work-ms MS      how long it works on a message (0)
  --offset WHERE    QUEUE is a stream: begin at "first", "next", or an offset
  --reject TYPE     messages of this type cannot be processed

A message is acknowledged when it has been processed, so that another consumer gets
what this one had not finished.  A line is JSON, written at once: several consumers
may append to one file, which then has them in the order in which they were processed.

Ends on SIGTERM and SIGINT, after the message in hand, and when the connection breaks.
"""

import argparse
import json
import os
import signal
import sys
import time

import pika

stopping = False


def stop(*_):
    global stopping
    stopping = True


def process(queue, method, properties, work_ms):
    """Stands for the effect, which belongs in one transaction with the inbox's row."""
    time.sleep(work_ms / 1000)
    headers = properties.headers or {}
    line = {
        "queue": queue,
        "id": properties.message_id,
        "type": properties.type,
        "aggregate_id": headers.get("aggregate_id"),
        "redelivered": method.redelivered,
        "consumer": os.getpid(),
    }
    if "x-stream-offset" in headers:
        line["offset"] = headers["x-stream-offset"]
    os.write(1, (json.dumps(line) + "\n").encode())


def subscribe(channel, queue, options):
    def handle(_channel, method, properties, _body):
        if stopping:
            return  # goes back to the queue when the connection is closed
        if properties.type == options.reject:
            channel.basic_reject(method.delivery_tag, requeue=False)
            return
        process(queue, method, properties, options.work_ms)
        channel.basic_ack(method.delivery_tag)

    arguments = {}
    if options.offset is not None:
        where = options.offset
        arguments["x-stream-offset"] = int(where) if where.isdigit() else where
    channel.basic_consume(queue, handle, arguments=arguments)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--prefetch", type=int, default=20)
    parser.add_argument("--work-ms", type=float, default=0)
    parser.add_argument("--offset")
    parser.add_argument("--reject")
    parser.add_argument("uri")
    parser.add_argument("queues", nargs="+")
    options = parser.parse_args()
    for number in signal.SIGTERM, signal.SIGINT:
        signal.signal(number, stop)

    connection = pika.BlockingConnection(pika.URLParameters(options.uri))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=options.prefetch)
    for queue in options.queues:
        subscribe(channel, queue, options)
    print("ready", file=sys.stderr, flush=True)
    while not stopping:
        connection.process_data_events(time_limit=0.2)
    connection.close()


main()
