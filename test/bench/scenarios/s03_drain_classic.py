"""A backlog into a classic durable queue, default settings (archive included).

With the CPU of every process, and once more with the broker on one core and the server
and RAW on another: what the scheduler makes of two cores is not in the ratio then.
"""

import os
from contextlib import nullcontext

import others
from checks import Check
from database import Database
from drain import drain_into_queue, poll_drain
from procs import Bound, Cpu, group_cpu_seconds
from stats import median
from turns import take_turns

TITLE = '3. Drain, classic queue'


class Account:
    """CPU of all processes, microseconds a message, of the runs of both sides."""

    def __init__(self):
        self.runs = {'outbox': [], 'RAW': []}

    def add(self, side, by):
        self.runs[side].append(by)

    def text(self):
        return '. '.join('us a message, %s: %s' % (side, ', '.join(
            '%s %.1f' % (name, median([run.get(name, 0) for run in runs])) for name in runs[0]
            if median([run.get(name, 0) for run in runs]) >= 0.05))
            for side, runs in self.runs.items())


def against_raw(bench, db, size, case, bound=False):
    check, account = Check(), Account()
    count = size.messages

    def raw_side():
        before = group_cpu_seconds(bench.rabbit.pid)
        result = bench.drivers.raw_into_queue(count)
        account.add('RAW', {'publisher': result['cpu_us'], 'broker': (
            group_cpu_seconds(bench.rabbit.pid) - before) * 1e6 / count})
        return result['rate']

    def this_side():
        cpu = Cpu(bench.pg, bench.rabbit.pid)
        rate = drain_into_queue(bench, db, count, check, around=cpu)
        account.add('outbox', cpu.per_message(count))
        return rate
    with Bound(bench) if bound else nullcontext():
        raw, this = take_turns(size.repeats, raw_side, this_side)
    bench.results.add(3, case, 'drain', 'msg/s', this, ('RAW', raw), first=0.80, end=0.95,
                      check=check, messages=count, bytes=256, note=account.text())


def compare(bench, db, case, count, repeats, drain, raw_count, **settings):
    """Somebody else's relay against RAW."""
    check = Check()
    rate, raw = take_turns(
        repeats, lambda: drain(check),
        lambda: bench.drivers.raw_into_queue(raw_count)['rate'])
    bench.results.add(3, case + ' for comparison', 'drain', 'msg/s', rate, ('RAW', raw),
                      check=check, messages=count, bytes=256, **settings)


def run(bench):
    size = bench.sizes(3)
    db = Database(bench, 's3', bench.rabbit)
    db.make_poll()
    against_raw(bench, db, size, 'classic queue, one worker')
    if os.cpu_count() > 1:
        against_raw(bench, db, size, 'the same, broker and server bound to a core each', True)
    for name, count, seed in (('POLL', size.messages, False), ('SEED', size.seed, True)):
        compare(bench, db, name, count, size.poll_repeats, lambda check: poll_drain(
            bench, db, count, check, bench.rabbit, seed=seed), size.messages,
            batch=1 if seed else 500)
    for name in others.RUN:
        if others.program(name):
            compare(bench, db, name, size.messages, size.poll_repeats,
                    lambda check: others.drain(bench, db, name, size.messages, check),
                    size.messages)
        else:
            print('  %s: not given (%s)' % (name, others.VARIABLES[name]), flush=True)
    db.drop()
