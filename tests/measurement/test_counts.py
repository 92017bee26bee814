"""Counts of times, and the percentiles that they tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rankslice.backend.runtime.figures.histogram import Histogram
from rankslice.backend.runtime.figures.rank_figures import are_counts
from rankslice.measurement.summary import merged_counts, percentile_ms, total_count

DURATIONS = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=60)


@given(DURATIONS, st.floats(0, 100))
def test_counts_tell_percentiles_to_one_per_cent(durations: list[float], percent: float) -> None:
    histogram = Histogram()
    for each in durations:
        histogram.add(each)
    counts = histogram.counts_ms()
    assert are_counts(counts)
    expected = 1e3 * float(np.percentile(durations, percent, method="inverted_cdf"))
    assert percentile_ms(counts, percent) == pytest.approx(expected, rel=0.01)


@given(DURATIONS, st.integers(1, 50))
def test_merged_counts_lose_no_value_and_are_few(durations: list[float], most: int) -> None:
    histogram = Histogram()
    for each in durations:
        histogram.add(each)
    found = merged_counts(histogram.counts_ms(), most)
    assert len(durations) == total_count(found)
    assert len(found) <= most
    least, largest = 1e3 * min(durations), 1e3 * max(durations)
    assert found[0][0] <= least * 1.0001
    assert largest <= found[-1][1] * 1.0001


def test_nothing_has_no_percentile() -> None:
    assert 0.0 == percentile_ms((), 50)
    assert () == merged_counts((), 10)


@pytest.mark.parametrize(
    "lists", [[(1, 2, 0)], [(2, 1, 1)], [(1, 2, 1), (1.5, 3, 1)], [(2, 3, 1), (1, 2, 1)]]
)
def test_counts_that_cannot_be_are_not_in_order(lists: list[tuple[float, ...]]) -> None:
    assert not are_counts(lists)
