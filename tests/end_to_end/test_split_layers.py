"""Networks with split layers, built from mapping files and run by mpirun."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from quantised import float_cnn, images
from real_jobs import verified

from rankslice.session.building.build import BuildOptions, build

pytestmark = pytest.mark.ci

FRAMES = 4


def built(folder: Path, items: list[dict[str, object]], rest: list[str]) -> Path:
    model = folder / "model.onnx"
    onnx.save(float_cnn(), model)
    mapping = {"local_cpu0": [*items, *rest], "local_cpu1": items}
    (folder / "mapping.json").write_text(json.dumps(mapping))
    options = BuildOptions(share_cores=True)
    return build(model, folder / "mapping.json", "local", folder / "out", options).folder


@pytest.mark.parametrize("halo", ["recompute", "exchange"])
def test_a_network_in_rows_and_in_outputs_is_verified(halo: str, tmp_path: Path) -> None:
    items = [
        {"layers": ["conv1..pool"], "by": "rows", "halo": halo},
        {"layers": ["conv3"], "by": "outputs"},
    ]
    folder = built(tmp_path, items, ["flat", "fc"])
    frames = tmp_path / "frames.npz"
    np.savez(frames, image=np.stack([image["image"] for image in images(FRAMES)]))
    verdict = verified(folder, FRAMES, frames, exact=False)
    assert ("", True, FRAMES) == (verdict.complaint, verdict.passed, verdict.frames)


def test_sums_of_parts_are_close_and_exact_says_why_they_are_not_equal(tmp_path: Path) -> None:
    folder = built(tmp_path, [{"layers": ["fc"], "by": "inputs"}], ["conv1..flat"])
    frames = tmp_path / "frames.npz"
    np.savez(frames, image=np.stack([image["image"] for image in images(FRAMES)]))
    close = verified(folder, FRAMES, frames, exact=False)
    assert ("", True) == (close.complaint, close.passed)
    exact = verified(folder, FRAMES, frames)
    assert not exact.bit_equal
    assert "layers are split, and engines may add in another order" in exact.complaint
    assert "first difference: tensor 'scores'" in exact.first_difference
    assert "parts of tensors, not compared" in exact.first_difference
