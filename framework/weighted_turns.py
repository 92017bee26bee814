"""How several ranks with the same layers take turns, by their weights or times."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rankslice.backend.runtime.job import MAX_TURNS, Turns

_MAX_CHOSEN = 12
"""Largest sum of weights that are chosen, unless there are more than half as many ranks."""

_ALIKE = 1.02
"""By how much longer a frame may take if that makes the weights smaller."""


def by_weights(weights: Sequence[int]) -> tuple[Turns, ...]:
    """Return the turns of ranks that handle frames in proportion to weights, as evenly as can be.

    It is smooth weighted round robin: each rank gains its weight with every frame, and the one that
    has most gives the sum of all weights for the frame. Of equal ones the first takes it.
    """
    divisor = math.gcd(*weights)
    reduced = [weight // divisor for weight in weights]
    period = sum(reduced)
    has = [0] * len(reduced)
    positions: list[list[int]] = [[] for _ in reduced]
    for position in range(period):
        has = [mine + weight for mine, weight in zip(has, reduced, strict=True)]
        chosen = has.index(max(has))
        has[chosen] -= period
        positions[chosen].append(position)
    return tuple(Turns(period, tuple(numbers)) for numbers in positions)


def weights_for(times: Sequence[float]) -> tuple[int, ...]:
    """Return weights for ranks in turn that get close to the highest rate with small numbers.

    Frames come out at intervals of what the rank takes that has most to do: its time, times its
    share of the frames. Of sums of weights whose intervals differ by 2 % at most, the smallest
    is taken.
    """
    most = min(MAX_TURNS, max(_MAX_CHOSEN, 2 * len(times)))
    weights = [1] * len(times)
    intervals: list[tuple[float, tuple[int, ...]]] = []
    while True:
        longest = max(weight * time for weight, time in zip(weights, times, strict=True))
        intervals.append((longest / sum(weights), tuple(weights)))
        if sum(weights) == most:
            break
        # One more for the rank that then has least to do is the best for every sum.
        least = [(weight + 1) * time for weight, time in zip(weights, times, strict=True)]
        weights[least.index(min(least))] += 1
    best = min(interval for interval, _ in intervals)
    return next(weights for interval, weights in intervals if interval <= best * _ALIKE)
