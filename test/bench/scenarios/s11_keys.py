"""Keys: one for all messages, a hundred, each its own; and the route's ordering 'none'.

Through RabbitMQ, classic queue, retention default.  One key can have one
message unconfirmed at a time, so the hot key is compared with RAW at window 1
(which writes nothing to a database between two messages), and a hundred keys
with RAW at window 100.  With ordering 'pipelined' a key has a window: its hot key is
compared with RAW at window 1000.  Distinct keys are compared with the same messages on a
route with ordering 'none'.
"""

from checks import Check
from database import Database
from drain import drain_into_queue

TITLE = '11. Keys'


def run(bench):
    size = bench.sizes(11)
    db = Database(bench, 's11', bench.rabbit)
    for ordering in ('none', 'pipelined'):
        db.sql("INSERT INTO outbox_route (name, exchange, ordering) VALUES ('%s', '%s', '%s')"
               % (ordering, db.exchange, ordering))
    raw = bench.drivers.raw_into_queue
    cases = ('hot', 'pipelined', '100', 'distinct', 'none')
    rates = {name: [] for name in cases + ('RAW 1', 'RAW 100', 'RAW 1000')}
    checks = {name: Check() for name in cases}

    def drain(name, count, **options):
        rates[name].append(drain_into_queue(bench, db, count, checks[name], **options))

    for _ in range(size.repeats):
        rates['RAW 1'].append(raw(size.hot, window=1)['rate'])
        drain('hot', size.hot, keys=1)
        rates['RAW 1000'].append(raw(size.messages, window=1000)['rate'])
        drain('pipelined', size.messages, keys=1, route='pipelined')
        rates['RAW 100'].append(raw(size.messages, window=100)['rate'])
        drain('100', size.messages, keys=100)
        drain('distinct', size.messages)
        # without a key in the body: what has no order is not checked for it
        drain('none', size.messages, keys=None, route='none')
    common = dict(bytes=256, repeats=size.repeats)
    for name, text, baseline, end in (
            ('hot', 'one hot key', 'RAW 1', 0.9),
            ('pipelined', "one hot key, ordering 'pipelined'", 'RAW 1000', 0.8),
            ('100', '100 keys', 'RAW 100', None),
            ('100', '100 keys', 'none', None),
            ('distinct', 'all keys distinct', 'none', 0.95)):
        label = {'RAW 1': 'RAW window 1', 'RAW 100': 'RAW window 100', 'RAW 1000': 'RAW window 1000',
                 'none': "ordering 'none'"}[baseline]
        bench.results.add(11, text, 'drain', 'msg/s', rates[name], (label, rates[baseline]),
                          end=end, check=checks[name],
                          messages=size.hot if name == 'hot' else size.messages, **common)
    bench.results.add(11, "ordering 'none'", 'drain', 'msg/s', rates['none'],
                      check=checks['none'], messages=size.messages, **common)
    db.drop()
