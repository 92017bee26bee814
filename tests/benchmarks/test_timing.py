"""The statistics of the scripts in ``benchmarks/``."""

from __future__ import annotations

import math

from timing import spread


def test_the_bounds_of_a_median_are_values() -> None:
    found = spread(range(100))
    assert (49.5, 40, 60) == (found.value, found.low, found.high)


def test_the_bounds_of_a_median_hold_it_as_often_as_they_say() -> None:
    for count in (3, 4, 5, *range(6, 200)):
        found = spread(range(count))
        inside = sum(math.comb(count, n) for n in range(int(found.low) + 1, int(found.high) + 1))
        wanted = {3: 0.75, 4: 0.875, 5: 0.9375}.get(count, 0.947)
        assert wanted <= inside / 2**count
