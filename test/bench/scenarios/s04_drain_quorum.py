"""A backlog into a quorum queue (one node), default settings."""

from checks import Check
from database import Database
from drain import drain_into_queue
from turns import take_turns

TITLE = '4. Drain, quorum queue'


def run(bench):
    size = bench.sizes(4)
    db = Database(bench, 's4', bench.rabbit, queue='quorum')
    check = Check()
    raw, this = take_turns(
        size.repeats,
        lambda: bench.drivers.raw_into_queue(size.messages, 'bench.quorum')['rate'],
        lambda: drain_into_queue(bench, db, size.messages, check, 'bench.quorum'))
    bench.results.add(4, 'quorum queue, one worker', 'drain', 'msg/s', this, ('RAW', raw),
                      first=0.75, end=0.95, check=check, messages=size.messages, bytes=256)
    db.drop()
