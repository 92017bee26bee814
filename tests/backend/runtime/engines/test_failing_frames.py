"""Which errors of an engine are one frame's, and that the next frame is computed after them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from litert_engines import needs_litert
from numpy.typing import NDArray
from onnx_models import save
from open_tflite_models import text_model
from tflite_models import written

from rankslice.backend.runtime.engines import Engine, EngineSettings, open_engine
from rankslice.backend.runtime.engines.onnxruntime_engine import OnnxRuntimeEngine
from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.backend.runtime.errors import BoundError, FrameError, JobError
from rankslice.backend.runtime.job import Facts, Tensor
from rankslice.backend.runtime.job.records import RANDOM
from rankslice.backend.runtime.sizes import Slot, make_slot, values_in
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.tflite.reader import read_tflite
from rankslice.frontend.partition.partition import partition

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
INDICES = Tensor("i", "int64", (3,))
FOUND = Tensor("y", "float32", (3,))
LOOK_UP = "g (int64[3] i) => (float[3] y) <float[4] w = {5,6,7,8}> { y = Gather (w, i) }"
DRAWS = """g (int64[3] i) => (float[3] y) <float[4] w = {5,6,7,8}> {
  z = Gather (w, i)
  r = RandomNormalLike (z)
  y = Add (z, r)
}"""


def loaded(folder: Path, text: str, *specs: Tensor, keeps: str = "") -> OnnxRuntimeEngine:
    engine = open_engine("onnxruntime", EngineSettings(facts=Facts(keeps)))
    engine.load(save(folder, f"{HEAD} {text}"), list(specs[:-1]), list(specs[-1:]))
    assert isinstance(engine, OnnxRuntimeEngine)
    return engine


def run(engine: Engine, target: Slot, *inputs: NDArray[Any]) -> list[float]:
    engine.run(inputs, [target])
    return [float(value) for value in values_in(target).reshape(-1)]


def test_an_index_out_of_bounds_is_one_frames_error(tmp_path: Path) -> None:
    engine, target = loaded(tmp_path, LOOK_UP, INDICES, FOUND), make_slot(FOUND)
    indices = np.array([0, 1, 3])
    assert [5, 6, 8] == run(engine, target, indices)
    indices[1] = 4
    for _ in range(2):
        with pytest.raises(FrameError, match=r"^RuntimeError: .*idx=4 must be within"):
            run(engine, target, indices)
    indices[1] = 2
    assert [5, 7, 8] == run(engine, target, indices)


@pytest.mark.skipif(
    tuple(map(int, load_onnxruntime().__version__.split(".")[:2])) < (1, 32),
    reason="onnxruntime before 1.32 ends the process",
)
def test_an_integer_divided_by_zero_is_one_frames_error(tmp_path: Path) -> None:
    a, b, y = (Tensor(name, "int32", (2,)) for name in "aby")
    engine = loaded(
        tmp_path, "g (int32[2] a, int32[2] b) => (int32[2] y) { y = Div (a, b) }", a, b, y
    )
    target, divided, by = make_slot(y), np.array([6, 8], np.int32), np.array([2, 0], np.int32)
    with pytest.raises(FrameError, match="division by zero"):
        run(engine, target, divided, by)
    by[1] = 4
    assert [3, 2] == run(engine, target, divided, by)


def test_a_lack_of_memory_is_not_one_frames_error(tmp_path: Path) -> None:
    size, made = Tensor("s", "int64", (1,)), Tensor("y", "float32", (4,), ("n",))
    engine = loaded(
        tmp_path, "g (int64[1] s) => (float[n] y) { y = ConstantOfShape (s) }", size, made
    )
    target = make_slot(made)
    assert [0, 0] == run(engine, target, np.array([2]))
    with pytest.raises(RuntimeError, match="allocate memory") as caught:
        run(engine, target, np.array([1 << 45]))
    assert not isinstance(caught.value, JobError)
    with pytest.raises(BoundError, match="beyond its bound"):
        run(engine, target, np.array([5]))
    with pytest.raises(FrameError):
        run(engine, target, np.array([-5]))
    assert [0, 0, 0, 0] == run(engine, target, np.array([4]))


def test_an_error_of_another_provider_or_of_a_model_that_keeps_something_is_not_one_frames(
    tmp_path: Path,
) -> None:
    with pytest.raises(RuntimeError, match="idx=9"):
        run(
            loaded(tmp_path, DRAWS, INDICES, FOUND, keeps=RANDOM),
            make_slot(FOUND),
            np.array([0, 9, 0]),
        )
    engine = loaded(tmp_path, LOOK_UP, INDICES, FOUND)
    engine._provider = replace(engine._provider, name="CUDAExecutionProvider")
    with pytest.raises(RuntimeError, match="idx=9"):
        run(engine, make_slot(FOUND), np.array([0, 9, 0]))


def test_shapes_are_foretold_after_a_frame_that_fails(tmp_path: Path) -> None:
    indices, gathered = (
        Tensor(name, dtype, (4,), ("n",)) for name, dtype in (("i", "int64"), ("y", "float32"))
    )
    text = "g (int64[n] i) => (float[n] y) <float[4] w = {5,6,7,8}> { y = Gather (w, i) }"
    engine, target = loaded(tmp_path, text, indices, gathered), make_slot(gathered)
    assert [5, 6] == run(engine, target, np.array([0, 1]))
    with pytest.raises(FrameError, match="idx=9"):
        run(engine, target, np.array([0, 9]))
    assert [7, 8] == run(engine, target, np.array([2, 3]))
    assert engine._open is not None
    assert engine._open._predicts


def litert(path: Path, source: Tensor, made: Tensor, keeps: str = "") -> Engine:
    engine = open_engine("litert", EngineSettings(facts=Facts(keeps)))
    engine.load(path, [source], [made])
    return engine


TOKENS = Tensor("tokens", "int32", (1, 6), ("?", "?"))
SCORES = Tensor("scores", "float32", (1, 6, 3), ("?", "?", ""))
WORDS = np.array([[1, 2, 3, 4, 5, 6]], np.int32)
STRANGE = np.array([[1, 2, 900, 4, 5, 6]], np.int32)


@needs_litert
@pytest.mark.parametrize("is_open", [True, False])
def test_an_index_out_of_bounds_is_one_frames_error_under_litert(
    tmp_path: Path, is_open: bool
) -> None:
    specs = [TOKENS, SCORES] if is_open else [replace(s, symbols=()) for s in (TOKENS, SCORES)]
    engine = litert(text_model(tmp_path), *specs)
    target = make_slot(specs[1])
    before = run(engine, target, WORDS)
    for _ in range(2):
        with pytest.raises(FrameError, match="gather index out of bounds"):
            run(engine, target, STRANGE)
    assert before == run(engine, target, WORDS)


@needs_litert
@pytest.mark.parametrize("kept", ["it keeps variables", ""])
def test_an_error_of_a_delegate_or_a_model_with_variables_is_not_one_frames_under_litert(
    tmp_path: Path, kept: str
) -> None:
    specs = [replace(spec, symbols=()) for spec in (TOKENS, SCORES)]
    model = read_tflite(text_model(tmp_path), GivenSizes({"tokens": TOKENS.shape}))
    (part,) = partition(model.graph, {layer.name: 0 for layer in model.graph.layers}).segments
    engine: Any = litert(written(model, part, tmp_path / "fixed.tflite"), *specs, keeps=kept)
    assert all(map(np.isfinite, run(engine, make_slot(specs[1]), WORDS)))
    engine._delegate = "" if kept else "libtoy.so"
    with pytest.raises(JobError, match="gather index out of bounds") as caught:
        run(engine, make_slot(specs[1]), STRANGE)
    assert not isinstance(caught.value, FrameError)
