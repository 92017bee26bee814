"""MLPerf's scenarios, on latencies that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rankslice.framework.errors import RankSliceError
from rankslice.measurement.bench.scenarios import (
    SCENARIOS,
    arrival_times,
    figures_of,
    overruns_allowed,
    proven_latency,
    queries_needed,
    refuse_too_few,
)

SERVER = SCENARIOS["server"]


def test_the_numbers_of_queries_are_those_of_mlperf() -> None:
    assert [44, 64, 81] == [queries_needed(0.90, overruns) for overruns in range(3)]
    assert [459, 662, 838] == [queries_needed(0.99, overruns) for overruns in range(3)]


@pytest.mark.parametrize("percentile", [0.90, 0.99, 0.999])
@pytest.mark.parametrize("overruns", [0, 1, 7, 300])
def test_as_many_overruns_are_allowed_as_the_binomial_distribution_says(
    percentile: float, overruns: int
) -> None:
    queries = queries_needed(percentile, overruns)
    assert overruns == overruns_allowed(percentile, queries)
    assert overruns - 1 == overruns_allowed(percentile, queries - 1)

    def probability(n: int) -> float:
        return sum(
            math.exp(
                math.lgamma(n + 1)
                - math.lgamma(k + 1)
                - math.lgamma(n - k + 1)
                + k * math.log(1 - percentile)
                + (n - k) * math.log(percentile)
            )
            for k in range(overruns + 1)
        )

    assert probability(queries) <= 0.01 < probability(queries - 1)


def test_a_proven_percentile_is_wrong_no_more_often_than_its_confidence_allows() -> None:
    draw = np.random.default_rng(1)
    true = -math.log(0.01)  # the percentile of 99 % of the exponential distribution
    wrong = sum(proven_latency(draw.exponential(size=2000), 0.99)[0] < true for _ in range(1000))
    assert wrong <= 20  # of 10 on average, at most


def test_too_few_frames_are_refused_with_the_number_that_it_takes() -> None:
    with pytest.raises(
        RankSliceError, match=r"661 are too few to determine p99.*give at least 662$"
    ):
        refuse_too_few(SERVER, 661)
    with pytest.raises(RankSliceError, match=r"at least 5296 \(662 queries of 8\)"):
        refuse_too_few(SCENARIOS["multi"], 662)
    with pytest.raises(RankSliceError, match="at least 64"):
        refuse_too_few(SCENARIOS["single"], 63)
    refuse_too_few(SERVER, 662)


def test_a_server_counts_from_the_scheduled_time() -> None:
    times = arrival_times(100.0, 700, seed=3)
    assert 0.0 == times[0]
    assert (times == arrival_times(100.0, 700, seed=3)).all()
    assert pytest.approx(0.01, rel=0.15) == np.diff(times).mean()
    assert pytest.approx(0.01, rel=0.15) == np.diff(times).std()
    taken = np.zeros(700)
    taken[300] = 1.0  # a stall, behind which queries wait; they are answered at the same time
    ends = np.maximum.accumulate(times + taken) + 1e-3
    late = int((ends - times > 0.02).sum())
    assert late > 50
    figures = figures_of(SERVER, times, ends, target_fps=100.0, limit_s=0.02)
    assert late == figures.overruns
    assert 1 == figures.allowed_overruns
    assert figures.is_within_limit is False
    assert f"p99 <= 20 ms is not shown: {late} of 700 queries" in figures.verdict()


def test_a_server_is_within_its_limit_with_as_many_overruns_as_it_may_have() -> None:
    times = arrival_times(100.0, 662, seed=3)
    ends = times + 0.010
    ends[[5]] += 0.02
    figures = figures_of(SERVER, times, ends, limit_s=0.015)
    assert figures.is_within_limit
    assert "p99 <= 15 ms with 99 % confidence: 1 of 662" in figures.verdict()
    ends[[9]] += 0.02
    assert not figures_of(SERVER, times, ends, limit_s=0.015).is_within_limit


def test_a_query_of_several_frames_ends_with_its_last_one() -> None:
    queries = np.arange(662) * 0.1
    begins = np.repeat(queries, 8)
    ends = begins + np.tile(np.arange(1, 9) * 0.01, 662)
    figures = figures_of(SCENARIOS["multi"], begins, ends)
    assert 662 == figures.queries
    assert [pytest.approx(0.08)] * 3 == [figures.percentile_s, figures.proven_s, figures.mean_s]
    assert "p99 <= 80 ms with 99 % confidence" == figures.verdict()


def test_offline_counts_all_frames_over_the_whole_time() -> None:
    figures = figures_of(SCENARIOS["offline"], np.zeros(50), np.arange(1, 51) / 10)
    assert (1, 50) == (figures.queries, figures.frames)
    assert 10.0 == figures.throughput_fps
    assert figures.percentile_s is None
    assert "10 frames/s" == figures.verdict()
