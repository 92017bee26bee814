"""Runs that are kept in a file, so that none is made twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from explorations import CPU, GPU, candidate
from kept_runs import rank_run, run_record

from rankslice.measurement.summary import RunSummary
from rankslice.session.exploring.evaluators import RunCache

ONE, OTHER = candidate(1, 30.0, CPU), candidate(2, 20.0, CPU, GPU)


def run(ranks: int = 1, frames: int = 100) -> RunSummary:
    figures = (rank_run(number, CPU) for number in range(ranks))
    return run_record(*figures, frames=frames).summary


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "runs.jsonl"
    RunCache(file, "model", "boards").add(ONE, run())
    return file


def test_a_run_is_found_again(file: Path) -> None:
    kept = RunCache(file, "model", "boards")
    assert run() == kept.find(ONE, None)
    assert None is kept.find(OTHER, None)


def test_a_run_with_another_number_of_frames_is_none_if_that_matters(file: Path) -> None:
    kept = RunCache(file, "model", "boards")
    assert run() == kept.find(ONE, 100)
    assert None is kept.find(ONE, 200)


@pytest.mark.parametrize("known", [("changed", "boards"), ("model", "others")])
def test_runs_of_another_model_or_on_other_boards_are_not_taken(
    file: Path, known: tuple[str, str]
) -> None:
    assert None is RunCache(file, *known).find(ONE, None)


def test_a_line_that_was_not_written_to_its_end_costs_that_run_alone(file: Path) -> None:
    file.write_text(file.read_text() + file.read_text()[:40])
    kept = RunCache(file, "model", "boards")
    kept.add(OTHER, run(2))
    again = RunCache(file, "model", "boards")
    assert run() == again.find(ONE, None)
    assert 3 == len(file.read_text().splitlines())


@pytest.mark.parametrize("line", ["[]", '{"model": "model"}', "\x00", '{"model": NaN}'])
def test_what_is_no_run_is_left_out(tmp_path: Path, line: str) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(line + "\n")
    assert None is RunCache(file, "model", "boards").find(ONE, None)
