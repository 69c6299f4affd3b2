"""Bodies from 100 bytes to 1 MB, plain and with TLS, through RabbitMQ, against RAW of
the same size.  The bodies are random bytes, which neither TOAST nor anybody else
can compress.

With archive = 'message' every body is written once more, into the archive; from 16 kB
on, the other two are measured beside it.  Documents of jsonb are reported: orders of
many small values, whose text the relay has to make first, and which TOAST compresses.
"""

import json
import os
import random

from checks import Check
from database import Database
from drain import take_record
from turns import take_turns

TITLE = '12. Sizes of bodies'

LARGE = 16384

ENQUEUE = """SELECT count(outbox_enqueue_bytes('bench.event',
    convert_to(format('{"k": %%s, "n": %%s} ', i, i), 'UTF8') || %s,
    aggregate_id => i::text, aggregate_type => 'bench'))
FROM generate_series(%s, %s) i"""

ENQUEUE_JSON = """SELECT count(outbox_enqueue('bench.event',
    jsonb_build_object('k', i, 'n', i, 'orders', %s::jsonb),
    aggregate_id => i::text, aggregate_type => 'bench'))
FROM generate_series(%s, %s) i"""


def random_bytes(size):
    return os.urandom(max(0, size - 24))


def document(size):
    """Orders, whose text as jsonb_out() has it is about that long."""
    chance = random.Random(12)
    orders = []
    length = 30
    while length < size:
        order = {
            'order_id': chance.randrange(10**9),
            'customer': {'name': '%x' % chance.randrange(1 << 48),
                         'email': '%x@example.com' % chance.randrange(1 << 48)},
            'lines': [{'sku': 'SKU-%06d' % chance.randrange(10**6),
                       'quantity': chance.randrange(1, 10),
                       'price': chance.randrange(10**5) / 100} for _ in range(3)],
            'status': chance.choice(('open', 'paid', 'sent'))}
        orders.append(order)
        length += len(json.dumps(order)) + 2
    return json.dumps(orders)


def fill(db, count, size, statement=ENQUEUE, content=random_bytes):
    db.pause()
    db.empty()
    chunk = content(size)
    batch = max(1, min(count, 50_000_000 // size))
    for first in range(1, count + 1, batch):
        db.sql(statement, (chunk, first, min(first + batch - 1, count)))
    db.settle_down()


def drain(bench, db, count, size, check, what):
    bench.rabbit.purge('bench.classic')
    fill(db, count, size, *what)
    elapsed = db.drain(count)
    take_record(bench, count, check)
    return count * size / elapsed / 1e6


def name_of(size):
    if size < 1024:
        return '%d B' % size
    return '%d kB' % (size >> 10) if size < 1 << 20 else '%d MB' % (size >> 20)


def measure(bench, db, size, length, case, first, end, what=(), **settings):
    """One row of the table."""
    tls = db.settings['outbox.broker_uri'].startswith('amqps')
    count = size.sizes[length]
    check = Check()
    raw, this = take_turns(
        size.repeats,
        lambda: bench.drivers.raw_into_queue(
            count, size=length, tls=tls)['rate'] * length / 1e6,
        lambda: drain(bench, db, count, length, check, what))
    bench.results.add(12, '%s, %s' % (name_of(length), case), 'drain', 'MB/s', this,
                      ('RAW', raw), first=first, end=end, check=check, messages=count,
                      bytes=length, **settings)


def targets(archive, length):
    """Of the ratio, the first one and that in the end."""
    if length < LARGE:
        return 0.8, 0.95
    return None, 0.65 if archive == 'message' else 0.85


def measure_archives(bench, db, size, case):
    for archive in ('message', 'metadata', 'none'):
        db.sql('UPDATE outbox_route SET archive = %s', (archive,))
        for length in size.sizes:
            if archive == 'message' or length >= LARGE:
                measure(bench, db, size, length, '%s, archive %s' % (case, archive),
                        *targets(archive, length), archive=archive)
    db.sql("UPDATE outbox_route SET archive = 'message'")


def run(bench):
    size = bench.sizes(12)
    db = Database(bench, 's12', bench.rabbit,
                  **{'outbox.tls_ca_file': bench.rabbit.ca_file})
    measure_archives(bench, db, size, 'plain')
    for length in size.sizes:
        if length >= 1024:
            measure(bench, db, size, length, 'jsonb, plain', None, None,
                    (ENQUEUE_JSON, document))
    db.set(outbox_broker_uri=bench.rabbit.tls_uri)
    measure_archives(bench, db, size, 'TLS')
    db.drop()
