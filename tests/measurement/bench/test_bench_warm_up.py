"""Where the warm-up ends."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from rankslice.measurement.bench.bench_warm_up import WarmUp, find_warm_up


def steady(count: int, seed: int = 0) -> NDArray[np.int64]:
    noise = np.random.default_rng(seed).gamma(100, 1 / 100, count)
    return (1e7 * noise).astype(np.int64)


def test_alike_frames_have_no_warm_up() -> None:
    ends = [find_warm_up(steady(300, seed)) for seed in range(100)]
    assert all(end.settled for end in ends)
    assert sum(end.frames > 0 for end in ends) <= 10


def test_slow_first_frames_are_warm_up() -> None:
    times = steady(300)
    times[:16] *= 3
    assert 15 <= find_warm_up(times).frames <= 30


def test_a_slow_decay_ends_where_it_is_lost_in_the_noise() -> None:
    decay = 1 + 2 * np.exp(-np.arange(400) / 20)
    warm_up = find_warm_up((steady(400) * decay).astype(np.int64))
    assert warm_up.settled
    assert 40 <= warm_up.frames <= 120


def test_a_stall_of_the_first_half_is_no_warm_up() -> None:
    times = steady(1000)
    times[200:300] += np.arange(100, 0, -1) * 10_000_000
    assert find_warm_up(times).frames <= 10


def test_a_stall_of_the_last_half_hides_no_warm_up() -> None:
    times = steady(1000)
    times[:20] *= 3
    times[700:800] += np.arange(100, 0, -1) * 10_000_000
    assert 20 <= find_warm_up(times).frames <= 30


@pytest.mark.parametrize("slope", [1.0, -0.6])
def test_what_grows_or_falls_to_the_end_never_settles(slope: float) -> None:
    times = steady(300) * (1 + slope * np.arange(300) / 300)
    assert WarmUp(150, settled=False) == find_warm_up(times.astype(np.int64))


def test_few_frames_have_none() -> None:
    assert WarmUp(0, settled=True) == find_warm_up(steady(39))
