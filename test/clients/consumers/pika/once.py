"""A consumer whose effect happens once for each message, however often that is delivered."""

# [once]
import os
import sys
import time

import pika
import pika.exceptions
import psycopg2


def handle(db, channel, method, properties, body):
    try:
        with db, db.cursor() as cursor:  # one transaction, committed at its end
            cursor.execute("SELECT inbox.outbox_inbox_accept('pika', %s::uuid)", (properties.message_id,))
            if cursor.fetchone()[0]:  # false: processed before
                cursor.execute(
                    "INSERT INTO notifications (consumer, message_id, body) VALUES ('pika', %s, %s)",
                    (properties.message_id, body.decode()),
                )
    except psycopg2.Error as error:
        if error.pgcode is None or isinstance(error, psycopg2.OperationalError):
            raise  # no server, or it says "not now": everything again, after a pause
        channel.basic_nack(method.delivery_tag)  # x-delivery-limit bounds how often
    else:
        channel.basic_ack(method.delivery_tag)  # only after the commit


def consume(uri, queue):
    db = psycopg2.connect(os.environ["DATABASE_URL"])
    broker = pika.BlockingConnection(pika.URLParameters(uri + "?heartbeat=30&blocked_connection_timeout=60"))
    try:
        channel = broker.channel()
        channel.basic_qos(prefetch_count=50)
        print("consuming", flush=True)
        for method, properties, body in channel.consume(queue):
            handle(db, channel, method, properties, body)
    finally:
        db.close()
        if broker.is_open:
            broker.close()


def main(uri, queue):
    while True:  # pika does not reconnect by itself
        try:
            consume(uri, queue)
        except (psycopg2.Error, pika.exceptions.AMQPError, OSError) as error:
            print("again in a second: %r" % error, flush=True)
            time.sleep(1)


main(os.environ["AMQP_URI"], sys.argv[1])
# [/once]
