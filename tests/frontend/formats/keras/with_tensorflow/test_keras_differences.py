"""The first tensor that differs, for Keras models: they are converted once more to find it."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import rankslice, succeed
from damage import change_tflite_weight
from jobs import write_mapping
from keras_networks import drawn, saved
from recorded import searched

from rankslice.backend.runtime.options import RunOptions
from rankslice.frontend.formats.keras.reader import read_keras
from rankslice.models import convert_digits
from rankslice.session.build_folder import read_plan
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.building.build_options import Quantisation

DIGITS = Path(convert_digits.__file__).with_name("digits.keras")


def test_a_changed_weight_is_found_where_it_is(tmp_path: Path) -> None:
    out = tmp_path / "out"
    succeed("build", DIGITS, "--cuts", "3,9", "--share-cores", "--out", out)
    middle = read_plan(out).of_rank(1)[0]
    change_tflite_weight(out / middle.file)
    ended = rankslice("run", out, "--frames", "3", "--verify")
    assert 1 == ended.code
    shown = " ".join(ended.out.split())
    assert "first difference: tensor 'conv4' that rank 1 sends to rank 2 (frame 0) differs" in shown
    assert "of its range; its inputs agree" in shown


@pytest.mark.parametrize(
    ("name", "kind", "literally", "exact"),
    [
        ("normalised", "float32", True, False),
        ("residual", "dynamic", False, True),
        # Converted with more outputs, these round more than slices and whole.
        ("nested", "float32", False, True),
        ("nested", "float16", False, False),
    ],
)
def test_no_tensor_of_sound_slices_differs(
    name: str, kind: str, literally: bool, exact: bool, tmp_path: Path
) -> None:
    path = saved(drawn(name), tmp_path / "model.keras")
    layers = [layer.name for layer in read_keras(path).graph.layers]
    mapping = write_mapping(tmp_path / "mapping.json", {n: i % 3 for i, n in enumerate(layers)})
    options = BuildOptions(share_cores=True, literally=literally, quantisation=Quantisation(kind))
    built = build(path, mapping, "local", tmp_path / "out", options)
    found = searched(built.folder, RunOptions(frames=2, exact=exact), 1)
    assert found.startswith("no tensor at a cut differs")
    assert found.endswith("the converter or the engine fuses layers across the cuts")
