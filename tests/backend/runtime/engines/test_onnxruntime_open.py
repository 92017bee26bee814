"""onnxruntime on tensors whose sizes change from frame to frame."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest

from rankslice.backend.runtime.engines import EngineSettings, open_engine
from rankslice.backend.runtime.engines.onnxruntime_engine import OnnxRuntimeEngine
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.sizes import OpenSlot, make_slot, values_in

X = Tensor("x", "float32", (8, 4), ("n", ""))
TWICE = Tensor("twice", "float32", (8, 4), ("n", ""))
PLACES = Tensor("places", "int64", (2, 32), ("", "?"))
SUM = Tensor("sum", "float32", (1, 1))

FOLLOWS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n,4] x) => (float[n,4] twice, float[1,1] sum) {
  twice = Add (x, x)
  sum = ReduceSum (x)
}
"""
DECIDES = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n,4] x) => (int64[2,k] places, float[n,4] twice) {
  zero = Constant <value = float {0.0}> ()
  mask = Greater (x, zero)
  places = NonZero (mask)
  twice = Add (x, x)
}
"""


def loaded(
    folder: Path, text: str, inputs: list[Tensor], outputs: list[Tensor]
) -> OnnxRuntimeEngine:
    path = folder / "part.0.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    engine = open_engine("onnxruntime", EngineSettings(exact=True))
    engine.load(path, inputs, outputs)
    assert isinstance(engine, OnnxRuntimeEngine)
    return engine


def frames(count: int) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    sizes = draw.integers(0, X.shape[0], count, endpoint=True)
    return [draw.standard_normal((size, 4)).astype(np.float32) for size in sizes]


def test_shapes_that_follow_from_the_inputs_are_bound_from_the_second_frame_on(
    tmp_path: Path,
) -> None:
    engine = loaded(tmp_path, FOLLOWS, [X], [TWICE, SUM])
    twice, total = slots = [make_slot(TWICE), make_slot(SUM)]
    for values in frames(100):
        engine.run([values], slots)
        np.testing.assert_array_equal(2 * values, values_in(twice))
        np.testing.assert_allclose(values.sum(), values_in(total)[0, 0], atol=1e-5)
    runs = engine._open
    assert runs is not None
    assert runs._predicts
    assert 9 == len(runs._known)


def test_shapes_that_data_decide_are_taken_as_they_come(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = loaded(tmp_path, DECIDES, [X], [PLACES, TWICE])
    slots = [make_slot(PLACES), make_slot(TWICE)]
    for values in frames(100):
        engine.run([values], slots)
        np.testing.assert_array_equal(np.nonzero(values > 0), values_in(slots[0]))
        np.testing.assert_array_equal(2 * values, values_in(slots[1]))
    assert engine._open is not None
    assert not engine._open._predicts
    assert ("", "") == capfd.readouterr(), "a frame that was run twice is no error"


def test_an_output_beyond_its_bound_names_both(tmp_path: Path) -> None:
    few = Tensor("twice", "float32", (3, 4), ("n", ""))
    engine = loaded(tmp_path, FOLLOWS, [X], [few, SUM])
    for _ in range(2):
        with pytest.raises(JobError) as error:
            engine.run([np.ones((5, 4), np.float32)], [make_slot(few), make_slot(SUM)])
        expected = "tensor 'twice' of shape [5, 4] is beyond its bound [3, 4]: build with larger"
        assert str(error.value).startswith(expected)
        assert "--at-most twice=5,4" in str(error.value)


def test_the_values_are_not_copied_if_their_shape_is_known(tmp_path: Path) -> None:
    engine = loaded(tmp_path, FOLLOWS, [X], [TWICE, SUM])
    memory = np.zeros(64 + TWICE.nbytes, np.uint8)
    slots = [OpenSlot(TWICE, memory), make_slot(SUM)]
    values = np.ones((8, 4), np.float32)
    engine.run([values], slots)
    assert engine._open is not None
    outputs = []
    engine._open._run(Recorder(engine._session, outputs), [values], slots, ((8, 4), (1, 1)))
    assert outputs[0][-1] == memory.ctypes.data + 64


class Recorder:
    """A session that keeps how outputs were bound."""

    def __init__(self, session: object, outputs: list[tuple[object, ...]]) -> None:
        self._session, self._outputs = session, outputs

    def io_binding(self) -> Recorder:
        return self

    def bind_input(self, *arguments: object) -> None:
        pass

    def bind_output(self, *arguments: object) -> None:
        self._outputs.append(arguments)

    def run_with_iobinding(self, binding: object) -> None:
        pass


@pytest.mark.parametrize("text", [FOLLOWS, DECIDES])
def test_memory_stays_as_it_is_while_shapes_grow_and_shrink(tmp_path: Path, text: str) -> None:
    bound = 10_000
    x, twice = (replace(spec, shape=(bound, 4)) for spec in (X, TWICE))
    other = SUM if text == FOLLOWS else replace(PLACES, shape=(2, 4 * bound))
    specs = [twice, other] if text == FOLLOWS else [other, twice]
    engine = loaded(tmp_path, text, [x], specs)
    slots = [make_slot(spec) for spec in specs]
    values = np.ones((bound, 4), np.float32)
    draw = np.random.default_rng(0)
    memory = psutil.Process().memory_info
    engine.run([values], slots)
    for frame in range(3000):
        engine.run([values[: draw.integers(0, bound, endpoint=True)]], slots)
        if frame == 1000:
            before = memory().rss
    assert memory().rss - before < 2 << 20
