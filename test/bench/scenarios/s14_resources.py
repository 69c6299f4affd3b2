"""What a message costs from its enqueue to its settling, by kind of process.

pgbench, single-row transactions, a fixed number, with the relay working beside
it (null broker, so that RabbitMQ's processor time is not in the way) until
everything is settled; INS and POLL the same way.  Figures are for a million
messages.  A checkpoint comes before each run and its full-page images are in
the WAL of all of them.
"""

import time

from checks import Check
from database import Database
import drivers
from procs import Cpu, rss_kb

TITLE = '14. Resources a million messages'


class Cost:
    """CPU seconds, WAL bytes and dead tuples over a block."""

    def __init__(self, bench, db, table):
        self.bench, self.db, self.table = bench, db, table

    def __enter__(self):
        self.db.sql('SELECT pg_stat_force_next_flush()')
        self.wal = self.db.wal_position()
        self.dead = self.db.dead_tuples(self.table)
        self.cpu = Cpu(self.bench.pg, self.bench.null.pid)
        self.cpu.__enter__()
        return self

    def __exit__(self, *error):
        self.cpu.__exit__(*error)
        self.wal = self.db.wal_position() - self.wal
        time.sleep(1.5)				# statistics of sessions that are idle now
        self.dead = self.db.dead_tuples(self.table) - self.dead


def measure(bench, db, size, table, check):
    """One run on a table: outbox, ins_outbox, poll_outbox."""
    db.empty(table, *(['outbox_archive'] if table == 'outbox' else []))
    db.sql('CHECKPOINT')
    bench.null.reset()
    count = size.messages // size.clients * size.clients
    poll = None
    if table == 'poll_outbox':
        poll = bench.drivers.poll(bench.pg.conninfo(db.name), table, bench.null.port,
                                  count=count)
    statement = drivers.ENQUEUE if table == 'outbox' else drivers.INSERT % table
    with Cost(bench, db, table) as cost:
        bench.drivers.pgbench(db, statement, size.clients,
                              transactions=size.messages // size.clients)
        if table == 'outbox':
            db.wait_empty(300)
        if poll:
            cost.poll_cpu = poll.result()['cpu_us'] * count / 1e6
    if table != 'ins_outbox':
        check.add_null(count, bench.null.stats())
    cost.rss = max([rss_kb(p) for p in db.worker_pids()])
    cost.count = count
    return cost


def report(bench, size, name, costs, ins, check, judged):
    def per_million(get):
        return [get(c) * 1e6 / c.count for c in costs]
    base = [c.wal * 1e6 / c.count for c in ins]
    common = dict(messages=size.messages, clients=size.clients, bytes=256)
    split = {k: round(v * 1e6 / costs[-1].count, 2) for k, v in costs[-1].cpu.by.items()}
    if hasattr(costs[-1], 'poll_cpu'):
        split['external relay'] = round(costs[-1].poll_cpu * 1e6 / costs[-1].count, 2)
    bench.results.add(14, name, 'CPU of PostgreSQL', 's per 1M',
                      per_million(lambda c: c.cpu.postgres()),
                      ('INS', [c.cpu.postgres() * 1e6 / c.count for c in ins]),
                      better='lower', check=check, note='seconds by process: %s' % split, **common)
    bench.results.add(14, name, 'WAL', 'bytes per 1M', per_million(lambda c: c.wal),
                      ('INS', base), better='lower', end=1.3 if judged else None,
                      check=check, **common)
    bench.results.add(14, name, 'dead tuples', 'a message',
                      [c.dead / c.count for c in costs], judge='this', better='lower',
                      end=1.01 if judged else None, check=check, **common)
    if judged is not None:
        bench.results.add(14, name, 'RSS of the worker, without shared', 'kB',
                          [c.rss for c in costs], judge='this', better='lower',
                          check=check, **common)


def run(bench):
    size = bench.sizes(14)
    db = Database(bench, 's14', bench.null, **{'outbox.retention': '0'})
    db.make_ins()
    db.make_poll()
    cases = (('retention 0', 'outbox', True), ('retention 1d', 'outbox', False),
             ('POLL for comparison', 'poll_outbox', None))
    ins = []
    costs = {name: [] for name, _, _ in cases}
    checks = {name: Check() for name, _, _ in cases}
    for _ in range(size.repeats):
        ins.append(measure(bench, db, size, 'ins_outbox', None))
        for name, table, _ in cases:
            if name.startswith('retention'):
                db.set(outbox_retention=name.split()[1])
            costs[name].append(measure(bench, db, size, table, checks[name]))
    for name, _, judged in cases:
        report(bench, size, name, costs[name], ins, checks[name], judged)
    db.drop()
