"""How large each scenario is: in full (make bench) and small (make bench-quick).

All of it in one place, because the sum must stay below 80 minutes and below ten.  Seconds, messages and repeats; the meaning is where they are used.
"""

FULL = {
    'repeats': 5,
    1: dict(seconds=4, clients=(1, 4, 16)),
    2: dict(rows=100_000),
    3: dict(messages=200_000, seed=10_000, poll_repeats=2),
    4: dict(messages=200_000, repeats=3),
    5: dict(messages=500_000, poll_messages=100_000, poll_repeats=2),
    6: dict(rates=(100, 1000, 5000), seconds=10, repeats=3),
    7: dict(rate=2000, seconds=600, base_seconds=60),
    8: dict(rate=1000, away_seconds=300, burst_seconds=8, bursts=4, raw=200_000),
    9: dict(archived=10_000_000, failed=1_000_000, parked=1_000_000,
            messages=200_000, rate=1000, seconds=10, repeats=3),
    10: dict(messages=300_000, workers=(1, 2, 4), repeats=3),
    11: dict(hot=5000, messages=100_000, repeats=3),
    12: dict(sizes={100: 50_000, 1024: 50_000, 16384: 8000, 262144: 1000,
                    1048576: 250}, repeats=3),
    13: dict(seconds=60),
    14: dict(messages=200_000, clients=4, repeats=1),
    15: dict(rates=(100, 1000, 3000), seconds=10, repeats=3),
    16: dict(factor=1, rate=500, seconds=10, repeats=3, idle=60),
    'soak': dict(archived=1_000_000),
}

QUICK = {
    'repeats': 2,
    1: dict(seconds=1, clients=(1, 4, 16)),
    2: dict(rows=20_000),
    3: dict(messages=20_000, seed=1000, poll_repeats=1),
    4: dict(messages=20_000),
    5: dict(messages=50_000, poll_messages=10_000, poll_repeats=1),
    6: dict(rates=(100, 1000), seconds=3, repeats=1),
    7: dict(rate=1000, seconds=20, base_seconds=6),
    8: dict(rate=500, away_seconds=12, burst_seconds=1, bursts=2, raw=20_000),
    9: dict(archived=200_000, failed=20_000, parked=20_000,
            messages=20_000, rate=500, seconds=3),
    10: dict(messages=30_000, workers=(1, 2, 4)),
    11: dict(hot=500, messages=10_000),
    12: dict(sizes={100: 5000, 1024: 5000, 16384: 1000, 262144: 60,
                    1048576: 15}, repeats=1),
    13: dict(seconds=10),
    14: dict(messages=10_000, clients=4, repeats=1),
    15: dict(rates=(100, 1000), seconds=2, repeats=1),
    16: dict(factor=0.01, rate=200, seconds=5, repeats=2, idle=10),
    'soak': dict(archived=10_000),
}


class Sizes:
    """Sizes of one scenario as attributes; repeats has a common default."""

    def __init__(self, table, scenario):
        self.repeats = table['repeats']
        self.__dict__.update(table[scenario])
