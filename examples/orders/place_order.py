#!/usr/bin/python3
"""place_order.py: three ways to place an order, and to die on the way.

usage: place_order.py METHOD CUSTOMER AMOUNT DATABASE_DSN AMQP_URI [--die-after STEP]

METHOD is commit-then-publish or publish-then-commit (both wrong: do not copy
them) or outbox.  With --die-after, the process sends itself SIGKILL after that
step (write, publish or commit), as a power cut or the OOM killer would.
"""

import argparse
import json
import os
import signal
import uuid

import pika
import psycopg2


def done(options, step, text):
    print("   ", text, flush=True)
    if options.die_after == step:
        print("    -- kill -9 --", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def write_naive(options, cursor, order):
    cursor.execute(
        "INSERT INTO naive_orders (id, customer, amount)"
        " VALUES (%(order_id)s, %(customer)s, %(amount)s)",
        order,
    )
    done(options, "write", "INSERT INTO naive_orders ...")


def publish(options, channel, order):
    channel.basic_publish(
        "naive",
        "order.created",
        json.dumps(order),
        pika.BasicProperties(delivery_mode=2),
        mandatory=True,
    )
    done(options, "publish", "basic.publish order.created, confirmed by RabbitMQ")


def commit(options, db):
    db.commit()
    done(options, "commit", "COMMIT")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("method")
    parser.add_argument("customer")
    parser.add_argument("amount", type=int)
    parser.add_argument("dsn")
    parser.add_argument("uri")
    parser.add_argument("--die-after", choices=("write", "publish", "commit"))
    options = parser.parse_args()

    order = {
        "order_id": str(uuid.uuid4()),
        "customer": options.customer,
        "amount": options.amount,
    }
    db = psycopg2.connect(options.dsn)
    cursor = db.cursor()
    if options.method == "outbox":
        cursor.execute(
            "SELECT create_order(%(customer)s, %(amount)s, %(order_id)s)", order
        )
        done(options, "write", "SELECT create_order(...)")
        commit(options, db)
        return

    channel = pika.BlockingConnection(pika.URLParameters(options.uri)).channel()
    channel.confirm_delivery()
    write_naive(options, cursor, order)
    if options.method == "commit-then-publish":
        commit(options, db)
        publish(options, channel, order)
    elif options.method == "publish-then-commit":
        publish(options, channel, order)
        commit(options, db)
    else:
        parser.error("unknown method")


main()
