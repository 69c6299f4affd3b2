#!/usr/bin/python3
"""consumer.py: writes a notification for every order.created event.

usage: consumer.py DATABASE_DSN AMQP_URI

The broker delivers at least once, so an event may come twice.  What makes it
count once:

- the inbox (outbox_inbox_accept()) remembers the message_id, and where it has it
  already, nothing else happens;
- that and the effect are one transaction;
- the message is acknowledged after the commit.  Whoever dies before that gets
  the message again, and finds out from the inbox whether the commit took place.

A message that it cannot process is tried again, after a delay, and then put aside, so
that it holds up nobody:

    notifications --rejected--> notifications.retry --after RETRY_MS--> notifications
          \--the last try--> notifications.dead, with the reason in x-reason

Meanwhile later messages go on, those of its order, too.

Runs until SIGTERM or SIGINT.  When the broker or the database goes away, it
closes both connections and makes new ones; what it had not acknowledged is
delivered again.
"""

import contextlib
import json
import signal
import sys
import threading
import time

import pika
import pika.exceptions
import psycopg2

EXCHANGE = "outbox"
QUEUE = "notifications"
EVENT = "order.created"
# Where the broker's own dead-lettering puts what is rejected.  The queues are classic
# ones; on a cluster take quorum queues, with x-dead-letter-strategy = at-least-once.
RETRY_QUEUE = QUEUE + ".retry"
DEAD_QUEUE = QUEUE + ".dead"
RETRY_MS = 1000
MAX_TRIES = 3
PREFETCH = 200
RECONNECT_FIRST_S = 0.1
RECONNECT_MAX_S = 2.0

stopping = threading.Event()


class Unprocessable(Exception):
    """What is wrong with this message, and not with the world around it."""


def read_event(body):
    try:
        event = json.loads(body)
        return {name: event[name] for name in ("order_id", "customer", "amount")}
    except (ValueError, KeyError, TypeError) as error:
        raise Unprocessable("not an event of ours: %r" % error)


def process(db, message_id, event, redelivered, received_at):
    """One transaction; returns whether the message was a duplicate."""
    with db, db.cursor() as cursor:
        cursor.execute(
            "SELECT inbox.outbox_inbox_accept('notifications', %s::uuid)",
            (message_id,),
        )
        duplicate = not cursor.fetchone()[0]
        if not duplicate:
            cursor.execute(
                "INSERT INTO notifications"
                " (order_id, customer, amount, message, received_at)"
                " VALUES (%s, %s, %s, %s, to_timestamp(%s))",
                (
                    event["order_id"],
                    event["customer"],
                    event["amount"],
                    "Dear %s, thank you for your order of %d.%02d."
                    % (event["customer"], *divmod(event["amount"], 100)),
                    received_at,
                ),
            )
        # for the demo's arithmetic only
        cursor.execute(
            "INSERT INTO deliveries VALUES (%s, %s, %s, to_timestamp(%s))",
            (message_id, duplicate, redelivered, received_at),
        )
    return duplicate


def subscribe(channel):
    """The queue is the consumer's; the exchange has the type that the
    publisher's route gives it, so whoever comes first may declare it."""
    channel.exchange_declare(EXCHANGE, exchange_type="topic", durable=True)
    channel.queue_declare(
        QUEUE,
        durable=True,
        arguments={
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": RETRY_QUEUE,
        },
    )
    channel.queue_declare(
        RETRY_QUEUE,
        durable=True,
        arguments={
            "x-message-ttl": RETRY_MS,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": QUEUE,
        },
    )
    channel.queue_declare(DEAD_QUEUE, durable=True)
    channel.queue_bind(QUEUE, EXCHANGE, routing_key=EVENT)
    channel.basic_qos(prefetch_count=PREFETCH)


def tries(properties):
    """How often it was rejected before, as the broker has written it down."""
    deaths = (properties.headers or {}).get("x-death", [])
    return sum(
        death["count"]
        for death in deaths
        if death["queue"] == QUEUE and death["reason"] == "rejected"
    )


def refuse(channel, publisher, method, properties, body, reason):
    """Later once more, or aside: confirmed there before it is acknowledged here."""
    log("cannot process %s: %s" % (properties.message_id, reason))
    if tries(properties) + 1 < MAX_TRIES:
        channel.basic_reject(method.delivery_tag, requeue=False)
        return
    properties.headers = dict(properties.headers or {}, **{"x-reason": reason})
    publisher.basic_publish("", DEAD_QUEUE, body, properties, mandatory=True)
    channel.basic_ack(method.delivery_tag)


def consume(db, broker, ready):
    channel = broker.channel()
    publisher = broker.channel()
    publisher.confirm_delivery()
    subscribe(channel)
    ready()
    # The timeout is only there to look at `stopping`.
    for method, properties, body in channel.consume(QUEUE, inactivity_timeout=0.2):
        if stopping.is_set():
            return
        if method is None:
            continue
        try:
            process(
                db,
                properties.message_id,
                read_event(body),
                method.redelivered,
                time.time(),
            )
        except (Unprocessable, psycopg2.Error) as error:
            if isinstance(error, psycopg2.Error) and is_temporary(error):
                raise
            reason = (str(error) or repr(error)).strip().splitlines()[0]
            refuse(channel, publisher, method, properties, body, reason)
        else:
            channel.basic_ack(method.delivery_tag)


def is_temporary(error):
    """An error with an SQLSTATE is the server's verdict, which another try does
    not change; except OperationalError, which is its "not now".  An error
    without one is a broken connection."""
    return isinstance(error, psycopg2.OperationalError) or not getattr(
        error, "pgcode", None
    )


@contextlib.contextmanager
def closing(connection):
    """A connection that has broken already may refuse to be closed."""
    try:
        yield connection
    finally:
        with contextlib.suppress(Exception):
            connection.close()


def log(text):
    print(time.strftime("%H:%M:%S"), text, flush=True)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    dsn, uri = sys.argv[1:]
    for number in signal.SIGTERM, signal.SIGINT:
        signal.signal(number, lambda *_: stopping.set())

    pause_s = RECONNECT_FIRST_S

    def ready():
        nonlocal pause_s
        pause_s = RECONNECT_FIRST_S
        log("ready")

    while not stopping.is_set():
        try:
            with closing(psycopg2.connect(dsn)) as db:
                with closing(pika.BlockingConnection(pika.URLParameters(uri))) as broker:
                    consume(db, broker, ready)
        except (psycopg2.Error, pika.exceptions.AMQPError, OSError) as error:
            if not is_temporary(error):
                raise
            reason = (str(error) or repr(error)).strip().splitlines()[0]
            log("connection lost, trying again: " + reason)
            stopping.wait(pause_s)
            pause_s = min(pause_s * 2, RECONNECT_MAX_S)
    log("stopped")


main()
