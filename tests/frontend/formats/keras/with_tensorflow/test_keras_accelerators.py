"""The trained digit classifier as Keras files, its slices over CPU, GPU and NPU of one board."""

from __future__ import annotations

import numpy as np
import pytest
from digits_over_accelerators import MODELS, ON_ACCELERATORS, answers_over_accelerators
from litert_engines import needs_openvino, needs_swiftshader

from rankslice.models import train_digits
from rankslice.session.building.build_options import Quantisation

pytestmark = [needs_swiftshader, needs_openvino]

LAYERS = (["conv1..pool1"], ["conv3..add"], ["relu4..softmax"])


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_float_slices_read_digits_as_well_as_the_whole(suffix, tmp_path):
    found = answers_over_accelerators(MODELS / f"digits.{suffix}", LAYERS, tmp_path)
    assert (f"{found.unsliced:.4f}", f"{found.sliced:.4f}", found.same) == ("0.9833", "0.9833", 1.0)
    assert ON_ACCELERATORS == found.accelerated


def test_int8_slices_read_digits_as_well_as_the_whole(tmp_path):
    images = train_digits.load()[0].images[:200]
    frames = train_digits.network_input(images).reshape(-1, 8, 8, 1)
    np.savez(tmp_path / "seen.npz", image=frames)
    int8 = Quantisation("int8", tmp_path / "seen.npz")
    found = answers_over_accelerators(MODELS / "digits.keras", LAYERS, tmp_path, int8)
    assert found.sliced == pytest.approx(0.9833, abs=0.003)
    assert found.sliced == pytest.approx(found.unsliced, abs=0.003)
    assert found.same >= 0.99
    assert ON_ACCELERATORS == found.accelerated
