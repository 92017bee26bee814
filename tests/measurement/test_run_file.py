"""The record of a run: written, and read strictly, as it may come from anywhere."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from kept_runs import rank_run, run_record
from lies import HOSTILE, WHOLE, as_text, paths_in, with_lie

from rankslice.framework.errors import RankSliceError
from rankslice.measurement.summary import read_run, run_text
from rankslice.views.page import page_html
from rankslice.views.run_page import run_page

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
