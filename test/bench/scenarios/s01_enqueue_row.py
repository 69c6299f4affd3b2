"""One row a transaction: what enqueue adds to a transaction.

pgbench with prepared statements: SELECT outbox_enqueue(), and INSERT INTO outbox, against
a plain INSERT into a table of the same definition without triggers (INS).  The tables are
truncated, and a checkpoint made, before each run.  A call has the SELECT around it and the
owner's context besides, which INS has not; doc/dev/performance.md has what each costs.

Relay off: outbox.enabled = off.  Relay on: the worker publishes to the null
broker meanwhile, and takes its share of the processor, which INS has not.

The wake-up: INSERT INTO outbox, with the relay on, against the same statement in
sessions whose triggers are off (session_replication_role = replica): no checks, no
callback at commit, and no commit wakes the relay.  It finds most rows with its poll, once
a second, and the others after its restart.  A row that commits after its number was passed
is not announced then, and later rows of its key go first.  So each side has a check of its
own, and the order of the silent one, which is not promised, is reported only.
"""

import drivers
from checks import Check
from database import Database
from turns import take_turns

TITLE = '1. Enqueue, one row a transaction'

SILENT = '-c session_replication_role=replica'


def once(bench, db, table, clients, seconds, check, relay, statement=None, options=''):
    db.empty('ins_outbox', 'outbox')
    db.sql('CHECKPOINT')
    bench.null.reset()
    if statement is None:
        statement = drivers.ENQUEUE if table == 'outbox' else drivers.INSERT % table
    result = bench.drivers.pgbench(db, statement, clients, seconds, options=options)
    count = result['count']
    if options == SILENT:
        db.sql('SELECT outbox_worker_restart()')
        db.wait_empty()
        check.add_null(count, bench.null.stats())
    elif table == 'outbox' and relay:
        db.wait_empty()
        check.add_null(count, bench.null.stats())
    elif table == 'outbox':
        found = db.value('SELECT count(*) FROM outbox')
        check.add(count, found, 0, 0)
    return result['tps']


def wake_up(bench, db, size, clients=16):
    check, silent = Check(), Check(ordered=False)

    def side(options, check):
        return lambda: once(bench, db, 'outbox', clients, size.seconds, check, True,
                            drivers.INSERT % 'outbox', options)
    this, without = take_turns(size.repeats, side('', check), side(SILENT, silent))
    if not silent.ok():
        raise RuntimeError('sessions without triggers: %s' % silent)
    bench.results.add(1, '%d clients, the wake-up' % clients, 'INSERT INTO outbox', 'TPS',
                      this, ('without', without), check=check, clients=clients,
                      seconds=size.seconds, bytes=256, relay='null broker, retention 0',
                      note='without: %s' % silent)


def compare(bench, db, size, clients, relay):
    checks = Check(), Check()

    def side(table, check, statement=None):
        return lambda: once(bench, db, table, clients, size.seconds, check, relay, statement)
    call, insert, ins = take_turns(
        size.repeats, side('outbox', checks[0]),
        side('outbox', checks[1], drivers.INSERT % 'outbox'), side('ins_outbox', Check()))
    case = '%d client%s, relay %s' % (clients, '' if clients == 1 else 's', 'on' if relay else 'off')
    for metric, tps, check in (('outbox_enqueue()', call, checks[0]),
                               ('INSERT INTO outbox', insert, checks[1])):
        bench.results.add(
            1, case, metric, 'TPS', tps, ('INS', ins), first=0.95, end=0.97, check=check,
            clients=clients, seconds=size.seconds, bytes=256,
            relay='null broker, retention 0' if relay else 'outbox.enabled = off')


def run(bench):
    size = bench.sizes(1)
    db = Database(bench, 's1', bench.null, **{'outbox.enabled': 'off',
                                              'outbox.retention': '0'})
    db.make_ins()
    for table in ('outbox', 'ins_outbox'):			# warm
        once(bench, db, table, 4, 1, Check(), False)
    for relay in (False, True):
        if relay:
            db.set(outbox_enabled='on')
        for clients in size.clients:
            compare(bench, db, size, clients, relay)
    wake_up(bench, db, size)
    db.drop()
