"""Draining a backlog: what scenarios 3, 4, 5, 9, 10, 11 and 12 have in common.

The relay is paused, the table is filled, vacuumed and checkpointed, and then the
time runs from outbox_resume() until as many messages are settled.  Queues have
no consumer meanwhile; it would take the processor from both sides.
"""

from contextlib import nullcontext

from procs import Cpu


def fill(db, count, truncate=True, **options):
    """Fills a paused outbox; returns the first number."""
    db.pause()
    if truncate:
        db.empty()
    db.enqueue(count, **options)
    db.settle_down()


def drain_into_queue(bench, db, count, check, queue='bench.classic', seconds=600,
                     around=None, **options):
    """Messages a second; the queue is emptied and checked afterwards.  around: a Cpu."""
    bench.rabbit.purge(queue)
    fill(db, count, **options)
    with around or nullcontext():
        elapsed = db.drain(count, seconds)
    take_record(bench, count, check, queue)
    return count / elapsed


def take_record(bench, count, check, queue='bench.classic'):
    """Empties the queue and checks what was in it; returns the arrival times."""
    depth = bench.rabbit.depth(queue)			# with those that came twice
    if depth == 0:
        check.add(count, 0, 0, 0)
        return {}
    consumer = bench.drivers.consumer(queue, count=depth, idle_ms=5000, no_ack=True)
    consumer.result(ok=(0, 3))
    return check.add_record(count, consumer.path)


def drain_into_null(bench, db, count, check, seconds=600, **options):
    """(messages a second, Cpu)"""
    fill(db, count, **options)
    bench.null.reset()
    with Cpu(bench.pg, bench.null.pid) as cpu:
        elapsed = db.drain(count, seconds)
    check.add_null(count, bench.null.stats())
    return count / elapsed, cpu


def poll_drain(bench, db, count, check, broker, queue='bench.classic', seed=False):
    """The baseline POLL, or SEED, on its own table, filled and settled down the same way."""
    db.pause()
    db.empty('poll_outbox')
    db.insert('poll_outbox', count)
    db.settle_down('poll_outbox')
    if broker is bench.null:
        bench.null.reset()
    else:
        broker.purge(queue)
    relay = bench.drivers.poll(bench.pg.conninfo(db.name), 'poll_outbox', broker.port,
                               queue, count, seed)
    try:
        result = relay.result()
    finally:
        relay.kill()
    if broker is bench.null:
        check.add_null(count, bench.null.stats())
    else:
        take_record(bench, count, check, queue)
    return result['rate']
