"""The file of a run, and the counts that are left of the times of frames."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st
from kept_runs import rank_run, run_record
from lies import HOSTILE, WHOLE, as_text, paths_in, with_lie

from rankslice.backend.runtime.figures.histogram import Histogram
from rankslice.backend.runtime.figures.rank_figures import are_counts
from rankslice.framework.errors import RankSliceError
from rankslice.measurement.summary import (
    merged_counts,
    percentile_ms,
    read_run,
    run_text,
    total_count,
)
from rankslice.views.page import page_html
from rankslice.views.run_page import run_page

DURATIONS = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=60)


def counted(durations: list[float]) -> Histogram:
    histogram = Histogram()
    for seconds in durations:
        histogram.add(seconds)
    return histogram


@given(DURATIONS, st.floats(0, 100))
@example([float(n) for n in range(1, 26)], 28.0)
def test_counts_tell_percentiles_to_one_per_cent(durations: list[float], percent: float) -> None:
    counts = counted(durations).counts_ms()
    assert are_counts(counts)
    # Which of two neighbours it is may depend on rounding: 28 per cent of 25 are 7.000000000000001.
    number, ordered = len(durations) * percent / 100, sorted(durations)
    places = [min(max(1, math.ceil(number + side)), len(durations)) for side in (-1e-9, 1e-9)]
    percentile = percentile_ms(counts, percent)
    assert any(percentile == pytest.approx(1e3 * ordered[place - 1], rel=0.01) for place in places)


@given(DURATIONS, st.integers(1, 50))
def test_merged_counts_lose_no_value_and_are_few(durations: list[float], most: int) -> None:
    merged = merged_counts(counted(durations).counts_ms(), most)
    assert len(durations) == total_count(merged)
    assert len(merged) <= most
    least, largest = 1e3 * min(durations), 1e3 * max(durations)
    assert merged[0][0] <= least * 1.0001
    assert largest <= merged[-1][1] * 1.0001


def test_nothing_has_no_percentile() -> None:
    assert 0.0 == percentile_ms((), 50)
    assert () == merged_counts((), 10)


@pytest.mark.parametrize(
    "lists", [[(1, 2, 0)], [(2, 1, 1)], [(1, 2, 1), (1.5, 3, 1)], [(2, 3, 1), (1, 2, 1)]]
)
def test_counts_that_cannot_be_are_not_in_order(lists: list[tuple[float, ...]]) -> None:
    assert not are_counts(lists)


RECORD = run_record(
    rank_run(0, "edge01_cpu0"), rank_run(1, "edge01_gpu", gpu_memory_mb=5.0), throughput_fps=None
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(run_text(RECORD))
    assert RECORD == read_run(tmp_path / "run.json")


def test_lies_in_any_field_are_one_message_or_text_on_the_page(tmp_path: Path) -> None:
    honest = json.loads(run_text(RECORD))
    rest = itertools.cycle(HOSTILE)
    lies = [(path, lie) for path in paths_in(honest) for lie in itertools.islice(rest, 1)]
    told = []
    for text in (*(as_text(with_lie(honest, *each)) for each in lies), *WHOLE):
        (tmp_path / "run.json").write_text(text, errors="surrogatepass")
        try:
            page = page_html(run_page(read_run(tmp_path / "run.json")))
        except RankSliceError as error:
            told.append([str(mistake) for mistake in error.mistakes])
        else:
            assert 1 == page.count("<script")
    assert len(told) > len(lies) / 2
    assert all(line.isprintable() for lines in told for line in lines)


def test_counts_out_of_order_are_refused(tmp_path: Path) -> None:
    record = json.loads(run_text(RECORD))
    record["summary"]["latency_counts"].reverse()
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(RankSliceError, match="expected ascending limits"):
        read_run(tmp_path / "run.json")
