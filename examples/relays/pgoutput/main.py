#!/usr/bin/python3
"""Reads one route of outbox out of the write-ahead log and posts it to a webhook.

For comparison with relays that claim: examples/relays/README.md says what is different, and how
the slot and the publication are made.  Needs python3-psycopg2; the environment says
where the database is, as for psql.
"""

import argparse
import http.client
import select
import signal
import struct
import sys
import threading
import time
import urllib.parse
import zlib
from concurrent.futures import ThreadPoolExecutor

import psycopg2
from psycopg2.extras import LogicalReplicationConnection

stopping = threading.Event()


class Stopped(Exception):
    pass


class Decoder:
    """Messages of pgoutput, protocol version 1."""

    def __init__(self):
        self.columns = {}       # of a table, by its oid
        self.at = b""

    def take(self, form):
        values = struct.unpack_from(">" + form, self.at)
        self.at = self.at[struct.calcsize(">" + form):]
        return values[0]

    def name(self):
        text, self.at = self.at.split(b"\0", 1)
        return text.decode()

    def value(self):
        if self.take("c") == b"n":
            return None
        size = self.take("i")
        text, self.at = self.at[:size], self.at[size:]
        return text.decode()

    def decode(self, data):
        """Returns what happened, and for an insert the row, for a commit its end."""
        self.at = data
        what = self.take("c")
        if what == b"R":
            table = self.take("I")
            self.name(), self.name(), self.take("c")
            self.columns[table] = [(self.take("b"), self.name(), self.take("q"))[1] for _ in range(self.take("h"))]
        elif what == b"I":
            columns = self.columns[self.take("I")]
            self.take("c"), self.take("h")
            return what, {column: self.value() for column in columns}
        elif what == b"C":
            self.take("b"), self.take("q")
            return what, self.take("q")
        return what, None


class Target:
    """The webhook, over a connection for each lane."""

    def __init__(self, url, lanes):
        self.url = urllib.parse.urlsplit(url)
        self.lanes = [None] * lanes
        self.pool = ThreadPoolExecutor(lanes)

    def post(self, lane, row):
        if row["body"] is None:
            body, content_type = row["payload"].encode(), "application/json"
        else:
            body, content_type = bytes.fromhex(row["body"][2:]), "application/octet-stream"
        if self.lanes[lane] is None:
            self.lanes[lane] = http.client.HTTPConnection(self.url.netloc, timeout=5)
        self.lanes[lane].request("POST", self.url.path or "/", body, {
            "webhook-id": row["id"], "Idempotency-Key": row["id"],
            "event-type": row["event_type"], "Content-Type": content_type})
        answer = self.lanes[lane].getresponse()
        answer.read()
        if answer.status >= 300:
            raise OSError("%d %s" % (answer.status, answer.reason))

    def post_all(self, lane, rows):
        """In their order, each until it is taken: the log has no place for what is to wait."""
        for row in rows:
            wait = 0.1
            while True:
                try:
                    self.post(lane, row)
                    break
                except (OSError, http.client.HTTPException) as error:
                    print("%s: %s" % (row["id"], error), file=sys.stderr, flush=True)
                    self.lanes[lane] = None
                if stopping.wait(wait):
                    raise Stopped
                wait = min(2 * wait, 5)

    def deliver(self, rows):
        work = [[] for _ in self.lanes]
        for i, row in enumerate(rows):
            if row["aggregate_id"] is not None:
                i = zlib.crc32(("%s\0%s" % (row["aggregate_type"], row["aggregate_id"])).encode())
            work[i % len(work)].append(row)
        list(self.pool.map(self.post_all, range(len(work)), work))


class Clearing:
    """Takes out of the table what the target has: nobody else would.

    What a claim sees was committed before the log's position after it.  Once the
    target has everything up to there, it has what was claimed.
    """

    def __init__(self, route):
        self.route = route
        self.session = psycopg2.connect("")
        self.session.autocommit = True
        self.token = self.position = None
        self.next = 0

    def clear(self, confirmed):
        if time.monotonic() < self.next:
            return
        with self.session.cursor() as cursor:
            if self.token is None:
                cursor.execute("SELECT max(token) FROM outbox_claim(%s, 10000, '1 minute', 'pgoutput')", (self.route,))
                self.token = cursor.fetchone()[0]
                cursor.execute("SELECT pg_current_wal_flush_lsn() - '0/0'")
                self.position = int(cursor.fetchone()[0])
                self.next = time.monotonic() + (1 if self.token is None else 0)
            elif confirmed >= self.position:
                cursor.execute("SELECT outbox_ack(%s)", (self.token,))
                self.token = None

    def close(self):
        if self.token is not None:
            with self.session.cursor() as cursor:
                cursor.execute("SELECT outbox_release(%s)", (self.token,))
        self.session.close()


def read(args, target):
    clearing = Clearing(args.route)
    log = psycopg2.connect("", connection_factory=LogicalReplicationConnection)
    cursor = log.cursor()
    cursor.start_replication(slot_name=args.slot, decode=False, options={
        "proto_version": "1", "publication_names": args.publication})
    decoder, rows, whole, confirmed, inside = Decoder(), [], 0, 0, False
    while not stopping.is_set():
        message = cursor.read_message()
        if message is not None:
            what, value = decoder.decode(message.payload)
            inside = what != b"C" and (inside or what == b"B")
            if what == b"I":
                rows.append(value)
            elif what == b"C":
                whole = value
        if not inside and (message is None or len(rows) >= args.batch):
            target.deliver(rows)
            rows = []
            # without anything for us before it, the end of the log is passed, too
            confirmed = max(confirmed, whole, cursor.wal_end if message is None else 0)
            cursor.send_feedback(flush_lsn=confirmed, force=True)
            clearing.clear(confirmed)
        if message is None:
            select.select([cursor], [], [], 0.2)
    clearing.close()
    log.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("route")
    parser.add_argument("--slot", default="outbox_cdc")
    parser.add_argument("--publication", default="outbox_cdc")
    parser.add_argument("--lanes", type=int, default=8, help="posts at the same time")
    parser.add_argument("--batch", type=int, default=100, help="messages between two confirmations, or a transaction")
    args = parser.parse_args()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopping.set())
    target = Target(args.url, args.lanes)
    wait = 0.1
    while not stopping.is_set():
        try:
            read(args, target)
        except Stopped:
            break
        except psycopg2.Error as error:     # another one has the slot, or the server is away
            print(str(error).strip(), file=sys.stderr, flush=True)
            stopping.wait(wait)
            wait = min(2 * wait, 5)


if __name__ == "__main__":
    main()
