"""1, 2, 4 workers of one database, all keys distinct, null broker, retention 0.

The null broker, and this program's look at the counters, use the same cores.
"""

import os

from checks import Check
from database import Database
from drain import drain_into_null

TITLE = '10. Several workers'


def run(bench):
    size = bench.sizes(10)
    db = Database(bench, 's10', bench.null, **{'outbox.retention': '0'})
    rates = {n: [] for n in size.workers}
    cpu = {n: [] for n in size.workers}
    checks = {n: Check() for n in size.workers}
    for _ in range(size.repeats):
        for n in size.workers:
            db.set(outbox_workers=n)
            rate, used = drain_into_null(bench, db, size.messages, checks[n])
            rates[n].append(rate)
            cpu[n].append(used.by['relay'] * 1e6 / size.messages)
    for n in size.workers:
        more = n > 1
        bench.results.add(10, '%d worker%s' % (n, 's' if more else ''), 'drain, null broker',
                          'msg/s', rates[n], ('1 worker', rates[1]),
                          first=1.0 if more else None,
                          end=min(n, os.cpu_count()) if more else None, check=checks[n],
                          note='CPU of the workers %.1f us/msg' % sorted(cpu[n])[len(cpu[n]) // 2],
                          messages=size.messages, retention=0, cores=os.cpu_count())
    db.drop()
