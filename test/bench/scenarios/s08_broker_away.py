"""The broker is stopped for minutes while messages come, and then started again.

While it is away: an open loop at a steady rate makes the backlog, and closed
loops of pgbench on the outbox and on INS, in turns, show what enqueue costs
meanwhile.  Afterwards the whole backlog drains; the rate counts from the first
message that is published, and RAW runs before and after.
"""

import time

from checks import Check
from database import Database
import drivers
from drain import take_record
from turns import take_turns

TITLE = '8. Broker away'


def while_away(bench, db, size):
    """Makes the backlog; (its size, TPS of this, TPS of INS)."""
    count = 0
    bursts = 0
    end = time.monotonic() + size.away_seconds
    db.sql('CHECKPOINT')

    def enqueue():
        nonlocal count, bursts
        bursts += 1
        result = bench.drivers.pgbench(db, drivers.ENQUEUE, 4, size.burst_seconds,
                                       base=100_000_000 * bursts)
        count += result['count']
        return result['tps']

    def insert():
        db.empty('ins_outbox')
        return bench.drivers.pgbench(db, drivers.INSERT % 'ins_outbox', 4,
                                     size.burst_seconds)['tps']
    this, ins = take_turns(size.bursts, enqueue, insert)
    seconds = max(1, int(end - time.monotonic()))
    # above the numbers of pgbench, with whose keys it shares some
    load = bench.drivers.openloop(bench.pg.conninfo(db.name), drivers.ENQUEUE, size.rate,
                                  seconds, bench.drivers.file('sent'), first=2_000_000_000)
    try:
        result = load.result(seconds + 120)
    finally:
        load.kill()
    return count + int(result['sent']), this, ins


def run(bench):
    size = bench.sizes(8)
    db = Database(bench, 's8', bench.rabbit)
    db.make_ins()
    check = Check()
    raw = [bench.drivers.raw_into_queue(size.raw)['rate']]
    bench.rabbit.stop()
    db.wait('the relay to notice', lambda: db.value(
        "SELECT count(*) = 1 FROM outbox_workers WHERE state = 'broker down'"))
    count, this, ins = while_away(bench, db, size)
    before = db.published()
    bench.rabbit.start()
    start = time.monotonic()
    db.wait('the first message', lambda: db.published() > before, 120, 0.01)
    first = time.monotonic()
    early = db.published() - before
    db.wait('the end of the backlog', lambda: db.published() - before >= count, 900, 0.01)
    rate = (count - early) / (time.monotonic() - first)
    take_record(bench, count, check)
    raw.append(bench.drivers.raw_into_queue(size.raw)['rate'])
    failed = db.value("SELECT count(*) FROM outbox WHERE status = 'failed'")
    common = dict(away='%d s' % size.away_seconds, bytes=256)
    bench.results.add(8, 'broker away', 'enqueue, 4 clients', 'TPS', this, ('INS', ins),
                      first=0.95, end=0.99, check=check, **common)
    bench.results.add(8, 'broker is back', 'drain', 'msg/s', rate, ('RAW', raw),
                      first=0.8, end=0.9, check=check, backlog=count,
                      note='failed messages: %d' % failed, **common)
    bench.results.add(8, 'broker is back', 'port open to first message settled', 's',
                      first - start, judge='this', better='lower', check=check, **common)
    db.drop()
