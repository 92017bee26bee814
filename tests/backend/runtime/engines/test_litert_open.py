"""LiteRT's interpreter on tensors whose sizes change from frame to frame."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from litert_engines import loaded, needs_litert, toy_delegate
from numpy.typing import NDArray
from open_tflite_models import VALID, image_model, rows_model, text_model

from rankslice.backend.runtime.engines import Engine, EngineSettings
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.sizes import make_slot, values_in

pytestmark = needs_litert

IMAGE = Tensor("image", "float32", (1, 40, 40, 3), ("", "?", "?", ""))
MAP = Tensor("map", "float32", (1, 20, 20, 2), ("", "?", "?", ""))
MEAN = Tensor("mean", "float32", (1, 2))
TOKENS = Tensor("tokens", "int32", (4, 30), ("?", "?"))
SCORES = Tensor("scores", "float32", (4, 30, 3), ("?", "?", ""))
ROWS = Tensor("rows", "float32", (12, 4))
KEPT = Tensor("scores", "float32", (12, 1, 3), ("?", "", ""))
TOTAL = Tensor("total", "float32", (1, 3))

CPU = EngineSettings()


def outputs_of(engine: Engine, specs: list[Tensor], *inputs: NDArray[Any]) -> list[NDArray[Any]]:
    slots = [make_slot(spec) for spec in specs]
    engine.run(inputs, slots)
    return [values_in(slot).copy() for slot in slots]


def expected(path: Path, specs: list[Tensor], *inputs: NDArray[Any]) -> list[NDArray[Any]]:
    """Return what an interpreter of its own makes of a frame."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=1)
    details = interpreter.get_input_details()
    for item, values in zip(details, inputs, strict=True):
        interpreter.resize_tensor_input(item["index"], values.shape)
    interpreter.allocate_tensors()
    for item, values in zip(details, inputs, strict=True):
        interpreter.set_tensor(item["index"], values)
    interpreter.invoke()
    made = {item["name"]: item["index"] for item in interpreter.get_output_details()}
    return [interpreter.get_tensor(made[spec.name]) for spec in specs]


def assert_same(outputs: list[NDArray[Any]], wanted: list[NDArray[Any]]) -> None:
    for one, other in zip(outputs, wanted, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def test_frames_of_all_sizes_give_what_an_interpreter_of_their_own_gives(tmp_path: Path) -> None:
    path, random = image_model(tmp_path), np.random.default_rng(0)
    engine = loaded(CPU, [IMAGE], [MAP, MEAN], model=path)
    for height, width in [(40, 40), (1, 1), (7, 31), (7, 31), (32, 5), (40, 40)]:
        image = random.random((1, height, width, 3), np.float32)
        outputs = outputs_of(engine, [MAP, MEAN], image)
        assert (1, (height + 1) // 2, (width + 1) // 2, 2) == outputs[0].shape
        assert_same(outputs, expected(path, [MAP, MEAN], image))
    engine.close()


def test_a_file_whose_own_sizes_are_too_small_for_its_layers_takes_larger_ones(
    tmp_path: Path,
) -> None:
    path = image_model(tmp_path, padding=VALID)
    largest = Tensor("map", "float32", (1, 17, 17, 2), ("", "?", "?", ""))
    engine = loaded(CPU, [IMAGE], [largest, MEAN], model=path)
    image = np.ones((1, 40, 40, 3), np.float32)
    assert_same(outputs_of(engine, [largest, MEAN], image), expected(path, [largest, MEAN], image))
    engine.close()


def test_texts_of_all_lengths_and_batches_too(tmp_path: Path) -> None:
    path, random = text_model(tmp_path), np.random.default_rng(0)
    engine = loaded(CPU, [TOKENS], [SCORES], model=path)
    for _ in range(50):
        tokens = random.integers(0, 50, random.integers(1, (4, 30), endpoint=True), np.int32)
        outputs = outputs_of(engine, [SCORES], tokens)
        assert_same(outputs, expected(path, [SCORES], tokens))
    engine.close()


@pytest.mark.parametrize("shape", [(0, 30), (4, 0), (0, 0)])
def test_frames_without_elements_are_frames(tmp_path: Path, shape: tuple[int, int]) -> None:
    engine = loaded(CPU, [TOKENS], [SCORES], model=text_model(tmp_path))
    empty, some = np.zeros(shape, np.int32), np.arange(12, dtype=np.int32).reshape(3, 4)
    before = outputs_of(engine, [SCORES], some)
    assert (*shape, 3) == outputs_of(engine, [SCORES], empty)[0].shape
    assert_same(outputs_of(engine, [SCORES], some), before)
    engine.close()


def test_sizes_on_which_litert_cannot_work_end_the_run_with_its_reason(tmp_path: Path) -> None:
    engine = loaded(CPU, [IMAGE], [MAP, MEAN], model=image_model(tmp_path))
    with pytest.raises(JobError, match=r"inputs of the shapes \[1, 0, 3, 3\]: .*\(CONV_2D\)"):
        outputs_of(engine, [MAP, MEAN], np.zeros((1, 0, 3, 3), np.float32))
    engine.close()


def rows(positive: int) -> NDArray[np.float32]:
    values = np.random.default_rng(positive).random((12, 4), np.float32) + 0.1
    values[positive:] *= -1
    return values


def test_outputs_have_as_many_rows_as_the_data_decide(tmp_path: Path) -> None:
    path = rows_model(tmp_path)
    engine = loaded(CPU, [ROWS], [KEPT, TOTAL], model=path)
    for positive in (12, 0, 3, 0, 0, 12, 1):
        outputs = outputs_of(engine, [KEPT, TOTAL], rows(positive))
        assert (positive, 1, 3) == outputs[0].shape
        if positive:
            assert_same(outputs, expected(path, [KEPT, TOTAL], rows(positive)))
        else:
            assert not outputs[1].any()
    engine.close()


def test_nothing_found_inside_fixed_sizes_is_a_frame_too(tmp_path: Path) -> None:
    path = rows_model(tmp_path)
    engine = loaded(CPU, [ROWS], [TOTAL], model=path)
    (total,) = outputs_of(engine, [TOTAL], rows(0))
    assert not total.any()
    assert_same(outputs_of(engine, [TOTAL], rows(5)), expected(path, [TOTAL], rows(5)))
    engine.close()


def test_an_output_beyond_its_bound_ends_the_run(tmp_path: Path) -> None:
    narrow = Tensor("map", "float32", (1, 10, 20, 2), ("", "?", "?", ""))
    engine = loaded(CPU, [IMAGE], [narrow, MEAN], model=image_model(tmp_path))
    with pytest.raises(JobError, match=r"tensor 'map' of shape \[1, 16, 4, 2\] is beyond its"):
        outputs_of(engine, [narrow, MEAN], np.zeros((1, 32, 8, 3), np.float32))
    engine.close()


def test_memory_stays_flat_over_sizes_that_shrink_and_grow(tmp_path: Path) -> None:
    engine = loaded(CPU, [IMAGE], [MAP, MEAN], model=image_model(tmp_path))
    slots = [make_slot(MAP), make_slot(MEAN)]
    random = np.random.default_rng(0)
    largest = []
    for _ in range(4):
        for height, width in random.integers(1, 40, (500, 2), endpoint=True).tolist():
            engine.run([np.zeros((1, height, width, 3), np.float32)], slots)
        largest.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    engine.close()
    assert largest[-1] - largest[0] < 1024  # kB, after 1,500 changes


def test_open_inputs_of_a_model_with_variables_are_refused() -> None:
    shape = Tensor("serving_default_x:0", "float32", (3, 4), ("?", ""))
    with pytest.raises(JobError, match="keeps variables, which LiteRT clears when"):
        loaded(CPU, [shape], [shape], model="open_variable")


def test_accelerators_that_take_fixed_sizes_refuse_others(tmp_path: Path) -> None:
    settings = {
        "delegate": EngineSettings(
            options={"delegate": toy_delegate(tmp_path), "operator": "0"}, accelerator="npu"
        ),
        "a compiled model": EngineSettings(options={"api": "compiled"}),
    }
    for used, engine_settings in settings.items():
        with pytest.raises(JobError, match=rf"the sizes of 'image' may change .* {used}"):
            loaded(engine_settings, [IMAGE], [MAP, MEAN], model=image_model(tmp_path))


def test_a_file_with_other_fixed_sizes_is_told(tmp_path: Path) -> None:
    gray = Tensor("image", "float32", (1, 40, 40, 1), ("", "?", "?", ""))
    with pytest.raises(JobError, match=r"input 'image' is float32\[1, -1, -1, 3\], the job says"):
        loaded(CPU, [gray], [MAP, MEAN], model=image_model(tmp_path))
