"""Histograms of durations."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rankslice.measurement.bench.duration_histogram import PERCENTS, DurationHistogram

TIMES = st.lists(st.integers(0, 3_600_000_000_000), min_size=1, max_size=50)


@settings(max_examples=25)
@given(TIMES)
def test_percentiles_are_exact_to_one_per_mille(times: list[int]) -> None:
    histogram = DurationHistogram(times)
    for percent in PERCENTS:
        exact = float(np.percentile(np.array(times, np.int64), percent, method="inverted_cdf"))
        assert exact == pytest.approx(histogram.percentile_ns(percent), rel=1e-3, abs=1)
    assert max(times) - min(times) == pytest.approx(
        histogram.jitter_ns, rel=2e-3, abs=max(times) / 500
    )


@pytest.mark.parametrize(
    ("times", "text"),
    [
        (
            [0, 1000, 1000, 2047, 2048, 2049, 3_000_000, 5_000_000_000_000],
            "HISTFAAAADJ4nJNpmSzMwMAgwAABzFCaEch0M9ixgMH+A0SA6Sw/y2oBJpa3yxiZlh5mYgIAvPMJAA==",
        ),
        ([], "HISTFAAAAB14nJNpmSzMgADMUJoRyHQz2LGAwf4DRAAATjkESw=="),
    ],
)
def test_its_text_is_that_of_hdrhistogram(times: list[int], text: str) -> None:
    """The texts are those of the package hdrhistogram 0.10.8."""
    assert unpacked(text) == unpacked(DurationHistogram(times).to_text())


def unpacked(text: str) -> tuple[bytes, bytes]:
    """Return what a histogram's text holds: zlib may compress it in several ways."""
    found = base64.b64decode(text)
    assert len(found) - 8 == int.from_bytes(found[4:8], "big")
    return found[:4], zlib.decompress(found[8:])


@pytest.mark.parametrize("end", [11, 12, 20, 41])
def test_a_duration_lies_in_its_bucket(end: int) -> None:
    """Widths double at each power of two: on both sides of it nothing is lost."""
    for time in (2**end - 1, 2**end, 2**end + 1):
        histogram = DurationHistogram([time])
        assert histogram.min_ns <= time <= histogram.max_ns
        assert histogram.max_ns - histogram.min_ns <= time / 1024


def test_a_curve_ends_at_the_last_frame() -> None:
    curve = DurationHistogram(range(1, 101)).curve()
    assert (0, 99) == (curve[0][0], curve[-1][0])
    assert (1, 100) == (curve[0][1], round(curve[-1][1] + 1, -1))


def test_all_durations_lie_in_some_bin() -> None:
    histogram = DurationHistogram([5, 10, 15, 400])
    assert [1, 2, 1] == histogram.bins([0, 10, 20, 30])


def test_nothing_was_counted() -> None:
    histogram = DurationHistogram([])
    assert (0, 0, 0) == (histogram.count, histogram.jitter_ns, histogram.percentile_ns(99))
