"""Open-loop latencies, for scenarios 6, 7 and 9: one clock, sorted milliseconds."""

import os

import drivers
from checks import raw_times, send_times
from stats import percentile


def sorted_ms(arrived, sent, column):
    """From a column of the send times (0 due, 1 sent, 2 committed) to the arrival."""
    return sorted((arrived[n] - times[column]) / 1000 for n, times in sent.items()
                  if n in arrived and times[column])


def settled_ms(db, sent):
    """From commit to settled, for messages that are in the archive."""
    rows = db.sql("SELECT (payload->>'n')::bigint,"
                  ' (extract(epoch FROM published_at) * 1000000)::bigint FROM outbox_archive'
                  " WHERE payload ? 'n'")
    return sorted_ms(dict((int(n), int(us)) for n, us in rows), sent, 2)


def open_loop(bench, db, rate, seconds, check, statement=drivers.ENQUEUE, first=1,
              queue='bench.classic', wait=60, connections=8):
    """Enqueues at a rate with a consumer on the queue.

    Returns (arrival times by number, send times by number, openloop's own result).
    """
    bench.rabbit.purge(queue)
    consumer = bench.drivers.consumer(queue, count=rate * seconds, idle_ms=wait * 1000)
    out = bench.drivers.file('sent')
    load = bench.drivers.openloop(db.pg.conninfo(db.name), statement, rate, seconds, out,
                                  first=first, connections=connections)
    try:
        result = load.result()
        consumer.result(ok=(0, 3))
    finally:
        load.kill()
        consumer.kill()
    return check.add_record(int(result['sent']), consumer.path), send_times(out), result


def raw_open_loop(bench, rate, seconds, queue='bench.classic'):
    """RAW at the same rate: (arrival times, send times, raw's own result)."""
    count = rate * seconds
    bench.rabbit.purge(queue)
    consumer = bench.drivers.consumer(queue, count=count, idle_ms=30_000)
    out = bench.drivers.file('raw-sent')
    try:
        result = bench.drivers.raw(bench.rabbit, count, exchange=queue, rate=rate, out=out)
        consumer.result(ok=(0, 3))
    finally:
        consumer.kill()
    times = raw_times(consumer.path)
    if len(times) != count:
        raise RuntimeError('RAW: %d messages sent, %d arrived' % (count, len(times)))
    os.unlink(consumer.path)
    return times, send_times(out), result


def quantiles(values):
    return [percentile(values, p) for p in (50, 99)]
