#!/usr/bin/python3
"""take_orders.py: the shop's front end, with customers in front of it.

usage: take_orders.py DATABASE_DSN LOG [--count N] [--every SECONDS]

Takes N orders, or as many as come until SIGTERM, one every SECONDS.  Appends
to LOG, for each order, "id,time" as soon as the customer has been told that
the order is placed.  Prints a summary at the end.

The id is chosen before the first try.  When the connection breaks, nobody knows
whether the order was committed, so it is placed again under the same id.
"""

import argparse
import datetime
import random
import signal
import threading
import time
import uuid

import psycopg2

CUSTOMERS = "Ada", "Blaise", "Carl", "Dorothy", "Edsger", "Frances", "Grace"
GIVE_UP_S = 60

stopping = threading.Event()


class Shop:
    def __init__(self, dsn):
        self.dsn = dsn
        self.db = None
        self.interruptions = 0

    def place_order(self, customer, amount):
        order_id = str(uuid.uuid4())
        deadline = time.monotonic() + GIVE_UP_S
        broken = False
        while True:
            try:
                if self.db is None:
                    self.db = psycopg2.connect(self.dsn)
                    self.db.autocommit = True
                with self.db.cursor() as cursor:
                    cursor.execute(
                        "SELECT create_order(%s, %s, %s)",
                        (customer, amount, order_id),
                    )
                return order_id
            except psycopg2.Error as error:
                # An error without SQLSTATE is not the server's: the connection
                # broke.  OperationalError is the server's "not now".
                again = error.pgcode is None or isinstance(
                    error, psycopg2.OperationalError
                )
                if not again or time.monotonic() > deadline:
                    raise
                self.interruptions += not broken
                broken = True
                self.db = None
                time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dsn")
    parser.add_argument("log")
    parser.add_argument("--count", type=int)
    parser.add_argument("--every", type=float, default=0.0)
    options = parser.parse_args()
    for number in signal.SIGTERM, signal.SIGINT:
        signal.signal(number, lambda *_: stopping.set())

    shop = Shop(options.dsn)
    durations_ms = []
    with open(options.log, "a", buffering=1) as log:
        while not stopping.is_set() and len(durations_ms) != options.count:
            start = time.perf_counter()
            order_id = shop.place_order(
                random.choice(CUSTOMERS), random.randint(1_00, 200_00)
            )
            now = datetime.datetime.now(datetime.timezone.utc)
            durations_ms.append((time.perf_counter() - start) * 1000)
            log.write("%s,%s\n" % (order_id, now.isoformat()))
            stopping.wait(options.every)
    if durations_ms:
        durations_ms.sort()
        print(
            "%d orders taken; placing one took %.1f ms (median), %.0f ms at most;"
            " connections lost: %d"
            % (
                len(durations_ms),
                durations_ms[len(durations_ms) // 2],
                durations_ms[-1],
                shop.interruptions,
            )
        )


main()
