"""A backlog into a classic durable queue, default settings (archive included)."""

from checks import Check
from database import Database
from drain import drain_into_queue, poll_drain

TITLE = '3. Drain, classic queue'


def run(bench):
    size = bench.sizes(3)
    db = Database(bench, 's3', bench.rabbit)
    db.make_poll()
    check, poll_check = Check(), Check()
    this, raw, poll = [], [], []
    for i in range(size.repeats):
        raw.append(bench.drivers.raw_into_queue(size.messages)['rate'])
        this.append(drain_into_queue(bench, db, size.messages, check))
        if i < size.poll_repeats:
            poll.append(poll_drain(bench, db, size.messages, poll_check, bench.rabbit))
    common = dict(messages=size.messages, bytes=256)
    bench.results.add(3, 'classic queue, one worker', 'drain', 'msg/s', this, ('RAW', raw),
                      first=0.80, end=0.95, check=check, **common)
    bench.results.add(3, 'POLL for comparison', 'drain', 'msg/s', poll, ('RAW', raw),
                      check=poll_check, batch=500, **common)
    db.drop()
