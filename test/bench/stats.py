"""Medians, spreads, percentiles."""

import statistics


def median(values):
    return statistics.median(values)


def percentile(ordered, p):
    """Nearest rank; the list is sorted."""
    if not ordered:
        return float('nan')
    rank = max(1, -(-len(ordered) * p // 100))
    return ordered[int(min(rank, len(ordered))) - 1]


def ratios(this, baseline):
    """Pair by pair, as they ran; a list that is shorter counts by its median."""
    if len(this) == len(baseline):
        pairs = zip(this, baseline)
    else:
        pairs = ((t, median(baseline)) for t in this)
    return [t / b for t, b in pairs if b]


def spread(values):
    """(max - min) / median, or None with one value."""
    if len(values) < 2 or median(values) == 0:
        return None
    return (max(values) - min(values)) / abs(median(values))


def cumulative(ordered, points=200):
    """Points (value, share of what is not above) for a plot, dense at the end."""
    result = []
    for i in range(points):
        share = 1 - 10 ** (-4 * (i + 1) / points)
        result.append((percentile(ordered, share * 100), share))
    return result
