"""Flat: a live route in a server that is full of everything else, against an empty server.

The full one has, times the factor: 10,000 routes, and 8,000 that were deleted after its
worker had loaded them; 200,000 keys held by a failed message each, with one waiting behind
it; a million failed, a million scheduled, half of these for one instant; 5 million waiting
for a paused route; and 200 databases of which five have work, with eight workers for all.
Both servers have the same settings and run in turns; idle, they are looked at together,
when the sweep is over that the last writes have earned.

With --keep DIR the full server is in DIR and stays: each step of filling is done once.
"""

import os
import threading
import time
from types import SimpleNamespace

import drivers
from checks import Check
from database import PAYLOAD, Database
from latency import open_loop, quantiles, sorted_ms
from procs import children, cpu_seconds, kind, read, rss_kb
from scenarios.s13_idle import set_autovacuum, wait_still
from servers import Postgres
from turns import take_turns

TITLE = '16. Flat'

ROUTES, DELETED, HELD = 10_000, 8_000, 200_000
FAILED, SCHEDULED, WAITING, DATABASES = 1_000_000, 1_000_000, 5_000_000, 200
BUSY = 4				# databases with work, beside the measured one
CONF = 'outbox.max_workers = 8\n'
STEP = 100_000			# rows a statement

ROUTE = ("INSERT INTO outbox_route (name, exchange, paused, on_failed)"
         " VALUES ('%s', '%s', %s, '%s')")
# As if they had failed long ago: no triggers.
FAIL = ("INSERT INTO outbox (route, event_type, aggregate_type, aggregate_id, payload, status,"
        " attempts, last_error) SELECT '%s', 'bench.event', 'bench', '%s ' || i,"
        " jsonb_build_object('pad', repeat('x', 200)), 'failed', 10,"
        " 'returned by the broker: 312 NO_ROUTE' FROM generate_series(%d, %d) i")
WAIT = ("INSERT INTO outbox (route, event_type, aggregate_type, aggregate_id, payload,"
        " available_at) SELECT '%s', 'bench.event', 'bench', '%s ' || i, %s, %s"
        " FROM generate_series(%d, %d) i")
YEAR = "date_trunc('year', now()) + interval '2 years'"


class Full:
    """The server that is full; what has been done is in a table of its first database."""

    def __init__(self, bench, size):
        self.bench = bench
        self.factor = bench.factor or size.factor
        directory = bench.keep or os.path.join(bench.tmp, 'full')
        self.pg = Postgres(directory, bench.bindir, CONF)
        self.db = Database(bench, 'flat', bench.rabbit, pg=self.pg, keep=True)
        self.db.sql('CREATE TABLE IF NOT EXISTS bench_done (step text PRIMARY KEY)')
        self.busy = []

    def count(self, full, least=1):
        return max(least, int(full * self.factor))

    def step(self, name, function):
        if self.db.value('SELECT count(*) FROM bench_done WHERE step = %s', (name,)) == 0:
            start = time.monotonic()
            # one that is interrupted leaves nothing
            self.db.sql('BEGIN')
            function()
            self.db.sql('INSERT INTO bench_done VALUES (%s)', (name,))
            self.db.sql('COMMIT')
            print('      %s: %.0f s' % (name, time.monotonic() - start), flush=True)

    def rows(self, count, text, *args, silent=False):
        """Rows by several statements of INSERT."""
        if silent:
            self.db.sql('SET session_replication_role = replica')
        for first in range(1, count + 1, STEP):
            self.db.sql(text % (*args, first, min(first + STEP - 1, count)))
        self.db.sql('RESET session_replication_role')

    def routes(self):
        for name, paused, on_failed in (('paused', True, 'skip'), ('blocking', False, 'block')):
            self.db.sql(ROUTE % (name, self.db.exchange, paused, on_failed))
        self.more_routes('route', self.count(ROUTES))

    def more_routes(self, name, count):
        self.db.sql("INSERT INTO outbox_route (name, exchange) SELECT '%s ' || i, '%s'"
                    ' FROM generate_series(1, %d) i ON CONFLICT DO NOTHING'
                    % (name, self.db.exchange, count))

    def held(self):
        count = self.count(HELD)
        self.rows(count, FAIL, 'blocking', 'held', silent=True)
        self.rows(count, WAIT, 'blocking', 'held', "'{}'", 'NULL')

    def scheduled(self):
        half = self.count(SCHEDULED) // 2
        self.rows(half, WAIT, 'default', 'at once', "'{}'", YEAR)
        self.rows(half, WAIT, 'default', 'later', "'{}'", YEAR + " + i * interval '1 us'")

    def databases(self):
        for i in range(BUSY + 1, self.count(DATABASES, BUSY + 2)):
            name = 'bench_idle_%d' % i
            with self.pg.connect().cursor() as c:
                c.execute('DROP DATABASE IF EXISTS %s WITH (FORCE)' % name)
                c.execute('CREATE DATABASE %s' % name)
            with self.pg.connect(name).cursor() as c:
                c.execute('CREATE EXTENSION outbox')

    def fill(self):
        self.db.pause()
        for function in (self.routes, self.held, self.scheduled, self.databases):
            self.step(function.__name__, function)
        self.step('failed', lambda: self.rows(self.count(FAILED), FAIL, 'default', 'failed',
                                              silent=True))
        self.step('waiting', lambda: self.rows(
            self.count(WAITING), WAIT, 'paused', 'waiting',
            PAYLOAD.format(k='i', n='i', size=256), 'NULL'))
        self.db.settle_down('outbox')
        self.db.sql('SELECT outbox_resume()')
        self.busy = [Database(self.bench, 'busy_%d' % i, self.bench.rabbit, queue='quorum',
                              pg=self.pg, keep=True) for i in range(BUSY)]
        with self.pg.connect().cursor() as c:
            c.execute("ALTER SYSTEM SET outbox.broker_uri = '%s'" % self.bench.rabbit.uri)
            c.execute('SELECT pg_reload_conf()')

    def delete_routes(self):
        """So many that the worker has loaded."""
        self.more_routes('deleted', self.count(DELETED))
        send_one(self.db)
        self.db.sql("DELETE FROM outbox_route WHERE name LIKE 'deleted %'")
        self.db.sql("UPDATE outbox_route SET paused = paused WHERE name = 'paused'")
        send_one(self.db)


def last_number(db):
    return db.value("SELECT pg_sequence_last_value(pg_get_serial_sequence('outbox', 'seq'))") or 0


def settled_after(db, number):
    """Of what was enqueued after that number.  Not by the counters: where databases take
    turns, each worker has its own."""
    return db.value("SELECT NOT EXISTS (SELECT FROM outbox WHERE seq > %d AND status = 'pending'"
                    ' AND available_at IS NULL AND outlet IS NULL)' % number)


def send_one(db):
    """Returns how long it took until a message was settled."""
    before, start = last_number(db), time.monotonic()
    db.enqueue(1)
    db.wait('a message', lambda: settled_after(db, before), 120, every=0.005)
    return time.monotonic() - start


def start_time(db):
    """From a server that takes connections to the first message settled."""
    db.connection.close()
    db.pg.stop('fast')
    db.pg.start()
    start = time.monotonic()
    db.connection = db.pg.connect(db.name)
    send_one(db)
    return time.monotonic() - start


def steady(bench, db, size, check, figures, busy=()):
    """Adds p50, p99 and the CPU a message of the database's workers of one run to figures."""
    count = size.rate * size.seconds
    send_one(db)
    beside = [bench.drivers.openloop(b.pg.conninfo(b.name), drivers.ENQUEUE, 10, size.seconds,
                                     bench.drivers.file('busy'), connections=1) for b in busy]
    number = last_number(db)
    try:
        with Workers(db, of_database=True) as cpu:
            arrived, sent, _ = open_loop(bench, db, size.rate, size.seconds, check)
            db.wait('%d messages' % count, lambda: settled_after(db, number), 180)
        figures['CPU'].append(cpu.seconds() * 1e6 / count)
        for load in beside:
            load.result()
    finally:
        for load in beside:
            load.kill()
    for name, value in zip(('p50', 'p99'), quantiles(sorted_ms(arrived, sent, 2))):
        figures[name].append(value)


class Workers:
    """CPU seconds of a server's relay workers, or of those of one database, over a block.
    Where databases take turns they come and go, so they are looked at ten times a second."""

    def __init__(self, db, of_database=False):
        self.server = db.pg.pid
        # the end of their name in ps
        self.title = ' %d ' % db.value(
            'SELECT oid FROM pg_database WHERE datname = current_database()') if of_database else ''
        self.first, self.last = self.look(), {}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.follow)

    def look(self):
        found = {}
        for pid in children(self.server):
            try:
                if kind(pid) == 'relay' and self.title in read('/proc/%d/cmdline' % pid).replace('\0', ' '):
                    found[pid] = cpu_seconds(pid)
            except OSError:
                pass			# it has just ended
        return found

    def follow(self):
        while not self.ended.wait(0.1):
            self.last.update(self.look())

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        self.last.update(self.look())

    def seconds(self):
        return sum(self.last.values()) - sum(self.first.get(pid, 0) for pid in self.last)


def worker_pid(db):
    """Where databases take turns it may have none now."""
    while not (pids := db.worker_pids()):
        send_one(db)
    return pids[0]


def wait_read(db):
    """Until the worker has read what was there at its start."""
    used = 1
    while used > 0.1:
        with Workers(db, of_database=True) as cpu:
            time.sleep(1)
        used = cpu.seconds()


def memory_mb(db):
    return rss_kb(worker_pid(db)) / 1024


def look(db):
    """What a server has used: seconds of our processes, WAL, transaction ids."""
    wal = db.wal_position()
    return dict(wal=wal,
                launcher=sum(cpu_seconds(pid) for pid in children(db.pg.pid)
                             if kind(pid) == 'launcher'),
                xids=int(db.value('SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint')),
                time=time.monotonic())


def wait_swept(dbs):
    """Until no sweep has read an entry for longer than the minute between two sweeps: what
    was written last has earned one, which at full size takes up to 47 minutes."""
    def entries():
        return [db.value("SELECT idx_tup_read FROM pg_stat_all_indexes"
                         " WHERE indexrelname = 'outbox_ready'") for db in dbs]
    before, now, deadline = None, entries(), time.monotonic() + 7200
    while now != before:
        if time.monotonic() > deadline:
            raise RuntimeError('the sweep does not end')
        time.sleep(70)
        before, now = now, entries()


def idle(dbs, seconds):
    """What each has used in these seconds; and whether the WAL came to rest before."""
    still = True
    for db in dbs:
        set_autovacuum(db, 'ALTER SYSTEM SET autovacuum = off')
        # else the next look at a page removes its dead rows, which is a record of WAL
        db.settle_down('outbox', 'outbox_archive')
    wait_swept(dbs)
    try:
        wait_still(SimpleNamespace(wal_position=lambda: sum(db.wal_position() for db in dbs)), 60)
    except RuntimeError:
        still = False
    before = [look(db) for db in dbs]
    with Workers(dbs[0]) as first, Workers(dbs[1]) as second:
        time.sleep(seconds)
    after = [look(db) for db in dbs]
    for db in dbs:
        set_autovacuum(db, 'ALTER SYSTEM RESET autovacuum')
    return [{name: a[name] - b[name] for name in a} | {'workers': cpu.seconds()}
            for a, b, cpu in zip(after, before, (first, second))], still


def report(bench, size, full, empty, starts, figures, checks):
    def add(metric, unit, this, that, check=None, **targets):
        bench.results.add(16, 'factor %g' % full.factor, metric, unit, this,
                          ('empty server', that), better='lower', check=check,
                          rate=size.rate, seconds=size.seconds, bytes=256, **targets)
    add('start to first message settled', 's', *starts, judge='this', end=2)
    for metric, unit, name, end in (('commit to consumer, p50', 'ms', 'p50', None),
                                    ('commit to consumer, p99', 'ms', 'p99', 2),
                                    ('CPU of the worker a message', 'us', 'CPU', 1.1)):
        add(metric, unit, figures['full'][name], figures['empty'][name], checks, end=end)
    add('memory of the worker', 'MB', memory_mb(full.db), memory_mb(empty))
    (this, that), still = idle((full.db, empty), size.idle)
    note = 'for %d s; launcher %.3f %%%s' % (
        size.idle, 100 * this['launcher'] / this['time'],
        '' if still else '; the WAL did not come to rest within a minute')
    for metric, unit, name, scale, end in (
            ('idle: CPU of all workers', '%', 'workers', 100 / this['time'], 0.1),
            ('idle: WAL', 'bytes', 'wal', 1, 0), ('idle: transaction ids', 'xids', 'xids', 1, 0)):
        add(metric, unit, this[name] * scale, that[name] * scale, judge='this', end=end,
            note=note)


def measure(bench, size, full, empty):
    figures = {name: {'p50': [], 'p99': [], 'CPU': []} for name in ('full', 'empty')}
    checks = Check()
    starts = [start_time(full.db), start_time(empty)]
    wait_read(full.db)
    full.delete_routes()
    for db in full.db, empty:
        open_loop(bench, db, size.rate, 1, Check())
    take_turns(size.repeats,
               lambda: steady(bench, full.db, size, checks, figures['full'], full.busy),
               lambda: steady(bench, empty, size, checks, figures['empty']))
    report(bench, size, full, empty, starts, figures, checks)


def run(bench):
    size = bench.sizes(16)
    empty = Postgres(os.path.join(bench.tmp, 'empty'), bench.bindir, CONF)
    full = None
    try:
        full = Full(bench, size)
        full.fill()
        measure(bench, size, full, Database(bench, 'flat', bench.rabbit, pg=empty))
    finally:
        for server in (empty, full and full.pg):
            if server:
                server.stop('fast')
        bench.rabbit.purge('bench.quorum')
