"""A backlog to the null broker, retention 0: the relay's own speed and cost."""

from checks import Check
from database import Database
from drain import drain_into_null, poll_drain

TITLE = '5. Drain, null broker'


def run(bench):
    size = bench.sizes(5)
    db = Database(bench, 's5', bench.null, **{'outbox.retention': '0'})
    db.make_poll()
    check, poll_check = Check(), Check()
    this, cpu, raw, raw_cpu, poll = [], [], [], [], []
    split = {}
    for i in range(size.repeats):
        rate, used = drain_into_null(bench, db, size.messages, check)
        this.append(rate)
        cpu.append(used.by['relay'] * 1e6 / size.messages)
        split = used.per_message(size.messages)
        result = bench.drivers.raw(bench.null, size.messages)
        raw.append(result['rate'])
        raw_cpu.append(result['cpu_us'])
        if i < size.poll_repeats:
            poll.append(poll_drain(bench, db, size.poll_messages, poll_check, bench.null))
    common = dict(messages=size.messages, bytes=256, retention=0)
    note = 'CPU us a message in the last run, by process: %s' % split
    bench.results.add(5, 'null broker, one worker', 'drain', 'msg/s', this, ('RAW', raw),
                      judge='this', first=100_000, end=200_000, check=check, note=note, **common)
    bench.results.add(5, 'null broker, one worker', 'CPU of the worker', 'us/msg', cpu,
                      ('RAW', raw_cpu), judge='this', better='lower', first=10, end=5,
                      check=check, **common)
    bench.results.add(5, 'POLL for comparison', 'drain', 'msg/s', poll, ('RAW', raw),
                      check=poll_check, messages=size.poll_messages, batch=500)
    db.drop()
