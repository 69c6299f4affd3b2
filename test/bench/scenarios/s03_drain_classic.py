"""A backlog into a classic durable queue, default settings (archive included)."""

from checks import Check
from database import Database
from drain import drain_into_queue, poll_drain
from turns import take_turns

TITLE = '3. Drain, classic queue'


def run(bench):
    size = bench.sizes(3)
    db = Database(bench, 's3', bench.rabbit)
    db.make_poll()
    check, poll_check = Check(), Check()

    def raw_side():
        return bench.drivers.raw_into_queue(size.messages)['rate']
    this, raw = take_turns(size.repeats, raw_side, lambda: drain_into_queue(
        bench, db, size.messages, check))[::-1]
    poll, poll_raw = take_turns(size.poll_repeats, lambda: poll_drain(
        bench, db, size.messages, poll_check, bench.rabbit), raw_side)
    common = dict(messages=size.messages, bytes=256)
    bench.results.add(3, 'classic queue, one worker', 'drain', 'msg/s', this, ('RAW', raw),
                      first=0.80, end=0.95, check=check, **common)
    bench.results.add(3, 'POLL for comparison', 'drain', 'msg/s', poll, ('RAW', poll_raw),
                      check=poll_check, batch=500, **common)
    db.drop()
