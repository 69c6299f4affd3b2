"""One row a transaction: what enqueue adds to a transaction.

pgbench with prepared statements: SELECT outbox_enqueue() against a plain INSERT
into a table of the same definition without triggers (INS).  Both tables are
truncated, and a checkpoint made, before each run.

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
            check = Check()

            def side(table):
                return lambda: once(bench, db, table, clients, size.seconds, check, relay)
            this, ins = take_turns(size.repeats, side('outbox'), side('ins_outbox'))
            judged = clients == 4
            bench.results.add(
                1, '%d client%s, relay %s' % (clients, '' if clients == 1 else 's', 'on' if relay else 'off'),
                'enqueue', 'TPS', this, ('INS', ins),
                first=0.95 if judged else None, end=1.0 if judged else None, check=check,
                clients=clients, seconds=size.seconds, bytes=256,
                relay='null broker, retention 0' if relay else 'outbox.enabled = off')
    wake_up(bench, db, size)
    db.drop()
