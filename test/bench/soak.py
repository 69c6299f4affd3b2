"""The soak: a relay that always has work, for so many minutes (make bench-soak).

As scenario 5 (null broker, retention 0, one worker), but the messages keep
coming, from two producers that keep a backlog of some ten thousands as long as
they are faster than the relay, with autovacuum and checkpoints as configured.  On
two cores that is the limit of the whole: an enqueue costs more than its relay.
On the way:

    1/3 to 1/2 of the time      the vacuum horizon is pinned, as in scenario 7
    2/3, for 1/60 of the time   the broker is away, as in scenario 8
    all of the time             archived rows are there, as in scenario 9

The last five minutes must be as the first five (a sixth of the time where that
is less).  An interruption of the link may publish outbox.window messages twice.
"""

import importlib
import threading
import time

from checks import Check
from database import Database
from stats import median
from steady import Sampler

TITLE = 'Soak'

BACKLOG = 50_000
BATCH = 2000
KEYS = 100_000
PATIENCE = 30			# the longest wait for the next connect, and some

s07 = importlib.import_module('scenarios.s07_pinned_horizon')
s09 = importlib.import_module('scenarios.s09_large_tables')


class Producers:
    """Keep the backlog up, in transactions of BATCH messages.

    They take batches in turns, and KEYS / BATCH is a multiple of their number: each
    has keys of its own, whose order is that of the numbers.
    """

    def __init__(self, bench, db, count=2):
        self.db = db
        self.count = count
        self.before = db.published()
        self.sent = [0] * count			# batches
        self.error = None
        self._end = threading.Event()
        self.connections = [bench.pg.connect(db.name) for _ in range(count)]
        self.pids = [c.info.backend_pid for c in self.connections]
        self._threads = [threading.Thread(target=self._run, args=(i,), daemon=True)
                         for i in range(count)]
        for thread in self._threads:
            thread.start()

    def messages(self):
        return sum(self.sent) * BATCH

    def _published(self, cursor):
        cursor.execute('SELECT coalesce(sum(published), 0) FROM outbox_workers')
        return int(cursor.fetchone()[0]) - self.before

    def _run(self, i):
        try:
            with self.connections[i].cursor() as c:
                while not self._end.is_set():
                    if self.messages() - self._published(c) > BACKLOG:
                        time.sleep(0.005)
                        continue
                    first = (self.sent[i] * self.count + i) * BATCH + 1
                    c.execute(self.db.enqueue_text(first, first + BATCH - 1, KEYS))
                    self.sent[i] += 1
        except Exception as error:  # pylint: disable=broad-except
            self.error = error

    def stop(self):
        self._end.set()
        for thread, connection in zip(self._threads, self.connections):
            thread.join()
            connection.close()
        if self.error:
            raise self.error


class Interruptions:
    """What happens on the way, at its time."""

    def __init__(self, bench, db, seconds):
        self.start = time.monotonic()
        self.pins = None
        self.todo = [(seconds / 3, lambda: self.pin(bench, db)),
                     (seconds / 2, self.unpin),
                     (seconds * 2 / 3, lambda: bench.null.command('away')),
                     (seconds * 2 / 3 + seconds / 60, lambda: bench.null.command('back'))]

    def pin(self, bench, db):
        self.pins = s07.Pins(bench, db)

    def unpin(self):
        self.pins.close()

    def step(self):
        while self.todo and time.monotonic() - self.start >= self.todo[0][0]:
            self.todo.pop(0)[1]()


def field(rows, name):
    return median([row[name] for row in rows])


def report(bench, db, sampler, seconds, check):
    part = min(300, seconds / 6)
    warm = min(10, part / 4)
    first = (warm, warm + part)
    last = (seconds - part, seconds)
    early, late = sampler.between(*first), sampler.between(*last)
    common = dict(minutes=seconds / 60, bytes=256, keys=KEYS, retention=0, backlog=BACKLOG)
    case = 'last %.0f s against the first' % part
    bench.results.add('soak', case, 'throughput', 'msg/s', sampler.rate(*last),
                      ('first', sampler.rate(*first)), first=0.99, end=0.99, check=check,
                      note='messages: %d' % check.expected, **common)
    bench.results.add('soak', case, 'CPU of the worker', 'us/msg',
                      sampler.cpu_per_message(*last),
                      ('first', sampler.cpu_per_message(*first)), better='lower',
                      check=check, **common)
    bench.results.add('soak', case, 'CPU of the producers', 'us/msg',
                      sampler.cpu_per_message(*last, 'others_cpu'),
                      ('first', sampler.cpu_per_message(*first, 'others_cpu')), better='lower',
                      check=check, **common)
    for name, metric, unit, target in (('relation', 'outbox with indexes', 'bytes', None),
                                       ('dead', 'dead tuples', 'rows', None),
                                       ('rss', 'RSS of the worker, without shared', 'kB', 1.1),
                                       ('fds', 'descriptors of the worker', 'open', 1.1)):
        bench.results.add('soak', case, metric, unit, field(late, name),
                          ('first', field(early, name)), better='lower', end=target,
                          note='highest of all: %d' % max(r[name] for r in sampler.rows),
                          check=check, **common)
    step = max(1, len(sampler.rows) // 120)
    bench.plots.lines('soak', 'Steady state: null broker, one worker', 'seconds', 'messages/s',
                      {'messages/s': sampler.rate_curve(step),
                       'outbox with indexes (MB)': sampler.curve('relation', 1e-6, step)},
                      y2=['outbox with indexes (MB)'])


def run(bench):
    seconds = bench.minutes * 60
    db = Database(bench, 'soak', bench.null, **{'outbox.retention': '0'})
    s09.fill_archive(db, bench.sizes('soak').archived)
    db.settle_down('outbox', 'outbox_archive')
    bench.null.reset()
    producers = Producers(bench, db)
    events = Interruptions(bench, db, seconds)
    try:
        with Sampler(bench, db, others=producers.pids) as sampler:
            while time.monotonic() - events.start < seconds:
                events.step()
                time.sleep(0.05)
    finally:
        producers.stop()
    db.wait_empty(PATIENCE * 4)
    stats = bench.null.stats()
    window = int(db.value('SHOW outbox."window"'))
    check = Check()
    check.add(producers.messages(), stats['unique'], max(0, stats['duplicates'] - window),
              stats['inversions'])
    report(bench, db, sampler, seconds, check)
    bench.results.add('soak', 'one interruption', 'duplicates', 'messages',
                      stats['duplicates'], judge='this', better='lower', first=window,
                      end=window, check=check)
    db.drop()
