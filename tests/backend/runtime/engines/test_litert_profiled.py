"""LiteRT's operators and kernels, from the profiler of its C library."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from litert_engines import needs_litert

from rankslice.backend.runtime.engines import EngineSettings, open_engine
from rankslice.backend.runtime.engines.litert_profiled import (
    Kernel,
    KernelRun,
    Operator,
    operators_of,
    spans_of,
)
from rankslice.backend.runtime.figures.operator_profile import OperatorSpans
from rankslice.backend.runtime.figures.operator_rows import operator_rows
from rankslice.backend.runtime.job import Tensor

MODELS = Path(__file__).parents[4] / "models"
IMAGE = Tensor("image", "float32", (1, 8, 8, 1))
OPERATORS = [
    Operator("CONV_2D", "first", "1x8x8x1 -> 1x8x8x4"),
    Operator("CONV_2D", "pointwise", "1x8x8x4 -> 1x8x8x8"),
    Operator("ADD", "sum", "1x8x8x8, 1x8x8x8 -> 1x8x8x8"),
    Operator("CUSTOM", "boxes", "1x8x8x8 -> 1x4"),
]
KERNELS = (
    Kernel("Convolution (NHWC, F32) IGEMM", 10, None),
    Kernel("Fully Connected (NC, F32) GEMM", 20, None),
    Kernel("Add (ND)", 3, None),
    Kernel("Clamp (NC)", 1, None),
    Kernel("CUSTOM", 40, 1060),
)


def test_kernels_belong_to_the_operators_that_they_compute() -> None:
    tags = [kernel.name for kernel in KERNELS]
    kinds = [operator.kind for operator in OPERATORS]
    assert [0, 1, 2, 2, 3] == operators_of(tags, kinds)


def test_operators_that_became_others_are_found_between_their_neighbours() -> None:
    kinds = ["CONV_2D", "SPACE_TO_BATCH_ND", "MEAN", "SOFTMAX"]
    ran = ["Copy (NC)", "Convolution (NHWC)", "Transpose (ND)", "Copy (NC)", "Softmax (NC, F32)"]
    assert [-1, 0, 1, 2, 3] == operators_of(ran, kinds)


def test_kernels_follow_each_other_before_what_has_a_begin() -> None:
    spans = spans_of([KernelRun(1000, 110, KERNELS)], OPERATORS)
    # 34 us are known of the 60 before the custom operator; what is left lies around them.
    assert ((0, 1013, 10), (1, 1023, 20), (2, 1043, 4), (3, 1060, 40)) == spans.spans
    assert ("CONV_2D first", "CONV_2D pointwise", "ADD sum", "CUSTOM boxes") == spans.names
    assert "Add (ND) + Clamp (NC)" == spans.kernels[2]
    assert "1x8x8x1 -> 1x8x8x4" == spans.shapes[0]
    assert spans.device is not None
    assert (36_000,) == spans.device.slack_ns
    assert 5 == len(spans.device.runs[0])


def test_what_runs_in_the_body_of_a_loop_is_the_loop() -> None:
    inside = Kernel("ADD", 5, 1030), Kernel("Copy (NC)", 2, None)
    kernels = (Kernel("WHILE", 50, 1020), *inside, Kernel("TANH", 4, 1075))
    operators = [Operator("WHILE", "w", ""), Operator("TANH", "t", "")]
    spans = spans_of([KernelRun(1000, 100, kernels)], operators)
    assert [(1020, 50), (1075, 4)] == [span[1:] for span in spans.spans]


def profiled(name: str, frames: int) -> OperatorSpans:
    """Return what is told of a model, whose outputs are compared with the interpreter's."""
    random = np.random.default_rng(0)
    output = Tensor("softmax", "float32", (1, 10))
    usual = open_engine("litert", EngineSettings())
    engine = open_engine("litert", EngineSettings(profile="unused"))
    for one in (usual, engine):
        one.load(MODELS / name, [IMAGE], [output])
    expected, profiled = np.zeros((2, 1, 10), np.float32)
    for _ in range(frames):
        image = random.random(IMAGE.shape).astype(np.float32)
        usual.run([image], [expected])
        engine.run([image], [profiled])
        np.testing.assert_array_equal(expected, profiled)
    spans = engine.operators()
    assert spans is not None
    engine.close()
    return spans


@needs_litert
@pytest.mark.parametrize("name", ["digits.tflite", "digits-int8.tflite"])
def test_a_model_computes_the_same_and_tells_its_operators(name: str) -> None:
    spans = profiled(name, 20)
    assert 20 == len(spans.runs)
    kinds = [row.operator.split()[0] for row in operator_rows(spans, 20)]
    middle = [kind for kind in kinds if kind not in ("QUANTIZE", "DEQUANTIZE")]
    assert ["CONV_2D", "CONV_2D", "MAX_POOL_2D"] == middle[:3]
    assert ["FULLY_CONNECTED", "SOFTMAX"] == middle[-2:]
    assert all(spans.shapes)
    by_run = dict.fromkeys(spans.runs, 0)
    for _, begin, duration in spans.spans:
        run = next(run for run in by_run if run[0] <= begin <= sum(run))
        by_run[run] += duration
    assert all(taken <= run[1] for run, taken in by_run.items())
    assert any(by_run.values())
    assert {20} == {row.count for row in operator_rows(spans, 20)}


@needs_litert
def test_without_a_profile_the_interpreter_runs() -> None:
    assert open_engine("litert", EngineSettings()).operators() is None
