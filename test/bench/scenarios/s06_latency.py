"""Commit to consumer on an idle broker, open loop.

Added: the percentile of this (commit seen by the client, to arrival) less the
same percentile of RAW (publish, to arrival) at the same rate.  From the intended
send time, and from commit to settled, are reported beside it.
"""

import drivers
from checks import Check
from database import Database
from latency import open_loop, quantiles, raw_open_loop, settled_ms, sorted_ms
from stats import cumulative

TITLE = '6. Latency'


def run_poll(bench, db, rate, seconds, check, seed=False):
    """POLL's latencies at one rate, or SEED's."""
    db.empty('poll_outbox')
    relay = bench.drivers.poll(bench.pg.conninfo(db.name), 'poll_outbox', bench.rabbit.port,
                               seed=seed)
    try:
        arrived, sent, _ = open_loop(bench, db, rate, seconds, check,
                                     drivers.INSERT % 'poll_outbox')
        relay.stop()
    finally:
        relay.kill()
    return sorted_ms(arrived, sent, 2)


def run_rate(bench, db, size, rate):
    check = Check()
    figures = {name: ([], []) for name in ('this', 'raw', 'due', 'raw due', 'settled')}
    everything = {'this': [], 'raw': []}
    late = []

    def note(name, values):
        for target, value in zip(figures[name], quantiles(values)):
            target.append(value)

    # the first messages of a connection pay for caches
    open_loop(bench, db, rate, 1, Check())
    for _ in range(size.repeats):
        db.empty()
        arrived, sent, result = open_loop(bench, db, rate, size.seconds, check)
        late.append(result['late'] / result['sent'])
        note('this', sorted_ms(arrived, sent, 2))
        note('due', sorted_ms(arrived, sent, 0))
        everything['this'] += sorted_ms(arrived, sent, 2)
        db.wait_empty()
        note('settled', settled_ms(db, sent))
        arrived, sent, _ = raw_open_loop(bench, rate, size.seconds)
        note('raw', sorted_ms(arrived, sent, 1))
        note('raw due', sorted_ms(arrived, sent, 0))
        everything['raw'] += sorted_ms(arrived, sent, 1)
    case = '%d msg/s' % rate
    common = dict(rate=rate, seconds=size.seconds, bytes=256, connections=8)
    text = 'sent more than 1 ms late: %.1f %%' % (100 * max(late))
    for i, (p, first, end) in enumerate((('p50', 0.5, 0.15), ('p99', 5, 1))):
        bench.results.add(6, case, 'commit to consumer, ' + p, 'ms', figures['this'][i],
                          ('RAW', figures['raw'][i]), judge='added', better='lower',
                          first=first, end=end, check=check, note=text, **common)
    for i, p in enumerate(('p50', 'p99')):
        bench.results.add(6, case, 'intended time to consumer, ' + p, 'ms', figures['due'][i],
                          ('RAW', figures['raw due'][i]), judge='added', better='lower',
                          check=check, **common)
        bench.results.add(6, case, 'commit to settled, ' + p, 'ms', figures['settled'][i],
                          better='lower', judge='this', check=check, **common)
    return {name: sorted(values) for name, values in everything.items()}


def run(bench):
    size = bench.sizes(6)
    db = Database(bench, 's6', bench.rabbit)
    db.make_poll()
    curves = {}
    for rate in size.rates:
        values = run_rate(bench, db, size, rate)
        curves['outbox, commit to consumer, %d/s' % rate] = values['this']
        curves['RAW, publish to consumer, %d/s' % rate] = values['raw']
    for name, rate, interval in (('POLL', size.rates[1], '100 ms'),
                                 ('SEED', size.rates[0], '1 s, when empty')):
        check = Check()
        values = run_poll(bench, db, rate, size.seconds, check, name == 'SEED')
        curves['%s, commit to consumer, %d/s' % (name, rate)] = values
        for p, value in zip(('p50', 'p99'), quantiles(values)):
            bench.results.add(6, '%s for comparison, %d msg/s' % (name, rate),
                              'commit to consumer, ' + p, 'ms', value, judge='this',
                              better='lower', check=check, interval=interval)
    bench.plots.lines('latency', 'Latency, cumulative', 'milliseconds', 'share of messages',
                      {name: [(ms, share) for ms, share in cumulative(values) if ms > 0]
                       for name, values in curves.items()}, logx=True)
    db.drop()
