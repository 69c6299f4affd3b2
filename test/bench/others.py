"""Relays of others as baselines, where an environment variable names their program:

    OUTBOX_BENCH_GO_OUTBOX=PATH   the binary of efureev/go-outbox
    OUTBOX_BENCH_DEBEZIUM=PATH    run.sh of Debezium Server, or the like: it is started in a
                                  folder that has config/application.properties

Nothing of them is installed here.  Both drain a backlog into a queue, and their rate is
from the first message in the queue to the last, looked at ten times a second: a start of
the Java virtual machine is not in it.  Debezium needs wal_level = logical, which the
server has then for all scenarios of the run.
"""

import os
import shutil
import subprocess
import time

import database
from drain import take_record
from servers import TOP, free_port

VARIABLES = {'go-outbox': 'OUTBOX_BENCH_GO_OUTBOX', 'Debezium Server': 'OUTBOX_BENCH_DEBEZIUM'}
EXAMPLE = os.path.join(TOP, 'examples', 'debezium')
START = 120				# s, until the first message is in the queue
QUEUE = 'bench.classic'


def program(name):
    """Its path, or None."""
    return os.environ.get(VARIABLES[name])


def given():
    """For the table of the environment."""
    return ', '.join('%s %s' % (name, os.path.basename(program(name) or 'not given (%s)' % variable))
                     for name, variable in VARIABLES.items())


def server_conf():
    return ("wal_level = logical\nlisten_addresses = '127.0.0.1'\n"
            if program('Debezium Server') else '')


def rate_into_queue(bench, command, env, directory, count, seconds=600):
    """Starts a relay and waits for so many messages in the queue; messages a second."""
    log = os.path.join(directory, 'log')
    with open(log, 'w') as out:
        relay = subprocess.Popen(command, cwd=directory, env=dict(os.environ, **env),
                                 stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        first, seen, depth = None, 0, 0
        end = time.monotonic() + START
        while depth < count:
            depth = bench.rabbit.depth(QUEUE)
            now = time.monotonic()
            if first is None and depth > 0:
                first, seen, end = now, depth, now + seconds
            if relay.poll() is not None or now > end:
                with open(log) as text:
                    raise RuntimeError('%s: %d of %d messages: %s' % (
                        command[0], depth, count, text.read()[-1000:]))
            time.sleep(0.1)
        return (count - seen) / max(now - first, 0.001)
    finally:
        relay.terminate()
        try:
            relay.wait(60)
        except subprocess.TimeoutExpired:
            relay.kill()
            relay.wait()


def fresh_directory(bench, name):
    directory = os.path.join(bench.tmp, name)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    return directory


def go_outbox(bench, db, count):
    """Its own table outbox.messages, made by its own migrations; 16 workers, 8 channels."""
    directory = fresh_directory(bench, 'go-outbox')
    env = {
        'OUTBOX_DB_DSN': 'postgres://postgres@/%s?host=%s&port=%s&sslmode=disable' % (
            db.name, db.pg.host, db.pg.port),
        'OUTBOX_STREAMS': 'bench', 'OUTBOX_STREAM_BENCH_DRIVER': 'rmq',
        'OUTBOX_DRIVER_RMQ_TYPE': 'rabbitmq',
        'OUTBOX_DRIVER_RMQ_DSN': 'amqp://guest:guest@127.0.0.1:%d/' % bench.rabbit.port,
        'OUTBOX_DRIVER_RMQ_CHANNELS': '8', 'OUTBOX_DISPATCH_WORKERS': '16',
        'OUTBOX_DISPATCH_BATCH_SIZE': '500', 'OUTBOX_LOG_LEVEL': 'warn',
        'OUTBOX_HTTP_PORT': str(free_port()), 'OUTBOX_METRICS_PORT': str(free_port())}
    path = program('go-outbox')
    subprocess.run([path, 'migrate', 'up'], env=dict(os.environ, **env), check=True,
                   capture_output=True, cwd=directory)
    db.sql('TRUNCATE outbox.messages')
    payload = database.PAYLOAD.format(k='i', n='i', size=256)
    db.sql('INSERT INTO outbox.messages (id, stream, topic, payload, target)'
           " SELECT public.outbox_uuid7(), 'bench', 'bench.event', convert_to((%s)::text, 'UTF8'),"
           ' \'{"exchange": "%s"}\' FROM generate_series(1, %d) i' % (payload, QUEUE, count))
    db.settle_down('outbox.messages')
    return rate_into_queue(bench, [path, 'run'], env, directory, count)


def debezium(bench, db, count):
    """A route with relay = 'cdc' and the configuration of examples/debezium."""
    directory = fresh_directory(bench, 'debezium')
    os.mkdir(os.path.join(directory, 'config'))
    shutil.copy(os.path.join(EXAMPLE, 'application.properties'),
                os.path.join(directory, 'config'))
    with open(os.path.join(EXAMPLE, 'setup.sql')) as f:
        for statement in f.read().replace('[setup]', '').split(';')[:-1]:
            db.sql(statement)
    try:
        db.enqueue(count, route='cdc')
        env = {'PGHOST': '127.0.0.1', 'PGPORT': str(db.pg.port), 'PGDATABASE': db.name,
               'RABBITMQ_PORT': str(bench.rabbit.port), 'RABBITMQ_EXCHANGE': QUEUE,
               'DEBEZIUM_HTTP_PORT': str(free_port()),
               'DEBEZIUM_SOURCE_HEARTBEAT_INTERVAL_MS': '0'}
        return rate_into_queue(bench, [program('Debezium Server')], env, directory, count)
    finally:
        db.sql("SELECT pg_drop_replication_slot('outbox_cdc')")
        db.sql('DROP PUBLICATION outbox_cdc')
        db.sql("DELETE FROM outbox_route WHERE name = 'cdc'")
        db.sql('DROP ROLE debezium')


RUN = {'go-outbox': go_outbox, 'Debezium Server': debezium}


def drain(bench, db, name, count, check):
    """Messages a second of one of RUN into an empty queue, checked."""
    bench.rabbit.purge(QUEUE)
    db.pause()
    rate = RUN[name](bench, db, count)
    take_record(bench, count, check, QUEUE)
    return rate
