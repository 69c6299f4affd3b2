"""Many rows in one statement, relay off.

Three forms of the same rows: SELECT outbox_enqueue(...) FROM, INSERT INTO outbox
... SELECT (the trigger's way), and the baseline, INSERT ... SELECT into a table
without triggers.
"""

import time

from checks import Check
from database import Database
from turns import take_turns

TITLE = '2. Enqueue, many rows in one statement'


def timed(db, count, call):
    db.empty('ins_outbox', 'outbox')
    db.sql('CHECKPOINT')
    start = time.monotonic()
    call()
    return (time.monotonic() - start) * 1e6 / count


def run(bench):
    size = bench.sizes(2)
    rows = size.rows
    db = Database(bench, 's2', bench.null, **{'outbox.enabled': 'off'})
    db.make_ins()
    checks = Check(), Check(), Check()
    calls = (lambda: db.enqueue(rows, batch=rows), lambda: db.insert('outbox', rows),
             lambda: db.insert('ins_outbox', rows))

    def side(i):
        def once():
            elapsed = timed(db, rows, calls[i])
            table = 'ins_outbox' if i == 2 else 'outbox'
            checks[i].add(rows, db.value('SELECT count(*) FROM ' + table), 0, 0)
            return elapsed
        return once
    function, trigger, ins = take_turns(size.repeats, side(0), side(1), side(2), warm=True)
    for name, this, check in (('outbox_enqueue()', function, checks[0]),
                              ('INSERT INTO outbox', trigger, checks[1])):
        bench.results.add(2, '%d rows, %s' % (rows, name), 'time a row', 'us', this,
                          ('INS', ins), better='lower', first=1.5, end=1.0, check=check,
                          rows=rows, bytes=256, relay='outbox.enabled = off')
    db.drop()
