"""Nothing to do for a minute, with the broker connected: one worker, default settings."""

import time

from database import Database
from procs import cpu_seconds, wakeups

TITLE = '13. Idle'

STILL = 26				# s
PATIENCE = 120			# s


def look(db, pid):
    # the position and the next xid first and last, so that no query is between
    return dict(wal=db.wal_position(),
                xid=int(db.value('SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint')),
                wakeups=wakeups(pid), cpu=cpu_seconds(pid), time=time.monotonic())


def wait_still(db, patience=PATIENCE):
    """Until nothing is written for STILL seconds.

    After the last work the background writer logs the running transactions once
    more: it looks every 15 s, and up to 10 s later when it sleeps for long.  That
    record belongs to the work, and no other follows before the next.
    """
    position, since = db.wal_position(), time.monotonic()
    end = since + patience
    while time.monotonic() - since < STILL:
        if time.monotonic() > end:
            raise RuntimeError('the server still writes WAL after %d s' % patience)
        time.sleep(1)
        if db.wal_position() != position:
            position, since = db.wal_position(), time.monotonic()


def set_autovacuum(bench, statement):
    with bench.pg.connect().cursor() as c:
        c.execute(statement)
        c.execute('SELECT pg_reload_conf()')


def run(bench):
    size = bench.sizes(13)
    # its work on the statistics of a database that has just been made is not ours
    set_autovacuum(bench, 'ALTER SYSTEM SET autovacuum = off')
    try:
        measure(bench, size)
    finally:
        set_autovacuum(bench, 'ALTER SYSTEM RESET autovacuum')


def measure(bench, size):
    db = Database(bench, 's13', bench.rabbit)
    db.enqueue(10)
    db.wait_empty()
    # so that no later checkpoint finds anything to do
    db.sql('VACUUM (FREEZE, ANALYZE)')
    time.sleep(2)
    db.sql('CHECKPOINT')
    wait_still(db)
    pid, = db.worker_pids()
    before = look(db, pid)
    time.sleep(size.seconds)
    after = look(db, pid)
    elapsed = after['time'] - before['time']
    used = {name: after[name] - before[name] for name in before}
    for metric, unit, value, first, end in (
            ('wake-ups of the worker', '1/s', used['wakeups'] / elapsed, 2, 1),
            ('WAL', 'bytes', used['wal'], 0, 0),
            ('transaction ids', 'xids', used['xid'], 0, 0),
            ('CPU of the worker', '%', 100 * used['cpu'] / elapsed, 0.1, 0.05)):
        bench.results.add(13, 'idle, broker connected', metric, unit, value, judge='this',
                          better='lower', first=first, end=end, seconds=size.seconds,
                          autovacuum='off')
    db.drop()
