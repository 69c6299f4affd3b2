"""A database with the extension, for one scenario.

It is made anew for each scenario, so that none sees the tables of another, and
dropped at its end.  Bodies are {"k": KEY, "n": NUMBER, "pad": "xxx"}: by the
numbers, which begin with 1 and are in the order of enqueue, the checks tell
what is lost, came twice or overtook another.
"""

import time

from servers import EXCHANGE

CONNECTED = ('idle', 'publishing')
COLUMNS = 'event_type, payload, aggregate_id, aggregate_type'

# The key and the number are expressions.
PAYLOAD = """jsonb_build_object('k', {k}, 'n', {n}, 'pad', repeat('x',
    greatest(0, {size} - 26 - length({n}::text) - length(coalesce({k}::text, 'null')))))"""


def rows_select(first, last, keys, size, call):
    """SELECT of rows FIRST to LAST; keys 0: each its own, None: without a key."""
    k = '(NULL::bigint)' if keys is None else 'i' if keys == 0 else '(i % {})'.format(keys)
    return 'SELECT %s FROM generate_series(%d, %d) i' % (
        call.format(k=k, payload=PAYLOAD.format(k=k, n='i', size=size)), first, last)


class Database:
    def __init__(self, bench, name, broker, queue='classic', pg=None, keep=False, **settings):
        """pg: another server than the run's; keep: one that is there is taken as it is."""
        self.bench = bench
        self.pg = pg or bench.pg
        self.name = 'bench_' + name
        self.exchange = EXCHANGE[queue]
        with self.pg.connect().cursor() as c:
            c.execute('SELECT 1 FROM pg_database WHERE datname = %s', (self.name,))
            found = c.fetchone()
            if found and not keep:
                c.execute('DROP DATABASE %s WITH (FORCE)' % self.name)
            if not found or not keep:
                c.execute('CREATE DATABASE %s' % self.name)
        self.settings = {'outbox.broker_uri': broker.uri}
        self.settings.update(settings)
        self._alter(self.settings)
        self.connection = self.pg.connect(self.name)
        self.sql('CREATE EXTENSION IF NOT EXISTS outbox')
        self.sql("UPDATE outbox_route SET exchange = '%s' WHERE name = 'default'" % self.exchange)
        self.wait_workers()

    # -- plain things

    def sql(self, text, args=None):
        """Runs it; rows, or None where there are none."""
        with self.connection.cursor() as c:
            c.execute(text, args)
            return c.fetchall() if c.description else None

    def value(self, text, args=None):
        return self.sql(text, args)[0][0]

    def wait(self, what, condition, seconds=60, every=0.02):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise RuntimeError('%s: waited %d s in vain for: %s; %s' % (
                    self.name, seconds, what,
                    self.sql('SELECT state, backlog, failed, last_error FROM outbox_status')))
            time.sleep(every)

    def drop(self):
        self.connection.close()
        with self.pg.connect().cursor() as c:
            c.execute('DROP DATABASE %s WITH (FORCE)' % self.name)

    # -- settings and workers

    def _alter(self, settings):
        with self.pg.connect().cursor() as c:
            for name, value in settings.items():
                c.execute('ALTER DATABASE %s SET %s = %%s' % (self.name, name),
                          (str(value),))
            c.execute('SELECT pg_reload_conf()')

    def set(self, wait=True, **settings):
        """set(outbox_workers=2): takes effect with new workers."""
        settings = {k.replace('_', '.', 1): v for k, v in settings.items()}
        self.settings.update(settings)
        self._alter(settings)
        before = self.value('SELECT max(started_at) FROM outbox_workers')
        self.sql('SELECT outbox_worker_restart()')
        self.wait('new workers', lambda: self.value(
            "SELECT coalesce(min(started_at) > '%s', false) FROM outbox_workers WHERE pid IS NOT NULL"
            % before) if before else True)
        # a session of ours would have the old values
        self.connection.close()
        self.connection = self.pg.connect(self.name)
        if wait:
            self.wait_workers()

    def wait_workers(self):
        count = int(self.settings.get('outbox.workers', 1))
        state = ('disabled',) if self.settings.get('outbox.enabled') == 'off' else CONNECTED
        self.wait('workers', lambda: self.value(
            'SELECT count(*) FROM outbox_workers WHERE state = ANY (%s)',
            (list(state),)) == count)

    def worker_pids(self):
        return [row[0] for row in self.sql(
            'SELECT pid FROM outbox_workers WHERE pid IS NOT NULL ORDER BY worker')]

    def published(self):
        return int(self.value('SELECT coalesce(sum(published), 0) FROM outbox_workers'))

    # -- tables

    def make_ins(self, name='ins_outbox'):
        """The same columns, indexes, checks and storage, without the triggers."""
        self.sql('CREATE TABLE %s (LIKE outbox INCLUDING ALL)' % name)
        options = self.value("SELECT reloptions FROM pg_class WHERE oid = 'outbox'::regclass")
        self.sql('ALTER TABLE %s SET (%s)' % (name, ', '.join(options)))

    def make_poll(self, name='poll_outbox'):
        self.make_ins(name)
        for constraint, in self.sql("SELECT conname FROM pg_constraint WHERE contype = 'c'"
                                    " AND conrelid = '%s'::regclass" % name):
            self.sql('ALTER TABLE %s DROP CONSTRAINT %s' % (name, constraint))

    @staticmethod
    def enqueue_text(first, last, keys=0, size=256, route='default'):
        """One statement that enqueues the messages FIRST to LAST."""
        return rows_select(first, last, keys, size,
                           "count(outbox_enqueue('bench.event', {payload}, aggregate_type => 'bench',"
                           " aggregate_id => {k}::text, route => '%s'))" % route)

    def enqueue(self, count, first=1, batch=100_000, **options):
        """In transactions of so many messages."""
        for at in range(first, first + count, batch):
            last = min(at + batch, first + count) - 1
            self.sql(self.enqueue_text(at, last, **options))

    def insert(self, table, count, first=1, keys=0, size=256):
        """The same rows into another table by one INSERT ... SELECT."""
        self.sql('INSERT INTO %s (%s) %s' % (table, COLUMNS, rows_select(
            first, first + count - 1, keys, size,
            "'bench.event', {payload}, {k}::text, 'bench'")))

    def settle_down(self, *tables):
        """The same for this and for a baseline, after a table was filled."""
        for table in tables or ('outbox',):
            self.sql('VACUUM (ANALYZE) %s' % table)
        self.sql('CHECKPOINT')

    def empty(self, *tables):
        for table in tables or ('outbox', 'outbox_archive'):
            self.sql('TRUNCATE %s' % table)

    # -- the relay

    def pause(self):
        self.sql('SELECT outbox_pause()')

    def drain(self, count, seconds=600):
        """Lets a paused relay publish so many; returns seconds.

        Each look costs the server's processors what several messages cost, and RAW has none:
        so they are few, half of the time that is left between two of them.  That is a guess
        from the beginning, and so a twentieth of what has passed is the most that one can be
        late by.
        """
        before = self.published()
        start = time.monotonic()
        self.sql('SELECT outbox_resume()')
        while (done := self.published() - before) < count:
            elapsed = time.monotonic() - start
            if elapsed > seconds:
                raise RuntimeError('%s: %d of %d messages in %d s' % (
                    self.name, done, count, elapsed))
            left = elapsed * (count - done) / done if done else 0
            time.sleep(max(0.01, min(left / 2, elapsed / 20, 1)))
        return time.monotonic() - start

    def wait_empty(self, seconds=120):
        self.wait('an empty outbox', lambda: self.value(
            "SELECT count(*) = 0 FROM outbox WHERE status = 'pending'"), seconds, every=0.05)

    # -- what it costs

    def wal_position(self):
        return int(self.value("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))

    def dead_tuples(self, table='outbox'):
        """Made since the statistics were reset, vacuumed or not."""
        return int(self.value('SELECT n_tup_del + n_tup_upd FROM pg_stat_user_tables'
                              " WHERE relid = '%s'::regclass" % table))

    def relation_bytes(self, table='outbox'):
        return int(self.value("SELECT pg_total_relation_size('%s')" % table))

    def sequence_next(self):
        return int(self.value('SELECT coalesce(max(seq), 0) + 1 FROM outbox'))
