"""What processes cost: CPU time by kind of process, memory, descriptors.

From /proc: schedstat (nanoseconds) for PostgreSQL's processes, which have one
thread, and stat (ticks of 10 ms) for a broker with many.
"""

import os
import threading
import time

TICK = os.sysconf('SC_CLK_TCK')
KINDS = (('outbox relay', 'relay'), ('outbox launcher', 'launcher'),
         ('walwriter', 'walwriter'), ('checkpointer', 'checkpointer'),
         ('background writer', 'bgwriter'), ('autovacuum', 'autovacuum'),
         ('logical replication', 'other'))


def read(path):
    with open(path, 'rb') as f:
        return f.read().decode('utf-8', 'replace')


def stat_fields(pid):
    """Fields of /proc/PID/stat from the third on: the second may have spaces."""
    return read('/proc/%d/stat' % pid).rpartition(')')[2].split()


def cpu_seconds(pid):
    """Of a process with one thread."""
    return int(read('/proc/%d/schedstat' % pid).split()[0]) / 1e9


def group_cpu_seconds(pid):
    """Of all threads of a process."""
    fields = stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) / TICK


def reaped_cpu_seconds(pid):
    """Of its children that have ended."""
    fields = stat_fields(pid)
    return (int(fields[13]) + int(fields[14])) / TICK


def children(pid):
    return [int(p) for p in read('/proc/%d/task/%d/children' % (pid, pid)).split()]


def kind(pid):
    title = read('/proc/%d/cmdline' % pid)
    for text, name in KINDS:
        if text in title:
            return name
    return 'backends'


def status_field(pid, name):
    for line in read('/proc/%d/status' % pid).splitlines():
        if line.startswith(name + ':'):
            return int(line.split()[1])
    return 0


def rss_kb(pid):
    """Without shared memory, which is everybody's."""
    return status_field(pid, 'RssAnon')


def descriptors(pid):
    """Open descriptors, but for the files of tables: one for each GB, and the server
    closes them when they are many."""
    directory = '/proc/%d/fd' % pid
    count = 0
    for name in os.listdir(directory):
        try:
            count += '/base/' not in os.readlink(os.path.join(directory, name))
        except FileNotFoundError:
            pass
    return count


def wakeups(pid):
    return status_field(pid, 'voluntary_ctxt_switches')


def cpu_model():
    with open('/proc/cpuinfo') as f:
        for line in f:
            if line.startswith('model name'):
                return line.split(':', 1)[1].strip()
    return os.uname().machine


def machine_busy():
    """(busy, all) ticks of all processors since boot."""
    values = [int(v) for v in read('/proc/stat').split('\n', 1)[0].split()[1:9]]
    idle = values[3] + values[4]
    return sum(values) - idle, sum(values)


def load_of_others(seconds=1.0):
    """Share of the processors that is busy now: to be called when we do nothing."""
    busy, total = machine_busy()
    time.sleep(seconds)
    busy_then, total_then = machine_busy()
    return (busy_then - busy) / max(1, total_then - total)


def bind(pid, cores):
    """All threads of a process, and of its children: they run on these cores only."""
    for thread in os.listdir('/proc/%d/task' % pid):
        os.sched_setaffinity(int(thread), cores)
    for child in children(pid):
        bind(child, cores)


class Bound:
    """The server and all clients on one core, the broker on another one, over a block."""

    def __init__(self, bench):
        self.ours = (bench.pg.pid, os.getpid())
        self.broker = bench.rabbit.pid

    def __enter__(self):
        self.cores = sorted(os.sched_getaffinity(0))
        for pid in self.ours:
            bind(pid, self.cores[:1])
        bind(self.broker, self.cores[1:2])

    def __exit__(self, *_):
        for pid in (*self.ours, self.broker):
            bind(pid, self.cores)


class Cpu:
    """CPU seconds of a server by kind of process, over a block:

        with Cpu(postgres, broker_pid) as cpu: ...
        cpu.by['relay'], cpu.postgres(), cpu.by['broker']

    A thread looks four times a second, so that processes which end in between
    are in it; what they used after the last look is under 'ended'.
    """

    def __init__(self, postgres, broker_pid=None):
        self.postmaster = postgres.pid
        self.broker = broker_pid
        self.by = {}
        self._first = {}
        self._last = {}
        self._kinds = {}
        self._end = threading.Event()

    def _look(self, first=False):
        for pid in children(self.postmaster):
            try:
                seconds = cpu_seconds(pid)
                start = stat_fields(pid)[19]
                # a title is not there before the process has found out what it is
                self._kinds[pid, start] = kind(pid)
            except OSError:
                continue
            self._last[pid, start] = seconds
            if first:
                self._first[pid, start] = seconds

    def _run(self):
        while not self._end.wait(0.25):
            self._look()

    def __enter__(self):
        self._look(first=True)
        self._reaped = reaped_cpu_seconds(self.postmaster)
        if self.broker:
            self._broker = group_cpu_seconds(self.broker)
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()
        self._look()
        self.seconds = time.monotonic() - self._began
        alive = set(children(self.postmaster))
        seen_of_ended = 0.0
        for process, seconds in self._last.items():
            used = seconds - self._first.get(process, 0.0)
            name = self._kinds[process]
            self.by[name] = self.by.get(name, 0.0) + used
            if process[0] not in alive:
                # all of its life is in the postmaster's sum
                seen_of_ended += seconds
        reaped = reaped_cpu_seconds(self.postmaster) - self._reaped
        self.by['ended'] = max(0.0, reaped - seen_of_ended)
        if self.broker:
            try:
                self.by['broker'] = group_cpu_seconds(self.broker) - self._broker
            except OSError:
                pass

    def postgres(self):
        return sum(v for k, v in self.by.items() if k != 'broker')

    def per_message(self, count):
        """Microseconds a message, by kind."""
        return {k: round(v * 1e6 / count, 2) for k, v in self.by.items()}
