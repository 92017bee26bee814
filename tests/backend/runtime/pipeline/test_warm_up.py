"""The run on zeros before frame 0: it is told, and leaves no trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from in_process import run_in_process
from jobs import build_folder, unsliced_outputs
from numpy.typing import NDArray

from rankslice.backend.runtime.engines.null_engine import NullEngine
from rankslice.backend.runtime.figures.rank_figures import RankFigures
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.pipeline.setup import WarmUp
from rankslice.backend.runtime.pipeline.slots import Ring, View
from rankslice.backend.runtime.sinks.results import read_results

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'

RANDOM = f"""{HEAD} g (float[1,8] x) => (float[1,8] y) {{
  noise = RandomNormalLike <seed = 3.0> (x)
  kept = Relu (x)
  y = Add (kept, noise)
}}"""

INDEX = f"""{HEAD} g (int64[2] x) => (float[2] y)
<float[3] table = {{1., 2., 3.}}, int64[1] far = {{5}}> {{
  place = Sub (x, far)
  y = Gather (table, place)
}}"""
"""Of 0 it takes element -5, which there is none of."""

DIVISION = f"""{HEAD} g (int64[2] x) => (int64[2] y) <int64[1] one = {{100}}> {{
  y = Div (one, x)
}}"""


def parsed(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    for number, node in enumerate(model.graph.node):
        node.name = f"L{number}"
    return model


def run(place: Path, text: str, values: NDArray[Any]) -> tuple[RankFigures, NDArray[Any], Path]:
    """Run a model on one rank; return the rank's record, the first output, and the folder."""
    model = parsed(text)
    folder = build_folder(place, model, dict.fromkeys([n.name for n in model.graph.node], 0))
    np.savez(place / "x.npz", x=values)
    options = RunOptions(inputs=(str(place / "x.npz"),), results=place / "results.bin", exact=True)
    (record,) = run_in_process(folder, options)
    return record, read_results(place / "results.bin").values(0), folder


def test_an_engine_has_run_once_before_frame_0(tmp_path: Path) -> None:
    record, _, _ = run(
        tmp_path,
        f"{HEAD} g (float[4] x) => (float[4] y) {{ y = Relu (x) }}",
        np.ones((3, 4), np.float32),
    )
    assert record.warm_up_ms > 0
    assert record.source is not None
    assert ((), 3) == (record.not_warmed_up, record.source.frames)


def test_random_numbers_are_those_of_a_model_that_was_not_warmed_up(tmp_path: Path) -> None:
    values = np.ones((4, 1, 8), np.float32)
    record, result, folder = run(tmp_path, RANDOM, values)
    assert ("segment 0: it draws random numbers",) == record.not_warmed_up
    (expected,) = unsliced_outputs(folder, [str(tmp_path / "x.npz")], 4)
    assert expected.tobytes() == result.tobytes()
    assert len({frame.tobytes() for frame in result}) == 4


@pytest.mark.parametrize(
    ("text", "reason"),
    [(INDEX, "it fails on zeros: "), (DIVISION, "it may divide integers by zero")],
)
def test_a_model_that_takes_no_zeros_runs_all_the_same(
    tmp_path: Path, text: str, reason: str
) -> None:
    record, result, _ = run(tmp_path, text, np.array([[5, 6], [7, 5]]))
    (hindrance,) = record.not_warmed_up
    assert hindrance.startswith(f"segment 0: {reason}")
    expected = [[1, 2], [3, 1]] if text == INDEX else [[20, 16], [14, 20]]
    assert expected == result.tolist()


class Noting(NullEngine):
    """Notes what it is given, and writes ones."""

    def __init__(self, hindrance: str = "") -> None:
        super().__init__(0.0)
        self.given: list[list[float]] = []
        self.hindrance = hindrance

    def warm_up_hindrance(self) -> str:
        return self.hindrance

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]]) -> None:
        self.given.append([float(values.max()) for values in inputs])
        for values in outputs:
            values[...] = 1


@pytest.mark.parametrize(
    ("hindrance", "keeps"), [("", ""), ("it computes nothing", ""), ("", "it keeps variables")]
)
def test_a_warm_up_takes_zeros_and_leaves_zeros(hindrance: str, keeps: str) -> None:
    given, made = (Ring(Tensor(name, "float32", (4,)), 2, 1) for name in "xy")
    engine, warm_up = Noting(hindrance), WarmUp()
    warm_up.run(7, engine, [given], [made], keeps)
    hindrance = hindrance or keeps
    assert ([] if hindrance else [[0.0]]) == engine.given
    assert not any(slot.any() for slot in (*given.slots, *made.slots))
    assert (0, 0) == (given.written, made.written)
    assert ([f"segment 7: {hindrance}"] if hindrance else []) == warm_up.left_out


def test_zeros_in_place_of_another_ranks_slots_take_no_memory() -> None:
    class Keeping(Noting):
        """Keeps what it is given, as bindings do."""

        def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]]) -> None:
            self.kept = inputs
            super().run(inputs, outputs)

    x = Tensor("x", "float32", (16 << 20,))
    view, engine = View(x, 1, 1, np.ones(x.nbytes, np.uint8)), Keeping()
    before = psutil.Process().memory_full_info().uss
    WarmUp().run(0, engine, [view], [])
    assert [[0.0]] == engine.given
    assert x.nbytes / 4 > psutil.Process().memory_full_info().uss - before


def test_the_null_engine_does_not_sleep_before_frame_0() -> None:
    warm_up = WarmUp()
    warm_up.run(0, NullEngine(60.0), [], [])
    assert (0.0, ["segment 0: it computes nothing"]) == (warm_up.seconds, warm_up.left_out)
