"""Bodies from 100 bytes to 1 MB, plain and with TLS, through RabbitMQ, against RAW of
the same size.  The bodies are random bytes, which neither TOAST nor anybody else
can compress.

With the default retention every body is written once more, into the archive; from
16 kB on, retention 0 is reported beside it.
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


def measure(bench, db, size, length, case, first, end, **settings):
    """One row of the table."""
    tls = db.settings['outbox.broker_uri'].startswith('amqps')
    count = size.sizes[length]
    check = Check()
    raw, this = take_turns(
        size.repeats,
        lambda: bench.drivers.raw_into_queue(
            count, size=length, tls=tls)['rate'] * length / 1e6,
        lambda: drain(bench, db, count, length, check))
    bench.results.add(12, '%s, %s' % (name_of(length), case), 'drain', 'MB/s', this,
                      ('RAW', raw), first=first, end=end, check=check, messages=count,
                      bytes=length, **settings)


def run(bench):
    size = bench.sizes(12)
    db = Database(bench, 's12', bench.rabbit,
                  **{'outbox.tls_ca_file': bench.rabbit.ca_file})
    for length in size.sizes:
        measure(bench, db, size, length, 'plain', 0.8, 0.95)
    db.set(outbox_retention='0')
    for length in size.sizes:
        if length >= 16384:
            measure(bench, db, size, length, 'plain, retention 0', None, None, retention=0)
    db.set(outbox_broker_uri=bench.rabbit.tls_uri, outbox_retention='1d')
    for length in size.sizes:
        measure(bench, db, size, length, 'TLS', 0.8, 0.95)
    db.drop()
