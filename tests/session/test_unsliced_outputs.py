"""What the unsliced model gives: equal, in order, and on as many cores as there are."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from jobs import (
    FIGURE_2_RANKS,
    build_folder,
    figure_2,
    unsliced_outputs as outputs_one_after_the_other,
)
from numpy.typing import NDArray

from rankslice.backend.runtime.job import Job
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sources.random_source import RandomSource
from rankslice.framework.reading.read_driver import read_driver
from rankslice.session.prepare import PreparedRun, prepare
from rankslice.session.verification import unsliced_outputs as unsliced
from rankslice.session.verification.unsliced_outputs import most_at_once, unsliced_outputs

RANDOM = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y) {
  noise = RandomNormalLike <seed = 3.0> (x)
  y = Add (x, noise)
}"""


class Noting(RandomSource):
    """Notes which frames are read, and by how many threads."""

    def __init__(self, job: Job, frames: int) -> None:
        super().__init__(RunOptions(frames=frames), job.inputs)
        self.order: list[int] = []
        self.threads: set[int] = set()

    def read(self, index: int, slots: Sequence[NDArray[Any]]) -> None:
        self.order.append(index)
        self.threads.add(threading.get_ident())
        super().read(index, slots)


def run_of(folder: Path, source: Noting) -> tuple[PreparedRun, Path]:
    """Return a run on frames of a source, and its unsliced model."""
    prepared = prepare(folder, RunOptions(exact=True), check_memory=False)
    return replace(prepared, source=source), (folder / "model").resolve()


def outputs(folder: Path, source: Noting, arrivals: Sequence[int]) -> list[NDArray[Any]]:
    return [values[0].copy() for values in unsliced_outputs(*run_of(folder, source), arrivals)]


@pytest.mark.parametrize("copies", [1, 2, 3, 9])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_frames_are_those_of_one_engine_and_come_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: int, count: int
) -> None:
    folder = build_folder(tmp_path, figure_2(), FIGURE_2_RANKS)
    (expected,) = outputs_one_after_the_other(folder, ["random"], 10)
    monkeypatch.setattr(unsliced, "most_at_once", lambda *_: copies)
    source = Noting(read_driver(folder / "driver.py"), 10)
    arrivals = [9, 2, 3, 0, 5, 4, 8][:count]
    values = outputs(folder, source, arrivals)
    assert [expected[arrival].tobytes() for arrival in arrivals] == [f.tobytes() for f in values]
    assert arrivals == source.order
    assert source.threads <= {threading.get_ident()}


def test_a_model_that_draws_random_numbers_draws_them_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = onnx.parser.parse_model(RANDOM)
    for number, node in enumerate(model.graph.node):
        node.name = f"L{number}"
    folder = build_folder(tmp_path, model, {"L0": 0, "L1": 0})
    (expected,) = outputs_one_after_the_other(folder, ["random"], 6)
    monkeypatch.setattr(unsliced, "most_at_once", lambda *_: 3)
    values = outputs(folder, Noting(read_driver(folder / "driver.py"), 6), range(6))
    assert expected.tobytes() == np.stack(values).tobytes()


def test_what_goes_wrong_in_a_copy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = build_folder(tmp_path, figure_2(), FIGURE_2_RANKS)
    monkeypatch.setattr(unsliced, "most_at_once", lambda *_: 2)

    def fail(copy: object) -> None:
        raise RuntimeError(threading.current_thread().name)

    source = Noting(read_driver(folder / "driver.py"), 10)
    values = unsliced_outputs(*run_of(folder, source), range(10))
    next(values)
    monkeypatch.setattr(unsliced.UnslicedModel, "run", fail)
    with pytest.raises(RuntimeError, match="unsliced"):
        list(values)


@pytest.mark.parametrize(
    ("cores", "frames", "copy_bytes", "available_bytes", "count"),
    [
        (16, 100, 10, 10_000, 16),
        (16, 5, 10, 10_000, 5),
        (16, 100, 1000, 10_000, 6),
        (16, 100, 6000, 10_000, 1),
        (16, 100, 0, 0, 1),
        (16, 100, -5, 10_000, 16),
        (1, 0, 10, 10_000, 1),
    ],
)
def test_copies_take_no_more_than_the_cores_the_frames_and_half_of_the_memory(
    cores: int, frames: int, copy_bytes: int, available_bytes: int, count: int
) -> None:
    assert count == most_at_once(cores, frames, copy_bytes, available_bytes)
