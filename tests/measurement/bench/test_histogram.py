"""Histograms of durations."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from rankslice.framework.errors import RankSliceError
from rankslice.measurement.bench.histogram import PERCENTS, DurationHistogram

TIMES = st.lists(st.integers(0, 3_600_000_000_000), min_size=1, max_size=50)


@settings(max_examples=25)
@given(TIMES)
def test_percentiles_are_exact_to_one_per_mille(times: list[int]) -> None:
    found = DurationHistogram(times)
    for percent in PERCENTS:
        exact = float(np.percentile(np.array(times, np.int64), percent, method="inverted_cdf"))
        assert exact == pytest.approx(found.percentile_ns(percent), rel=1e-3, abs=1)
    assert max(times) - min(times) == pytest.approx(found.jitter_ns, rel=2e-3, abs=max(times) / 500)


@settings(max_examples=25)
@given(TIMES, TIMES)
def test_merged_histograms_count_as_if_they_were_one(first: list[int], second: list[int]) -> None:
    merged, whole = DurationHistogram(first), DurationHistogram([*first, *second])
    merged.merge(DurationHistogram(second))
    assert whole.count == merged.count
    assert [*map(whole.percentile_ns, PERCENTS)] == [*map(merged.percentile_ns, PERCENTS)]


def test_its_text_is_that_of_hdrhistogram() -> None:
    found = DurationHistogram([1000, 2000, 3_000_000])
    read = HdrHistogram.decode(found.to_text().encode())
    assert 3 == read.get_total_count()
    assert found.percentile_ns(50) == read.get_value_at_percentile(50)


def test_a_curve_ends_at_the_last_frame() -> None:
    curve = DurationHistogram(range(1, 101)).curve([50, 90, 99.9])
    assert [50, 90, 99] == [round(percent, 9) for percent, _ in curve]


def test_all_durations_lie_in_some_bin() -> None:
    found = DurationHistogram([5, 10, 15, 400])
    assert [1, 2, 1] == found.bins([0, 10, 20, 30])


def test_nothing_was_counted() -> None:
    found = DurationHistogram()
    assert (0, 0.0, 0, 0) == (found.count, found.mean_ns, found.jitter_ns, found.percentile_ns(99))


def test_the_extra_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdrh.histogram", None)
    with pytest.raises(RankSliceError, match=r"pip install 'rankslice\[bench\]'"):
        DurationHistogram()
