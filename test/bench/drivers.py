"""The programs that make load or take it: raw, consume, poll, openloop, pgbench."""

import os
import re
import signal
import subprocess

ENQUEUE = "SELECT outbox_enqueue('bench.event', $1::jsonb, aggregate_type => 'bench', aggregate_id => $2)"
INSERT = ('INSERT INTO %s (event_type, payload, aggregate_id, aggregate_type)'
          " VALUES ('bench.event', $1::jsonb, $2, 'bench')")


def words(line):
    """'rate 5 seconds 2.5' as a dictionary; what is no number stays text."""
    parts = line.split()
    result = {}
    for name, value in zip(parts[::2], parts[1::2]):
        try:
            result[name] = float(value)
        except ValueError:
            result[name] = value
    return result


class Drivers:
    def __init__(self, bench):
        self.bench = bench

    def program(self, name):
        return os.path.join(self.bench.bin, name)

    def file(self, name):
        return os.path.join(self.bench.tmp, name)

    def run(self, *args, ok=(0,)):
        """Runs a program to its end; the words of its last line."""
        done = subprocess.run([str(a) for a in args], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        if done.returncode not in ok:
            raise RuntimeError('%s: %s %s' % (args[0], done.stdout[-500:], done.stderr[-500:]))
        return words(done.stdout.strip().splitlines()[-1])

    # -- RAW

    def raw(self, broker, count, exchange='bench.classic', size=256, window=1000,
            rate=None, out=None, tls=False):
        args = [self.program('raw'), '--exchange', exchange, '--key', 'bench.event',
                '--count', count, '--size', size, '--window', window, '--mandatory']
        if tls:
            args += ['--host', 'localhost', '--port', broker.tls_port,
                     '--ca-file', broker.ca_file]
        else:
            args += ['--port', broker.port]
        if rate:
            args += ['--rate', rate, '--out', out]
        return self.run(*args)

    def raw_into_queue(self, count, queue='bench.classic', **options):
        """Into an empty queue, which it leaves empty; checked by the queue's length."""
        rabbit = self.bench.rabbit
        rabbit.purge(queue)
        result = self.raw(rabbit, count, exchange=queue, **options)
        found = rabbit.purge(queue)
        if found != count or result['returned'] or result['nacked']:
            raise RuntimeError('RAW: %d messages sent, %d in the queue' % (count, found))
        return result

    # -- processes that run beside the others

    def consumer(self, queue='bench.classic', **options):
        return Consumer(self, queue, **options)

    def poll(self, conninfo, table, port, exchange='bench.classic', count=0, seed=False):
        return Process([self.program('poll'), '--conninfo', conninfo, '--table', table,
                        '--port', port, '--exchange', exchange, '--count', count] +
                       ['--seed'] * seed)

    def openloop(self, conninfo, sql, rate, seconds, out, connections=8, first=1, keys=0,
                 size=256):
        return Process([self.program('openloop'), '--conninfo', conninfo, '--sql', sql,
                        '--rate', rate, '--seconds', seconds, '--out', out,
                        '--connections', connections, '--first', first, '--keys', keys,
                        '--size', size], ready=False)

    # -- single-row transactions in a closed loop

    def pgbench(self, db, statement, clients, seconds=None, transactions=None, base=0,
                options=''):
        """Prepared statements; client c sends numbers from base + c * 10^6 + 1 on, with
        1000 keys of its own.  options: as in PGOPTIONS.  Returns dict(tps, count,
        latency_ms)."""
        script = self.file('pgbench.sql')
        pad = 'x' * (256 - 40)
        body = '\'{"k": \' || :k || \', "n": \' || :n || \', "pad": "%s"}\'' % pad
        with open(script, 'w') as f:
            f.write('\\set i :i + 1\n'
                    '\\set n %d + :client_id * 1000000 + :i\n' % base +
                    '\\set k :client_id * 1000 + :i %% 1000\n' % () +
                    statement.replace('$1::jsonb', '(%s)::jsonb' % body)
                             .replace('$2', '(:k)::text') + ';\n')
        args = [os.path.join(self.bench.pg.bindir, 'pgbench'), '-n', '-M', 'prepared',
                '-h', self.bench.pg.host, '-p', self.bench.pg.port, '-U', 'postgres',
                '-c', clients, '-j', min(clients, 2), '-D', 'i=0', '-f', script]
        args += ['-T', seconds] if seconds else ['-t', transactions]
        done = subprocess.run([str(a) for a in args + [db.name]], capture_output=True,
                              text=True, stdin=subprocess.DEVNULL,
                              env=dict(os.environ, PGOPTIONS=options))
        if done.returncode != 0:
            raise RuntimeError('pgbench: %s' % done.stderr[-1000:])

        def figure(pattern):
            return float(re.search(pattern, done.stdout).group(1))
        return dict(tps=figure(r'tps = ([0-9.]+) \(without'),
                    count=int(figure(r'actually processed: ([0-9]+)')),
                    latency_ms=figure(r'latency average = ([0-9.]+)'))


class Process:
    """In the background; result() waits for its end and takes its last line."""

    def __init__(self, args, ready=True):
        self.name = os.path.basename(args[0])
        self.process = subprocess.Popen([str(a) for a in args], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)
        self.pid = self.process.pid
        if ready and self.process.stdout.readline().strip() != 'ready':
            raise RuntimeError('%s: %s' % (self.name, self.process.communicate()[1]))

    def result(self, seconds=900, ok=(0,)):
        try:
            out, err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise RuntimeError('%s did not end within %d s' % (self.name, seconds)) from None
        if self.process.returncode not in ok:
            raise RuntimeError('%s: %s %s' % (self.name, out[-500:], err[-500:]))
        return words(out.strip().splitlines()[-1])

    def stop(self, ok=(0,)):
        self.process.send_signal(signal.SIGTERM)
        return self.result(60, ok)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


class Consumer(Process):
    """Records what arrives, in self.path.  Ends after so many different messages, or
    when nothing has come for so long."""

    def __init__(self, drivers, queue, count=0, idle_ms=0, no_ack=False):
        self.path = drivers.file('consumed')
        if os.path.exists(self.path):
            os.unlink(self.path)
        args = [drivers.program('consume'), '--port', drivers.bench.rabbit.port,
                '--queue', queue, '--passive', '--out', self.path, '--body', 48]
        if count:
            args += ['--count', count]
        if idle_ms:
            args += ['--idle', idle_ms]
        if no_ack:
            args += ['--no-ack']
        super().__init__(args)
