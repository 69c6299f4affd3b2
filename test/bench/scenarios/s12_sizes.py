"""Bodies from 100 bytes to 1 MB, plain and with TLS, through RabbitMQ, against RAW of
the same size.  The bodies are random bytes, which neither TOAST nor anybody else
can compress.
"""

import os

from checks import Check
from database import Database
from drain import take_record
from turns import take_turns

TITLE = '12. Sizes of bodies'

ENQUEUE = """SELECT count(outbox_enqueue_bytes('bench.event',
    convert_to(format('{"k": %%s, "n": %%s} ', i, i), 'UTF8') || %s,
    aggregate_id => i::text, aggregate_type => 'bench'))
FROM generate_series(%s, %s) i"""


def fill(db, count, size):
    db.pause()
    db.empty()
    chunk = os.urandom(max(0, size - 24))
    batch = max(1, min(count, 50_000_000 // size))
    for first in range(1, count + 1, batch):
        db.sql(ENQUEUE, (chunk, first, min(first + batch - 1, count)))
    db.settle_down()


def drain(bench, db, count, size, check):
    bench.rabbit.purge('bench.classic')
    fill(db, count, size)
    elapsed = db.drain(count)
    take_record(bench, count, check)
    return count * size / elapsed / 1e6


def name_of(size):
    if size < 1024:
        return '%d B' % size
    return '%d kB' % (size >> 10) if size < 1 << 20 else '%d MB' % (size >> 20)


def run(bench):
    size = bench.sizes(12)
    db = Database(bench, 's12', bench.rabbit,
                  **{'outbox.tls_ca_file': bench.rabbit.ca_file})
    for tls in (False, True):
        db.set(outbox_broker_uri=bench.rabbit.tls_uri if tls else bench.rabbit.uri)
        for length, count in size.sizes.items():
            check = Check()
            raw, this = take_turns(
                size.repeats,
                lambda: bench.drivers.raw_into_queue(
                    count, size=length, tls=tls)['rate'] * length / 1e6,
                lambda: drain(bench, db, count, length, check))
            bench.results.add(12, '%s, %s' % (name_of(length), 'TLS' if tls else 'plain'),
                              'drain', 'MB/s', this, ('RAW', raw), first=0.8, end=0.95,
                              check=check, messages=count, bytes=length)
    db.drop()
