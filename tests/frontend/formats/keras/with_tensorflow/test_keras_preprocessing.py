"""Presets of preprocessing give what Keras' own functions give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.options import Preprocessing
from rankslice.backend.runtime.sources.image_input import image_input
from rankslice.backend.runtime.sources.image_source import load_image

NETWORKS = {
    "resnet50": "caffe",
    "vgg16": "caffe",
    "densenet": "torch",
    "mobilenet_v2": "tf",
    "inception_v3": "tf",
    "xception": "tf",
}


@pytest.mark.parametrize("network", NETWORKS)
def test_a_preset_gives_the_values_of_a_network(network: str, tmp_path: Path) -> None:
    from tensorflow.keras import applications

    pixels = np.random.default_rng(0).integers(0, 256, (32, 48, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "i.png")
    wanted = Preprocessing("nhwc", preprocess=NETWORKS[network])
    slot = np.empty((1, 32, 48, 3), np.float32)
    load_image(tmp_path / "i.png", image_input(Tensor("x", "float32", slot.shape), wanted), slot)
    reference = getattr(applications, network).preprocess_input(pixels[None].astype(np.float32))
    np.testing.assert_allclose(reference, slot, atol=1e-5, rtol=0)
