"""Intervals hold what they promise, in simulated benchmarks whose truth is known."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from benchmarks_made import bench, start, subject
from numpy.typing import NDArray

from rankslice.framework.errors import RankSliceError
from rankslice.measurement.bench.intervals import (
    Components,
    Interval,
    advice,
    check_installed,
    components,
    is_significant,
    mean_interval,
    paired_ratio,
    percentile,
    percentile_interval,
    significantly,
    unpaired_ratio,
)
from rankslice.measurement.bench.series import own_ratios

COMPARISONS, PAIRS, FRAMES = 1000, 10, 300
MOST_FALSE = 0.05 * COMPARISONS + 3 * math.sqrt(COMPARISONS * 0.05 * 0.95)
"""Three standard deviations of the binomial distribution above 5 per cent."""


def turns(
    draw: np.random.Generator, ratio: float = 1.0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return latencies in ns of two jobs, [pair, frame], of which one is slower.

    The machine drifts by 10 per cent from turn to turn, a start has 1 per cent of its own, and a
    frame 20 per cent with a long tail.
    """
    machine = np.exp(0.1 * draw.standard_normal((PAIRS, 1)))
    sides = []
    for factor in (ratio, 1.0):
        own = np.exp(0.01 * draw.standard_normal((PAIRS, 1)))
        frames = draw.gamma(25.0, 1 / 25.0, (PAIRS, FRAMES))
        sides.append(1e7 * factor * machine * own * frames)
    return sides[0], sides[1]


def significant(ratio: float, seed: int) -> int:
    """Return how many simulated comparisons find a difference of the means."""
    draw = np.random.default_rng(seed)
    found = 0
    for _ in range(COMPARISONS):
        measured, reference = (side.mean(axis=1).tolist() for side in turns(draw, ratio))
        found += is_significant(paired_ratio(measured, reference))
    return found


def test_identical_jobs_differ_no_more_often_than_the_confidence_allows() -> None:
    assert significant(1.0, seed=1) <= MOST_FALSE


def test_a_job_that_is_three_per_cent_slower_is_found() -> None:
    assert significant(1.03, seed=2) >= 0.9 * COMPARISONS


@pytest.mark.ci
def test_so_it_is_for_all_figures_of_a_benchmark() -> None:
    draw = np.random.default_rng(3)
    wrong = dict.fromkeys(("frames/s", "mean ms", "p50 ms", "p99 ms"), 0)
    for _ in range(COMPARISONS // 2):
        sides = turns(draw)
        starts = [
            start(latencies, subject=place, turn=turn, period_ns=1000)
            for place, side in enumerate(sides)
            for turn, latencies in enumerate(side[:, :60])
        ]
        for ratio in own_ratios(bench(starts, (subject("a"), subject("b")))):
            wrong[ratio.figure] += is_significant(ratio.ratio)
    most = 0.05 * COMPARISONS / 2 + 3 * math.sqrt(COMPARISONS / 2 * 0.05 * 0.95)
    assert all(count <= most for count in wrong.values()), wrong


def test_a_ratio_has_the_true_one_in_its_interval_as_often_as_it_says() -> None:
    draw = np.random.default_rng(4)
    outside = 0
    for _ in range(COMPARISONS):
        measured, reference = (side.mean(axis=1).tolist() for side in turns(draw, 1.03))
        ratio = paired_ratio(measured, reference)
        outside += not ratio.low <= 1.03 <= ratio.high
    assert outside <= MOST_FALSE


def test_what_was_measured_in_turns_tells_more() -> None:
    measured, reference = (
        side.mean(axis=1).tolist() for side in turns(np.random.default_rng(5), 1.03)
    )
    paired, unpaired = paired_ratio(measured, reference), unpaired_ratio(measured, reference)
    assert paired.value == pytest.approx(unpaired.value)
    assert paired.half_width < unpaired.half_width / 2


def test_a_mean_has_students_interval() -> None:
    interval = mean_interval([1.0, 2.0, 3.0, 4.0])
    half = 3.1824463 * math.sqrt(5 / 3) / 2
    assert interval.value == 2.5
    assert (interval.low, interval.high) == pytest.approx((2.5 - half, 2.5 + half))


def test_one_start_tells_no_interval() -> None:
    single = np.array([3, 4], np.int64)
    unknown = (
        mean_interval([3.0]),
        paired_ratio([3.0], [2.0]),
        unpaired_ratio([3.0], [2.0, 2.0]),
        percentile_interval([single], 50),
    )
    assert not any(each.is_known for each in unknown)
    assert not any(map(is_significant, unknown))
    assert components([single]) is None
    assert "one start gives no interval" == significantly(unknown[1], "slower", "faster")


def test_starts_without_any_spread_are_compared() -> None:
    assert is_significant(paired_ratio([2.0, 2.0], [1.0, 1.0]))
    assert is_significant(unpaired_ratio([2.0, 2.0], [1.0, 1.0]))
    assert not is_significant(paired_ratio([2.0, 2.0], [2.0, 2.0]))


TRIALS = 500
LEAST_INSIDE = 0.95 * TRIALS - 5 * math.sqrt(TRIALS * 0.95 * 0.05)
"""Five standard deviations below 95 per cent: 90.1 per cent."""


@pytest.mark.parametrize("count", [3, 5, 20])
@pytest.mark.parametrize("percent", [50, 90, 99])
def test_percentiles_of_starts_that_differ_have_the_true_one_in_their_interval(
    percent: float, count: int
) -> None:
    """Each start is slower or faster by 5 per cent, and a frame has a part of its own."""
    draw = np.random.default_rng(round(percent) + count)
    truth = 1e6 * (1 - 0.1 * math.log(1 - percent / 100))
    inside = 0
    for _ in range(TRIALS):
        own = 1e6 * (1 + 0.05 * draw.standard_normal((count, 1)))
        starts = (own * (1 + 0.1 * draw.exponential(size=(count, 200)))).astype(np.int64)
        interval = percentile_interval(starts, percent)
        inside += interval.low <= truth <= interval.high
    assert inside >= LEAST_INSIDE


@pytest.mark.parametrize("percent", [50, 90, 99])
def test_ratios_of_percentiles_of_starts_that_differ_do_so_too(percent: float) -> None:
    draw = np.random.default_rng(round(percent))
    inside = [0, 0]
    for _ in range(TRIALS):
        sides = []
        for factor in (1.0, 1.1):
            own = 1e6 * factor * np.exp(0.05 * draw.standard_normal((5, 1)))
            starts = (own * (1 + 0.4 * draw.exponential(size=(5, 200)))).astype(np.int64)
            sides.append([percentile(each, percent) for each in starts])
        for place, ratio in enumerate((paired_ratio, unpaired_ratio)):
            compared = ratio(sides[1], sides[0])
            inside[place] += compared.low <= 1.1 <= compared.high
    assert min(inside) >= LEAST_INSIDE


def test_variance_is_told_by_level() -> None:
    draw = np.random.default_rng(7)
    starts = [
        (1e8 + 1e6 * draw.standard_normal() + 5e6 * draw.standard_normal(400)).astype(np.int64)
        for _ in range(300)
    ]
    parts = components(starts)
    assert parts is not None
    assert 1e12 == pytest.approx(parts.starts, rel=0.3)
    assert 25e12 == pytest.approx(parts.frames, rel=0.2)


@pytest.mark.parametrize(("own", "expected"), [(0.0, 0.0), (2e6, 4e12)])
def test_what_few_frames_leave_to_chance_does_not_count_for_starts(
    own: float, expected: float
) -> None:
    # Means of 25 frames differ by 1e6 though starts do not.
    draw = np.random.default_rng(9)
    starts = [
        (1e8 + own * draw.standard_normal() + 5e6 * draw.standard_normal(25)).astype(np.int64)
        for _ in range(2000)
    ]
    parts = components(starts)
    assert parts is not None
    assert expected == pytest.approx(parts.starts, rel=0.1, abs=1.5e11)


def test_frames_that_are_alike_count_for_fewer() -> None:
    draw = np.random.default_rng(8)
    alike = [np.repeat((1e6 * draw.exponential(size=40)).astype(np.int64), 10) for _ in range(50)]
    apart = [(1e6 * draw.exponential(size=400)).astype(np.int64) for _ in range(50)]
    found, expected = components(alike), components(apart)
    assert found is not None
    assert expected is not None
    assert found.frames > 4 * expected.frames


@pytest.mark.parametrize(
    ("parts", "frames"), [(Components(1.0, 400.0), 40), (Components(0.0, 400.0), 4)]
)
def test_frames_are_worth_their_time_while_they_add_less_than_a_start(
    parts: Components, frames: int
) -> None:
    advised = advice(parts, 100.0, start_s=2.0, frame_s=0.5)
    assert frames == advised.frames
    total = parts.starts + parts.frames / advised.frames
    assert 1.0 >= 1.9 * math.sqrt(total / advised.starts)


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (Interval(1.1, 1.05, 1.2), "slower"),
        (Interval(0.9, 0.8, 0.95), "faster"),
        (Interval(1.1, 0.99, 1.2), "not significant"),
    ],
)
def test_a_verdict_needs_an_interval_without_1(ratio: Interval, words: str) -> None:
    assert words == significantly(ratio, "slower", "faster")


def test_the_extra_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(RankSliceError, match=r"needs scipy: pip install 'rankslice\[bench\]'"):
        check_installed()
