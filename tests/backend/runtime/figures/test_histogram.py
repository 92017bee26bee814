"""Durations in logarithmic buckets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rankslice.backend.runtime.figures.histogram import Histogram

durations = st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=200)


def histogram(seconds: list[float]) -> Histogram:
    counted = Histogram()
    for value in seconds:
        counted.add(value)
    return counted


@given(durations, st.sampled_from([1, 50, 90, 99, 99.9, 100]))
def test_percentiles_are_numpys_to_one_per_cent(seconds: list[float], percent: float) -> None:
    expected = float(np.percentile(seconds, percent, method="inverted_cdf"))
    assert histogram(seconds).percentile_s(percent) == pytest.approx(expected, rel=0.01)


@given(durations)
def test_mean_and_largest_are_exact(seconds: list[float]) -> None:
    counted = histogram(seconds)
    assert sum(seconds) / len(seconds) == pytest.approx(counted.mean_s)
    assert max(seconds) == counted.max_s


def test_the_summary_is_in_milliseconds() -> None:
    summary = histogram([0.001, 0.002, 0.004]).summary_ms()
    assert ["mean", "p50", "p90", "p99", "max"] == list(summary)
    assert [7 / 3, 2, 4, 4, 4] == pytest.approx(list(summary.values()), rel=0.01)


def test_an_empty_histogram_is_all_zeros() -> None:
    assert {0.0} == {*Histogram().summary_ms().values()}


@pytest.mark.parametrize("seconds", [0.0, 1e-12, 1e9])
def test_durations_beyond_the_buckets_are_counted_all_the_same(seconds: float) -> None:
    counted = histogram([seconds])
    assert [1] == [count for _, _, count in counted.counts_ms()]
    assert seconds == counted.max_s
    assert counted.percentile_s(50) <= seconds
