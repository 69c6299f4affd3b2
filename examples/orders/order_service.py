#!/usr/bin/python3
"""order_service.py: the shop behind HTTP.

usage: order_service.py DATABASE_DSN PORT [--max-age SECONDS] [--connections N]

    POST /orders          {"customer": "Ada", "amount": 4200}
                          201 and the order; the header Idempotency-Key (a UUID) becomes
                          its id, and the same request once more gets 200 and the same order
    GET  /orders/{id}     200 and the order, 404
    GET  /healthz         200 while the process serves: restart it when it does not
    GET  /readyz          200 while orders can be taken, 503 while they cannot: send it no
                          requests; with what the relay says

An order needs the database and not the broker: with RabbitMQ away the service stays
ready, "degraded", and the events wait.  Only where they have waited for longer than
--max-age (0: never) it is taken out of service, so that nobody takes orders that
nobody hears of.

SIGTERM: answers what it has begun, and ends.
"""

import argparse
import contextlib
import http.server
import json
import re
import signal
import socket
import threading
import uuid

import psycopg2
import psycopg2.extras
import psycopg2.pool

MAX_BODY = 64 * 1024
REQUEST_TIMEOUT_S = 10
GOOD_STATES = ("idle", "publishing")
TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class BadRequest(Exception):
    """What the client has to change; str() says it."""


class Shop:
    """The database.  Connections are made when they are needed, each is used by one
    thread at a time, and one that broke is thrown away."""

    def __init__(self, dsn, connections):
        self.free = threading.BoundedSemaphore(connections)
        self.pool = psycopg2.pool.ThreadedConnectionPool(
            0, connections, dsn, connect_timeout=3,
            cursor_factory=psycopg2.extras.RealDictCursor,
        )

    @contextlib.contextmanager
    def transaction(self):
        with self.free:
            db = self.pool.getconn()
            try:
                with db, db.cursor() as cursor:
                    yield cursor
            finally:
                self.pool.putconn(db, close=bool(db.closed))

    def create_order(self, customer, amount, order_id, traceparent):
        """The order, and whether it is a new one."""
        with self.transaction() as cursor:
            if traceparent:
                # Of this transaction: the message continues the request's trace.
                cursor.execute(
                    "SELECT set_config('outbox.traceparent', %s, true)", (traceparent,)
                )
            cursor.execute("SELECT 1 FROM orders WHERE id = %s", (order_id,))
            known = cursor.fetchone() is not None
            cursor.execute(
                "SELECT create_order(%s, %s, %s)", (customer, amount, order_id)
            )
        return self.find_order(order_id), not known

    def find_order(self, order_id):
        with self.transaction() as cursor:
            cursor.execute(
                "SELECT id::text, customer, amount, status,"
                " to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
                " AS created_at FROM orders WHERE id = %s",
                (order_id,),
            )
            return cursor.fetchone()

    def relay_state(self):
        with self.transaction() as cursor:
            cursor.execute("SELECT * FROM relay_state()")
            return cursor.fetchone()


def read_order(body):
    try:
        order = json.loads(body)
    except ValueError as error:
        raise BadRequest("the body is not JSON: %s" % error)
    if not isinstance(order, dict):
        raise BadRequest("the body must be a JSON object")
    customer, amount = order.get("customer"), order.get("amount")
    if not isinstance(customer, str) or not customer.strip() or "\0" in customer:
        raise BadRequest('"customer" must be a string that is not empty')
    if type(amount) is not int or not 0 < amount < 2**63:
        raise BadRequest('"amount" must be a positive whole number of cents')
    return customer, amount


def read_uuid(name, text):
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise BadRequest("%s must be a UUID" % name)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = REQUEST_TIMEOUT_S

    def answer(self, status, body, **headers):
        data = (json.dumps(body) + "\n").encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def handle_request(self, action):
        try:
            action()
        except BadRequest as error:
            self.answer(400, {"error": str(error)})
        except (psycopg2.OperationalError, psycopg2.InterfaceError, psycopg2.pool.PoolError):
            # Nobody knows whether the order was committed: with the same
            # Idempotency-Key it can be placed again.
            self.answer(503, {"error": "the database is not available"}, Retry_After="1")
        except psycopg2.Error as error:
            self.log_error("%s", error)
            self.answer(500, {"error": "the order could not be stored"})

    def do_GET(self):
        if self.path == "/healthz":
            self.answer(200, {"status": "ok"})
        elif self.path == "/readyz":
            self.answer_readiness()
        elif self.path.startswith("/orders/"):
            self.handle_request(self.get_order)
        else:
            self.answer(404, {"error": "there is nothing here"})

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MAX_BODY:
            self.close_connection = True
            self.answer(413 if length.isdigit() else 411, {"error": "at most 64 kB, with Content-Length"})
            return
        body = self.rfile.read(int(length))
        if self.path == "/orders":
            self.handle_request(lambda: self.post_order(body))
        else:
            self.answer(404, {"error": "there is nothing here"})

    def post_order(self, body):
        customer, amount = read_order(body)
        key = self.headers.get("Idempotency-Key")
        order_id = str(uuid.uuid4()) if key is None else read_uuid("Idempotency-Key", key)
        traceparent = self.headers.get("traceparent", "")
        if not TRACEPARENT.fullmatch(traceparent):
            traceparent = ""
        order, created = self.server.shop.create_order(customer, amount, order_id, traceparent)
        if (order["customer"], order["amount"]) != (customer, amount):
            self.answer(409, {"error": "there is another order with this Idempotency-Key"})
            return
        self.answer(201 if created else 200, order, Location="/orders/" + order["id"])

    def get_order(self):
        order = self.server.shop.find_order(
            read_uuid("the order's id", self.path[len("/orders/"):])
        )
        if order is None:
            self.answer(404, {"error": "there is no such order"})
        else:
            self.answer(200, order)

    def answer_readiness(self):
        try:
            relay = self.server.shop.relay_state()
        except (psycopg2.Error, psycopg2.pool.PoolError) as error:
            reason = str(error).strip().splitlines()[:1]
            self.answer(503, {"status": "down", "database": " ".join(reason)})
            return
        max_age = self.server.max_age
        late = 0 < max_age < (relay["oldest_pending_seconds"] or 0)
        status = "late" if late else "ok" if relay["state"] in GOOD_STATES else "degraded"
        self.answer(503 if late else 200, {"status": status, "database": "ok", "relay": relay})

    def log_message(self, format, *args):
        print(self.address_string(), format % args, flush=True)


class Server(http.server.ThreadingHTTPServer):
    # server_close() waits for the requests that have begun.
    daemon_threads = False
    block_on_close = True
    address_family = socket.AF_INET


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dsn")
    parser.add_argument("port", type=int)
    parser.add_argument("--max-age", type=float, default=0.0)
    parser.add_argument("--connections", type=int, default=8)
    options = parser.parse_args()

    server = Server(("127.0.0.1", options.port), Handler)
    server.shop = Shop(options.dsn, options.connections)
    server.max_age = options.max_age

    def stop(*_):
        # Not from here: shutdown() waits for serve_forever(), which this interrupts.
        threading.Thread(target=server.shutdown).start()

    for number in signal.SIGTERM, signal.SIGINT:
        signal.signal(number, stop)
    print("ready on port %d" % server.server_address[1], flush=True)
    server.serve_forever(poll_interval=0.1)
    server.server_close()


main()
