"""A pinned vacuum horizon: a REPEATABLE READ reader and an idle transaction with
a transaction id, held while messages go by.

Open loop at a steady rate through RabbitMQ, without the pins (before and after)
and with them.  What is judged is the last fifth of the pinned run, when the dead
rows of all messages before it are still there.
"""

import time

from checks import Check, send_times
from database import Database
import drivers
from latency import sorted_ms
from stats import percentile
from steady import Sampler

TITLE = '7. Pinned horizon'


class Pins:
    def __init__(self, bench, db):
        self.reader = bench.pg.connect(db.name)
        self.writer = bench.pg.connect(db.name)
        self.run(self.reader, 'BEGIN ISOLATION LEVEL REPEATABLE READ')
        self.run(self.reader, 'SELECT count(*) FROM outbox')
        self.run(self.writer, 'BEGIN')
        self.run(self.writer, 'SELECT pg_current_xact_id()')

    @staticmethod
    def run(connection, text):
        with connection.cursor() as c:
            c.execute(text)

    def close(self):
        self.reader.close()
        self.writer.close()


def phase(bench, db, rate, seconds, check):
    """One run: (sampler, arrival times, send times)."""
    bench.rabbit.purge('bench.classic')
    consumer = bench.drivers.consumer(count=rate * seconds, idle_ms=60_000)
    out = bench.drivers.file('sent')
    load = bench.drivers.openloop(bench.pg.conninfo(db.name), drivers.ENQUEUE, rate, seconds,
                                  out)
    try:
        with Sampler(bench, db) as sampler:
            result = load.result(seconds + 300)
            consumer.result(ok=(0, 3))
            time.sleep(1.5)			# the last ones are settled, and sampled
    finally:
        load.kill()
        consumer.kill()
    return sampler, check.add_record(int(result['sent']), consumer.path), send_times(out)


def figures(run, start, end, rate):
    """(messages a second, p99 in ms, CPU us a message) of a part of a run."""
    sampler, arrived, sent = run
    first = min(times[0] for times in sent.values())
    window = {n: times for n, times in sent.items()
              if start <= (times[0] - first) / 1e6 <= end}
    # more than was offered is only what had been late before
    return (min(rate, sampler.rate(start, end)),
            percentile(sorted_ms(arrived, window, 2), 99),
            sampler.cpu_per_message(start, end))


def p99_curve(run, step):
    _, arrived, sent = run
    first = min(times[0] for times in sent.values())
    slots = {}
    for n, times in sent.items():
        if n in arrived and times[2]:
            slots.setdefault(int((times[0] - first) / 1e6 / step), []).append(
                (arrived[n] - times[2]) / 1000)
    return [(slot * step, percentile(sorted(values), 99))
            for slot, values in sorted(slots.items())]


def run(bench):
    size = bench.sizes(7)
    db = Database(bench, 's7', bench.rabbit)
    checks = Check(), Check()
    phase(bench, db, size.rate, 2, Check())			# warm
    base = []
    base.append(phase(bench, db, size.rate, size.base_seconds, checks[0]))
    pins = Pins(bench, db)
    pinned = phase(bench, db, size.rate, size.seconds, checks[1])
    pins.close()
    db.settle_down()
    base.append(phase(bench, db, size.rate, size.base_seconds, checks[0]))

    with_pins = figures(pinned, size.seconds * 0.8, size.seconds, size.rate)
    without = [figures(b, size.base_seconds * 0.2, size.base_seconds, size.rate)
               for b in base]
    note = ('dead tuples at the end %d, relation %d MB; whole pinned run: %.0f msg/s' %
            (pinned[0].rows[-1]['dead'], pinned[0].rows[-1]['relation'] >> 20,
             pinned[0].rate(0, size.seconds)))
    for i, (metric, unit, better, first, end) in enumerate((
            ('throughput', 'msg/s', 'higher', 0.95, 0.99),
            ('commit to consumer, p99', 'ms', 'lower', 1.3, 1.1),
            ('CPU of the worker', 'us/msg', 'lower', 1.2, 1.05))):
        bench.results.add(7, 'horizon pinned, %d messages' % (size.rate * size.seconds),
                          metric, unit, with_pins[i], ('unpinned', [w[i] for w in without]),
                          better=better, first=first, end=end, check=checks[1],
                          note=note, rate=size.rate, seconds=size.seconds)
    if not checks[0].ok():
        raise RuntimeError('baseline without pins: %s' % checks[0])
    step = max(1, size.seconds // 60)
    bench.plots.lines('pinned', 'Pinned horizon: %d msg/s' % size.rate, 'seconds',
                      'p99 (ms)', {
                          'p99 commit to consumer, pinned': p99_curve(pinned, step),
                          'p99, unpinned': p99_curve(base[0], step),
                          'dead tuples (thousands)': pinned[0].curve('dead', 0.001, step)},
                      y2=['dead tuples (thousands)'])
    db.drop()
