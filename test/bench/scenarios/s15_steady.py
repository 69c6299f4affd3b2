"""What a message costs at the rates that most installations run at.

Single commits at a fixed rate by four connections, RabbitMQ with a consumer, in turns with
RAW at the same rate: one librabbitmq publisher that sends each message when it is due.
Compared is the CPU of the worker with that of the publisher, each a message; the notes
have the server's other processes and the broker.
"""

import drivers
from checks import Check
from database import Database
from latency import open_loop, raw_open_loop
from procs import Cpu
from stats import median
from turns import take_turns

TITLE = '15. Steady rates'
# Of the worker's CPU against the publisher's: where it was, and where it must end up.
TARGETS = {100: (2.4, 1.3), 1000: (2.4, 1.3), 3000: (2.4, 1.0)}
PROCESSES = ('backends', 'walwriter', 'launcher', 'checkpointer', 'autovacuum', 'broker')


def run_rate(bench, db, size, rate):
    check = Check()
    others = []

    def this():
        db.empty()
        with Cpu(bench.pg, bench.rabbit.pid) as cpu:
            open_loop(bench, db, rate, size.seconds, check, connections=4)
            db.wait_empty()
        count = rate * size.seconds
        others.append({name: cpu.by.get(name, 0) * 1e6 / count for name in PROCESSES})
        return cpu.by['relay'] * 1e6 / count

    worker, publisher = take_turns(size.repeats, this,
                                   lambda: raw_open_loop(bench, rate, size.seconds)[2]['cpu_us'], warm=True)
    note = 'us a message of ' + ', '.join(
        '%s %.0f' % (name, median([o[name] for o in others])) for name in PROCESSES)
    first, end = TARGETS.get(rate, (None, None))
    bench.results.add(15, '%d msg/s' % rate, 'CPU of the worker a message', 'us', worker,
                      ('RAW', publisher), better='lower', first=first, end=end, check=check,
                      note=note, rate=rate, seconds=size.seconds, bytes=256, connections=4)


def run(bench):
    size = bench.sizes(15)
    db = Database(bench, 's15', bench.rabbit)
    open_loop(bench, db, 100, 1, Check(), drivers.ENQUEUE)
    for rate in size.rates:
        run_rate(bench, db, size, rate)
    db.drop()
