"""Samples of a server under steady load, once a second: for scenario 7 and the soak."""

import os
import threading
import time

import procs


class Sampler:
    """A thread with a connection of its own; rows are in self.rows.

    time (s since start), published, cpu (s, of the workers), relation (bytes of
    outbox with indexes), dead (tuples, estimated by the server), rss (kB, of
    the workers, without shared memory), fds; others_cpu (s, of the processes in
    others).
    """

    def __init__(self, bench, db, every=1.0, others=()):
        self.every = every
        self.pids = db.worker_pids()
        self.others = others
        self.connection = bench.pg.connect(db.name)
        self.rows = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _look(self):
        with self.connection.cursor() as c:
            c.execute('SELECT coalesce(sum(published), 0),'
                      " pg_total_relation_size('outbox'),"
                      " (SELECT n_dead_tup FROM pg_stat_user_tables"
                      "  WHERE relid = 'outbox'::regclass) FROM outbox_workers")
            published, relation, dead = (int(v) for v in c.fetchone())
        self.rows.append(dict(
            time=time.monotonic() - self.start, published=published,
            cpu=sum(procs.cpu_seconds(p) for p in self.pids),
            rss=sum(procs.rss_kb(p) for p in self.pids),
            others_cpu=sum(procs.cpu_seconds(p) for p in self.others),
            fds=sum(procs.descriptors(p) for p in self.pids),
            relation=relation, dead=dead))

    def _run(self):
        due = self.start
        while not self._end.is_set():
            try:
                self._look()
            except OSError as error:
                print('sampler: %s' % error)
                return
            due += self.every
            self._end.wait(max(0, due - time.monotonic()))

    def __enter__(self):
        self.start = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()
        self.connection.close()

    def between(self, start, end):
        return [row for row in self.rows if start <= row['time'] <= end]

    def rate(self, start, end):
        """Messages a second."""
        rows = self.between(start, end)
        return ((rows[-1]['published'] - rows[0]['published']) /
                (rows[-1]['time'] - rows[0]['time']))

    def cpu_per_message(self, start, end, field='cpu'):
        """Microseconds of the workers, or of the others."""
        rows = self.between(start, end)
        return ((rows[-1][field] - rows[0][field]) * 1e6 /
                max(1, rows[-1]['published'] - rows[0]['published']))

    def curve(self, name, scale=1.0, smooth=1):
        return [(row['time'], row[name] * scale) for row in self.rows[::smooth]]

    def rate_curve(self, step):
        rows = self.rows[::step]
        return [(b['time'], (b['published'] - a['published']) / (b['time'] - a['time']))
                for a, b in zip(rows, rows[1:])]
