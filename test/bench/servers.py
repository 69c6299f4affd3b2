"""The servers of a run: a PostgreSQL, a RabbitMQ, a null broker.

All of them live in one temporary directory and end with the run, however it
ends (the tools' --owner).  As root they run as an unprivileged user; see
test/tools/pg-cluster and rabbitmq-node.
"""

import os
import random
import re
import shlex
import socket
import subprocess

import pika
import psycopg2

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
TOOLS = os.path.join(TOP, 'test', 'tools')

EXCHANGE = {'classic': 'bench.classic', 'quorum': 'bench.quorum'}

POSTGRESQL_CONF = """
shared_preload_libraries = 'outbox'
outbox.broker_uri = 'amqp://guest@127.0.0.1:1'
max_worker_processes = 16
max_connections = 100
shared_buffers = 1GB
max_wal_size = 4GB
"""


def tool(name, *args):
    """Runs one of test/tools and returns its output."""
    done = subprocess.run([os.path.join(TOOLS, name), *map(str, args)],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError('%s %s: %s' % (name, args[0], done.stderr.strip()))
    return done.stdout


def environment(text):
    """NAME=value lines, as the tools print them."""
    return dict(word.split('=', 1) for word in shlex.split(text))


def install(directory, top=TOP):
    """A private installation with the outbox of that tree, without assertions; its bindir."""
    env = {k: v for k, v in os.environ.items()
           if k not in ('ASSERT', 'MAKEFLAGS', 'MAKELEVEL', 'MFLAGS')}
    done = subprocess.run([os.path.join(top, 'test', 'tools', 'private-install'), directory],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        raise RuntimeError('private-install: %s' % done.stderr)
    for folder, _, files in os.walk(directory):
        if 'outbox.so' in files:
            with open(os.path.join(folder, 'outbox.so'), 'rb') as f:
                if b'ExceptionalCondition' in f.read():
                    raise RuntimeError('outbox.so has assertions: run make clean')
    return done.stdout.strip()


class Postgres:
    def __init__(self, directory, bindir, extra_conf=''):
        self.dir = directory
        self.bindir = bindir
        self.conf = directory + '.conf'
        with open(self.conf, 'w') as f:
            f.write(POSTGRESQL_CONF + extra_conf)
        self.start()

    def start(self):
        env = environment(tool('pg-cluster', 'start', self.dir, '--bindir', self.bindir,
                               '--conf', self.conf, '--owner', os.getpid()))
        self.host, self.port, self.data = env['PGHOST'], env['PGPORT'], env['PGDATA']
        self.log = env['PGLOG']
        with open(os.path.join(self.data, 'postmaster.pid')) as f:
            self.pid = int(f.readline())

    def conninfo(self, dbname):
        return 'host=%s port=%s user=postgres dbname=%s' % (self.host, self.port, dbname)

    def connect(self, dbname='postgres'):
        connection = psycopg2.connect(self.conninfo(dbname))
        connection.autocommit = True
        return connection

    def stop(self, mode='immediate'):
        tool('pg-cluster', 'stop', self.dir, mode)


class Rabbit:
    """With a listener for TLS, whose certificate is made here."""

    def __init__(self, directory):
        self.dir = directory
        self.tls_dir = directory + '-tls'
        self.conf = directory + '.conf'
        self.make_certificate()
        self.tls_port = free_port()
        with open(self.conf, 'w') as f:
            f.write('listeners.ssl.1 = 127.0.0.1:%d\n' % self.tls_port)
            for name, value in (('cacertfile', self.ca_file), ('certfile', self.ca_file),
                                ('keyfile', self.tls_dir + '/key.pem'),
                                ('verify', 'verify_none'),
                                ('fail_if_no_peer_cert', 'false')):
                f.write('ssl_options.%s = %s\n' % (name, value))
        self.start()
        for queue_type, exchange in EXCHANGE.items():
            self.declare(exchange, queue_type)

    def make_certificate(self):
        os.mkdir(self.tls_dir)
        self.ca_file = self.tls_dir + '/cert.pem'
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes',
                        '-days', '2', '-subj', '/CN=localhost',
                        '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1',
                        '-keyout', self.tls_dir + '/key.pem', '-out', self.ca_file],
                       check=True, capture_output=True)
        # it protects nothing, and the broker may run as somebody else
        os.chmod(self.tls_dir, 0o755)
        os.chmod(self.tls_dir + '/key.pem', 0o644)

    def start(self):
        env = environment(tool('rabbitmq-node', 'start', self.dir, '--conf', self.conf,
                               '--owner', os.getpid()))
        self.port, self.pid = int(env['AMQP_PORT']), int(env['AMQP_PID'])
        self.uri = env['AMQP_URI']
        self.tls_uri = 'amqps://guest@localhost:%d' % self.tls_port

    def stop(self):
        tool('rabbitmq-node', 'stop', self.dir)

    def alive(self):
        try:
            tool('rabbitmq-node', 'status', self.dir)
        except RuntimeError:
            return False
        return True

    def version(self):
        found = re.search(r'RabbitMQ *(?:version)?:? *([0-9]+\.[0-9.]+)',
                          tool('rabbitmq-node', 'ctl', self.dir, 'status'))
        return found.group(1) if found else 'unknown'

    def channel(self):
        connection = pika.BlockingConnection(
            pika.ConnectionParameters('127.0.0.1', self.port))
        return connection, connection.channel()

    def declare(self, exchange, queue_type):
        """A topic exchange and one queue of the same name that takes all."""
        connection, channel = self.channel()
        channel.exchange_declare(exchange, 'topic', durable=True)
        channel.queue_declare(exchange, durable=True,
                              arguments={'x-queue-type': queue_type})
        channel.queue_bind(exchange, exchange, '#')
        connection.close()

    def depth(self, queue):
        connection, channel = self.channel()
        count = channel.queue_declare(queue, passive=True).method.message_count
        connection.close()
        return count

    def purge(self, queue):
        """Empties the queue; returns how many messages were in it."""
        connection, channel = self.channel()
        count = channel.queue_purge(queue).method.message_count
        connection.close()
        return count


class NullBroker:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.port = int(self.process.stdout.readline().split()[1])
        self.uri = 'amqp://guest@127.0.0.1:%d' % self.port

    def command(self, text):
        self.process.stdin.write(text + '\n')
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def reset(self):
        self.command('reset')

    def stats(self):
        words = self.command('stats')
        return {name: int(value) for name, value in zip(words[::2], words[1::2])}

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def free_port():
    """Below what the kernel hands out, and apart from rabbitmq-node's own."""
    while True:
        port = random.randrange(15000, 19000)
        with socket.socket() as s:
            try:
                s.bind(('127.0.0.1', port))
                return port
            except OSError:
                pass
