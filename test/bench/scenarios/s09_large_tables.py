"""Large tables: an archive of millions, failed rows, and rows of a paused route in
front of the live ones, against a database without them.

Both databases are in one server and run in turns.  Drains go to the null broker,
latencies through RabbitMQ.  Rows are not truncated in either, but vacuumed.
"""

from checks import Check
from database import Database
from drain import drain_into_null
from latency import open_loop, sorted_ms
from stats import percentile

TITLE = '9. Large tables'

# All columns that matter for size; today's partition.
ARCHIVE = """INSERT INTO outbox_archive (seq, id, route, event_type, aggregate_type,
    aggregate_id, payload, created_at, attempts, published_at)
SELECT -i, outbox_uuid7(), 'default', 'bench.event', 'bench', i::text,
    jsonb_build_object('pad', repeat('x', 240)), now(), 0, now()
FROM generate_series(%d, %d) i"""

# Straight into the table, as if they had failed long ago: no triggers.
FAILED = """SET session_replication_role = replica;
INSERT INTO outbox (event_type, aggregate_type, aggregate_id, payload, status, attempts,
    last_error)
SELECT 'bench.event', 'bench', 'failed ' || i, jsonb_build_object('pad', repeat('x', 200)),
    'failed', 10, 'returned by the broker: 312 NO_ROUTE'
FROM generate_series(1, %d) i;
RESET session_replication_role"""


def fill_archive(db, count):
    while db.value("SELECT outbox_archive_maintain('1d')"):
        pass
    for first in range(1, count, 1_000_000):
        db.sql(ARCHIVE % (first, min(first + 999_999, count)))


def fill(db, size):
    db.pause()
    fill_archive(db, size.archived)
    db.sql(FAILED % size.failed)
    db.sql("INSERT INTO outbox_route (name, exchange, paused) VALUES ('parked', '%s', true)"
           % db.exchange)
    db.enqueue(size.parked, first=1_000_000_000, route='parked')
    db.settle_down('outbox', 'outbox_archive')


def run(bench):
    size = bench.sizes(9)
    empty = Database(bench, 's9_empty', bench.null)
    full = Database(bench, 's9_full', bench.null)
    fill(full, size)
    names = ('full', full), ('empty', empty)
    checks = {name: Check() for name, _ in names}
    rates = {name: [] for name, _ in names}
    cpu = {name: [] for name, _ in names}
    p99 = {name: [] for name, _ in names}
    for i in range(size.repeats):
        for name, db in names[::-1 if i % 2 else 1]:
            rate, used = drain_into_null(bench, db, size.messages, checks[name],
                                         truncate=False)
            rates[name].append(rate)
            cpu[name].append(used.by['relay'] * 1e6 / size.messages)
    for _, db in names:
        db.set(outbox_broker_uri=bench.rabbit.uri)
        open_loop(bench, db, size.rate, 1, Check())
    for i in range(size.repeats):
        for name, db in names[::-1 if i % 2 else 1]:
            arrived, sent, _ = open_loop(bench, db, size.rate, size.seconds, checks[name])
            p99[name].append(percentile(sorted_ms(arrived, sent, 2), 99))
    if not checks['empty'].ok():
        raise RuntimeError('empty tables: %s' % checks['empty'])
    case = '%d archived, %d failed, %d parked' % (size.archived, size.failed, size.parked)
    for metric, unit, values, better, first, end in (
            ('drain, null broker', 'msg/s', rates, 'higher', 0.9, 0.98),
            ('commit to consumer, p99', 'ms', p99, 'lower', 1.3, 1.1),
            ('CPU of the worker', 'us/msg', cpu, 'lower', None, None)):
        bench.results.add(9, case, metric, unit, values['full'],
                          ('empty tables', values['empty']), better=better, first=first,
                          end=end, check=checks['full'], messages=size.messages,
                          rate=size.rate)
    full.drop()
    empty.drop()
