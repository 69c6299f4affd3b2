"""Whether a run counts: none lost, none twice, none before an earlier one of its key."""

import re

BODY = re.compile(r'\{"k": (\d+|null), "n": (\d+)')


class Check:
    """Sums up the runs behind one figure.  Not ordered: the guarantees promise no order
    there, and inversions are reported only."""

    def __init__(self, ordered=True):
        self.ordered = ordered
        self.expected = self.unique = self.duplicates = self.inversions = 0

    def add(self, expected, unique, duplicates, inversions):
        self.expected += expected
        self.unique += unique
        self.duplicates += duplicates
        self.inversions += inversions

    def ok(self):
        return (self.expected == self.unique and self.duplicates == 0 and
                (self.inversions == 0 or not self.ordered))

    def __str__(self):
        if self.ok():
            return 'ok (%d%s)' % (self.expected, '' if self.ordered else
                                  ', %d before an earlier one of its key' % self.inversions)
        return 'FAILED: of %d lost %d, duplicates %d, inversions %d' % (
            self.expected, self.expected - self.unique, self.duplicates, self.inversions)

    def add_null(self, expected, stats):
        """What a null broker has counted."""
        self.add(expected, stats['unique'], stats['duplicates'] + stats['other'],
                 stats['inversions'])

    def add_record(self, expected, path):
        """What consume has written; returns arrival times by number."""
        times = {}
        last = {}
        duplicates = inversions = 0
        for line in open(path, encoding='utf-8', errors='replace'):
            fields = line.split('\t')
            found = BODY.match(fields[7])
            if fields[1] == '1':
                # handed out twice by the broker, which is not the relay's doing
                continue
            if not found:
                duplicates += 1
                continue
            number = int(found.group(2))
            if number in times:
                duplicates += 1
                continue
            times[number] = int(fields[0])
            key = found.group(1)
            if key != 'null':
                if number < last.get(key, 0):
                    inversions += 1
                last[key] = number
        self.add(expected, len(times), duplicates, inversions)
        return times


def raw_times(path):
    """Arrival times of RAW's messages by number, which is the end of their id."""
    times = {}
    for line in open(path, encoding='utf-8', errors='replace'):
        fields = line.split('\t')
        times[int(fields[2][24:], 16)] = int(fields[0])
    return times


def send_times(path):
    """Of openloop or raw: {number: (due, sent[, committed])}, microseconds."""
    times = {}
    for line in open(path, encoding='ascii'):
        fields = line.split('\t')
        times[int(fields[0])] = tuple(int(f) for f in fields[1:])
    return times
