"""The trained digit classifier as ``.tflite`` files, over CPU, GPU and NPU of one board."""

from __future__ import annotations

from pathlib import Path

import pytest
from digits_over_accelerators import MODELS, ON_ACCELERATORS, answers_over_accelerators
from litert_engines import needs_litert, needs_openvino, needs_swiftshader

pytestmark = [pytest.mark.ci, needs_litert, needs_swiftshader, needs_openvino]

LAYERS = {
    "digits.tflite": ("CONV_2D_0..MAX_POOL_2D_2", "CONV_2D_3..ADD_6", "MAX_POOL_2D_7..SOFTMAX_10"),
    "digits-int8.tflite": (
        "QUANTIZE_0..MAX_POOL_2D_3",
        "CONV_2D_4..ADD_7",
        "MAX_POOL_2D_8..DEQUANTIZE_12",
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_slices_read_digits_as_well_as_the_whole(name: str, tmp_path: Path) -> None:
    found = answers_over_accelerators(MODELS / name, [[each] for each in LAYERS[name]], tmp_path)
    assert found.unsliced == pytest.approx(0.9833, abs=0.003)
    assert (found.unsliced, 1.0) == (found.sliced, found.same)
    assert ON_ACCELERATORS == found.accelerated
