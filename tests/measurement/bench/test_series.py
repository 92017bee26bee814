"""Figures of a benchmark's raw values, and where the warm-up of a start ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks_made import MS, bench, queued, start, subject
from numpy.typing import NDArray

from rankslice.measurement.bench.bench_records import Load, StageTimes
from rankslice.measurement.bench.bench_warm_up import WarmUp, find_warm_up
from rankslice.measurement.bench.series import own_ratios, series


def test_a_stage_with_known_times_has_the_percentiles_it_must() -> None:
    times = [MS * (1 + frame % 100) for frame in np.random.default_rng(0).permutation(2000)]
    figures = series(bench([start(times), start(times[::-1], turn=1)]), 0, 0)
    (stage,) = figures.stages
    for histogram in (stage.histogram, figures.histogram):
        assert 50 * MS == pytest.approx(histogram.percentile_ns(50), rel=0.03)
        assert 99 * MS == pytest.approx(histogram.percentile_ns(99), rel=0.02)
        assert 100 * MS == pytest.approx(histogram.percentile_ns(99.99), rel=0.001)
        assert 99 * MS == pytest.approx(histogram.jitter_ns, rel=0.001)


def test_a_stall_shows_in_the_percentiles_as_the_schedule_says() -> None:
    frames, at, period, service = 2000, 1200, 10 * MS, 2 * MS
    services = [service + (1000 * MS if frame == at else 0) for frame in range(frames)]
    latencies = queued([period * frame for frame in range(frames)], services)
    figures = series(bench([start(latencies)], loads=(Load("100 frames/s", fps=100.0),)), 0, 0)
    # Frame k after the stall waits 8 ms less than the one before it.
    delayed = [1002 * MS - 8 * MS * k for k in range(125)]
    counted = len(figures.starts[0].latencies_ns)
    assert figures.starts[0].warm_up.frames <= 10
    rank = counted - int(np.ceil(0.99 * counted))
    assert delayed[rank] == pytest.approx(figures.histogram.percentile_ns(99), rel=1e-3)
    assert delayed[rank] == pytest.approx(figures.percentile_ns(99).value, abs=8 * MS)
    assert 842 * MS == delayed[20]
    assert delayed[0] == pytest.approx(figures.histogram.max_ns, rel=1e-3)
    assert service == pytest.approx(figures.histogram.percentile_ns(50), rel=1e-3)


def test_a_rate_leaves_out_the_warm_up() -> None:
    latencies = [200 * MS] * 20 + [10 * MS] * 180
    figures = series(bench([start(latencies)]), 0, 0)
    assert 20 <= figures.starts[0].warm_up.frames <= 25
    assert 100 == pytest.approx(figures.starts[0].throughput_fps, rel=0.15)
    assert 10 * MS == figures.mean_ns.value


def test_a_rate_counts_from_the_last_frame_of_the_warm_up() -> None:
    made = start([10 * MS] * 200)
    # All of it settles at once, so that the warm-up is the ten frames that fill the pipeline.
    later = tuple(10 * MS * frame + (990 * MS if frame >= 10 else 0) for frame in range(200))
    figures = series(bench([replace(made, arrived_ns=later)]), 0, 0)
    assert 10 == figures.starts[0].warm_up.frames
    assert 190 / (1.0 + 189 * 0.01) == pytest.approx(figures.starts[0].throughput_fps)


def test_pairs_are_those_of_a_turn() -> None:
    slow = [2, 4, 8]
    starts = [start([10 * MS * slow[turn]] * 60, turn=turn) for turn in (2, 0, 1)]
    starts += [start([5 * MS * slow[turn]] * 60, turn=turn, subject=1) for turn in (1, 2, 0)]
    found = {each.figure: each for each in own_ratios(bench(starts, (subject("a"), subject("b"))))}
    for figure in ("mean ms", "p50 ms", "p99 ms"):
        ratio = found[figure].ratio
        assert (2, 2, 2) == pytest.approx((ratio.value, ratio.low, ratio.high))
    assert (10 * 14 / 3, "slower") == (found["mean ms"].measured.value, found["mean ms"].more)


def test_one_job_is_compared_with_none() -> None:
    assert [] == own_ratios(bench([start([MS] * 60)]))


def test_where_windows_differ_latencies_of_the_closed_loop_are_not_compared() -> None:
    starts = [start([10 * MS] * 60, turn=turn, subject=job) for turn in (0, 1) for job in (0, 1)]
    jobs = (subject("a"), replace(subject("b"), window=9))
    assert ["frames/s"] == [ratio.figure for ratio in own_ratios(bench(starts, jobs))]
    timed = bench(starts, jobs, (Load("100 frames/s", 100.0),))
    assert ["mean ms", "p50 ms", "p99 ms"] == [ratio.figure for ratio in own_ratios(timed)]


def test_turns_that_only_one_job_has_are_not_compared() -> None:
    starts = [start([10 * MS] * 60, turn=turn) for turn in range(4)]
    starts += [start([5 * MS] * 60, turn=turn, subject=1) for turn in (1, 3, 7)]
    ratios = own_ratios(bench(starts, (subject("a"), subject("b"))))
    assert 2 == pytest.approx(ratios[1].ratio.value)
    apart = [starts[0], starts[-1]]
    assert [] == own_ratios(bench(apart, (subject("a"), subject("b"))))


def test_a_stage_that_only_some_starts_have_counts_in_those() -> None:
    usual, surge = start([MS] * 60), start([MS] * 60, turn=1)
    other = StageTimes(0, 1, 1, (7 * MS,) * 60)
    figures = series(bench([usual, replace(surge, stages=(*surge.stages, other))]), 0, 0)
    assert [(0, 100), (1, 50)] == [(stage.route, stage.histogram.count) for stage in figures.stages]


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
