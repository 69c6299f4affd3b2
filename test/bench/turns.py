"""A/B/B/A/A/B ...: sides in turns, so that what drifts on the machine hits all alike."""


def take_turns(repeats, *sides, warm=False):
    """Calls each side once a round, in reversed order every other round.

    Returns one list of their values for each side, in the order of the rounds.  With
    warm, each is called once before, and that value dropped.
    """
    if warm:
        for side in sides:
            side()
    values = [[] for _ in sides]
    for i in range(repeats):
        order = list(range(len(sides)))
        for k in order if i % 2 == 0 else reversed(order):
            values[k].append(sides[k]())
    return values
