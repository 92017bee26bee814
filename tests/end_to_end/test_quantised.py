"""Networks of few bits run by mpirun; mappings of quantised ones name only layers that compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from jobs import build_folder, write_mapping
from quantised import averaging_cnn, half_cnn, images, quantised_cnn
from real_jobs import verified

from rankslice.framework.quantisers import is_quantiser
from rankslice.frontend.formats.onnx.reader import read_onnx
from rankslice.session.building.build import BuildOptions, build

pytestmark = pytest.mark.ci

FRAMES = 4


@pytest.mark.parametrize(("kind", "exact"), [("qdq", True), ("qdq", False), ("qoperator", False)])
def test_a_quantised_network_is_bit_equal(kind: str, exact: bool, tmp_path: Path) -> None:
    model = quantised_cnn(kind, tmp_path)
    names = [layer.name for layer in read_onnx(model).graph.layers if not is_quantiser(layer)]
    folder = build_folder(tmp_path, model, {name: n % 3 for n, name in enumerate(names)})
    frames = tmp_path / "frames.npz"
    np.savez(frames, image=np.stack([image["image"] for image in images(FRAMES)]))
    verdict = verified(folder, FRAMES, frames, exact=exact)
    assert ("", True, FRAMES) == (verdict.complaint, verdict.bit_equal, verdict.frames)


def test_a_float16_network_agrees_as_deployed_and_is_not_bit_equal(tmp_path: Path) -> None:
    model = half_cnn()
    folder = build_folder(tmp_path, model, {x.name: n % 3 for n, x in enumerate(model.graph.node)})
    deployed = verified(folder, FRAMES, exact=False)
    assert ("", FRAMES) == (deployed.complaint, deployed.frames)
    assert "float16 values cross cuts" in verified(folder, FRAMES).complaint


def test_a_difference_by_what_the_engine_merges_is_told_as_such(tmp_path: Path) -> None:
    model = averaging_cnn(tmp_path, "QInt8")
    names = [layer.name for layer in read_onnx(model).graph.layers if not is_quantiser(layer)]
    ranks = {name: int(n >= names.index("pool")) for n, name in enumerate(names)}
    mapping = write_mapping(tmp_path / "mapping.json", ranks)
    built = build(model, mapping, "local", tmp_path / "out", BuildOptions(share_cores=True))
    assert any("int8 values cross cuts next to 'pool'" in text for text in built.warnings)
    frames = tmp_path / "frames.npz"
    np.savez(frames, image=np.stack([image["image"] for image in images(FRAMES)]))
    verdict = verified(built.folder, FRAMES, frames, exact=False)
    if verdict.passed:
        pytest.skip("onnxruntime merges signed averages on this kind of processor")
    assert "the engine's optimisation changes the unsliced model by" in verdict.complaint
    assert "which is as much: it fuses different layers in slices" in verdict.complaint
